"""Bounds against simulations: `make bounds` checks ten thousand random task sets of each kind.

Prints, for each protocol, how many bounds were compared, the worst case seen as a fraction of its
bound, and the seed that shows it; draws how tight the bounds are. A wait above its bound fails.
With `--into FILE` a campaign can be run in portions: tables and picture are of all that FILE has.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple
from functools import partial
from pathlib import Path

from headway.sim.study.bound_check import Seen, check_locks, check_machine
from headway.sim.study.group_check import check_groups

CHECKS: dict[str, Callable[[int], list[Seen]]] = {
    "tokens": check_locks,
    "machines": check_machine,
    "groups": check_groups,
    "servers": partial(check_groups, served=True),
}


def everything(kind: str, seeds: range, workers: int) -> Iterator[Seen]:
    """All comparisons of one kind, over these seeds."""
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(CHECKS[kind], seeds, chunksize=50):
            yield from found


def kept(path: str, kind: str, found: list[Seen]) -> list[Seen]:
    """All comparisons of this kind that the file has, these added."""
    with Path(path).open("a+") as file:
        file.writelines(json.dumps([kind, *astuple(seen)]) + "\n" for seen in found)
        file.seek(0)
        rows = map(json.loads, file)
        return [Seen(*row[1:]) for row in rows if row[0] == kind]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=10_000, help="task sets of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--into", help="keep the comparisons in this file, and add to what it has")
    parser.add_argument("--plot", default="out/tightness.png", help="a picture, or nothing")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.sets)
    tightness: dict[str, list[float]] = defaultdict(list)
    broken: list[Seen] = []
    print(f"{'kind':<9} {'what':<18} {'bounds':>7} {'worst/bound':>11}   of     seen  seed")
    for kind in options.kinds:
        rows: dict[str, list[Seen]] = defaultdict(list)
        comparisons = list(everything(kind, seeds, options.workers))
        if options.into:
            comparisons = kept(options.into, kind, comparisons)
        for seen in comparisons:
            name = f"{seen.protocol}, refined" if seen.what.startswith("refined") else seen.protocol
            rows[name].append(seen)
            if not seen.holds:
                broken.append(seen)
        for name, found in sorted(rows.items()):
            worst = max(found, key=lambda seen: seen.tightness)
            if not name.endswith("refined"):  # so many curves that they can be told apart
                tightness[f"{kind}: {name.split()[0]}"] += [seen.tightness for seen in found]
            print(
                f"{kind:<9} {name:<18} {len(found):>7} {worst.tightness:>11.3f}   "
                f"{worst.bound_ns} {worst.worst_ns}  {worst.seed}"
            )
    for seen in broken:
        print(f"BROKEN: {seen}", file=sys.stderr)
    if options.plot:
        _draw(tightness, options.plot)
        print(f"picture: {options.plot}")
    print(f"{len(broken)} bounds were exceeded")
    return 1 if broken else 0


def _draw(tightness: dict[str, list[float]], path: str) -> None:
    from headway.sim.papers.figure import Curve, Plot
    from headway.view.plots import plot_figure

    curves = []
    for name, values in tightness.items():
        ordered = sorted(values)
        step = max(1, len(ordered) // 300)
        y = [100 * place / len(ordered) for place in range(0, len(ordered), step)]
        curves.append(Curve(name, y, ordered[::step]))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    plot = Plot("lines", "worst seen / bound", "% of bounds", curves)
    plot_figure(path, "How tight the bounds are", plot)


if __name__ == "__main__":
    sys.exit(main())
