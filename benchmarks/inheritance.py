"""What PIX and RIX do for real programs that share an X server, beside the paper's figures.

    python -m benchmarks.inheritance [--repeats 3] [--seconds 3] [--server glamor|cpu]

The paper's Engine widgets, Gears and X server become three widgets, a plain X client, and Xephyr
with glamor (it draws on the GPU) or Xvfb (it draws on the CPU; then it is as nice as can be and two
busy loops compete with it where PIX is measured). Their speeds are another machine's: compare the
ratios. TimeGraph has no hold-off; ours keeps an idle GPU from an X server that inherits nothing, so
some rows are without. Each row is measured once per round; medians over the rounds are printed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration import gl
from tests.integration.desktop import DIFFERENT, GLAMOR, HOGS, ON_CPU, SAME, Desktop, measure

PAPER = {
    "Figure 12, two widgets": ("138 / ?", "156 / ?"),
    "Figure 12, no hold-off": ("138 / ?", "156 / ?"),
    "Figure 13, three widgets": ("98 / 64 / ?", "150 / 82 / ?"),
    "Figure 13, no hold-off": ("98 / 64 / ?", "150 / 82 / ?"),
    "Figure 14, and an X client": ("(Figure 3) in disorder", "20 to 30 less than Figure 13"),
    "Figure 15, 5 ms every 20 ms each": ("above 50 / ? / below 50", "50 / 50 / 50"),
    "Figure 16, reserves of three sizes": ("not isolated; video 12.7", "isolated; video 23.9"),
}
"""Frames per second of widgets 1, 2 and 3 without and with the protocol, where the paper says."""


@dataclass(frozen=True)
class Pair:
    """One figure on one server: without the protocol and with it."""

    figure: str
    off: Desktop
    on: Desktop


def pairs(server: str) -> list[Pair]:
    hogs = HOGS if server == ON_CPU else 0
    made = []
    plain = [(widgets, False, holdoff) for widgets in (2, 3) for holdoff in ("2ms", "0ms")]
    shapes = [*plain, (3, True, "2ms")]
    for figure, (widgets, client, holdoff) in zip(list(PAPER)[:5], shapes, strict=True):
        off, on = (
            Desktop(figure, server, inherit, widgets, client=client, hogs=hogs, holdoff=holdoff)
            for inherit in ("rix", "pix,rix")
        )
        made.append(Pair(figure, off, on))
    sizes = ((SAME, "5ms/20ms"), (DIFFERENT, "1ms/10ms"))
    for figure, (reserves, own) in zip(list(PAPER)[5:], sizes, strict=True):
        off, on = (
            Desktop(figure, server, inherit, 3, reserves, own, client=True)
            for inherit in ("pix", "pix,rix")
        )
        made.append(Pair(figure, off, on))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--server", choices=["glamor", "cpu"], help="one of the two only")
    parser.add_argument("--table", type=Path, help="write the table to this file, as Markdown")
    options = parser.parse_args()
    servers = {"glamor": [GLAMOR], "cpu": [ON_CPU]}.get(options.server, [GLAMOR, ON_CPU])
    seen: dict[Desktop, list[list[float]]] = {}
    listed = [pair for server in servers for pair in pairs(server)]
    with tempfile.TemporaryDirectory() as folder:
        built = gl.compile_programs(Path(folder))
        for number in range(options.repeats):
            for pair in listed:
                for desktop in (pair.off, pair.on):
                    fps = measure(built, desktop, options.seconds)
                    seen.setdefault(desktop, []).append(fps)
                    told = f"{desktop.server}, {desktop.title}, {desktop.inherit}: {shown(fps)}"
                    print(f"round {number + 1} of {options.repeats}: {told}", file=sys.stderr)
    text = report(listed, seen)
    print(text)
    if options.table is not None:
        options.table.write_text(text + "\n")
    return 0


def report(listed: Sequence[Pair], seen: dict[Desktop, list[list[float]]]) -> str:
    lines = [
        "| X server | set-up | without | with | widget 1 | paper: without | paper: with |",
        "|---|---|---|---|---|---|---|",
    ]
    for pair in listed:
        off, on = (middle(seen[desktop]) for desktop in (pair.off, pair.on))
        names = "PIX" if pair.off.inherit == "rix" else "RIX"
        ratio = on[0] / max(off[0], 0.1)
        cells = [pair.off.server, f"{pair.figure}: {names}", shown(off), shown(on)]
        lines.append(f"| {' | '.join([*cells, f'{ratio:.2f} times', *PAPER[pair.figure]])} |")
    lines += ["", "frames per second of widgets 1, 2 and 3, and rounds of the X client"]
    return "\n".join(lines)


def middle(runs: list[list[float]]) -> list[float]:
    return [statistics.median(values) for values in zip(*runs, strict=True)]


def shown(values: list[float]) -> str:
    return " / ".join(f"{value:.0f}" for value in values)


if __name__ == "__main__":
    raise SystemExit(main())
