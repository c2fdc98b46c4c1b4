"""A thousand nodes in virtual time: how soon claims get a GPU, how splintered the rest is, and what
deadlines the simulated daemons miss, by what the placer looks at.

    python -m benchmarks.fleet_scale [--write]

`--write` puts table and picture into docs/fleet-scale.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headway.fleet.claims import read_claim
from headway.fleet.placement import Placement
from headway.fleet.virtual import MS, Cluster, Misses, Outcome, S, VirtualCluster, misses

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "fleet-scale.md", ROOT / "docs" / "images" / "fleet-scale.png"
BEGIN, END = "<!-- table -->", "<!-- end -->"
KINDS = (
    {"name": "control", "priority": 9, "reserve": "1ms/5ms", "deadline": "4ms"},
    {"name": "detector", "priority": 8, "reserve": "5ms/33ms", "deadline": "20ms"},
    {"name": "detector-hd", "priority": 8, "reserve": "12ms/33ms", "deadline": "33ms"},
    {"name": "speech", "priority": 6, "reserve": "6ms/20ms", "deadline": "20ms"},
    {"name": "chat", "priority": 5, "reserve": "10ms/50ms", "deadline": "50ms"},
    {"name": "video", "priority": 4, "reserve": "4ms/40ms"},
    {"name": "batch", "priority": 2, "reserve": "20ms/100ms", "preemptible": True},
    {"name": "training", "priority": 1, "preemptible": True},
)
WAYS = {
    "counted": {"proves": False, "preempts": False},
    "proven": {"proves": True, "preempts": False},
    "proven, batch moves": {"proves": True, "preempts": True},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One way of placing at one load."""

    way: str
    load: float
    outcome: Outcome
    misses: Misses
    decision_us: float
    """CPU time of the placer for each claim that came."""

    def wait_s(self, part: float) -> float:
        waits = sorted(self.outcome.waits_ns)
        return waits[int(part * (len(waits) - 1))] / S if waits else 0.0


def measure(nodes: int, load: float, way: str, minutes: int, seed: int) -> Row:
    """Play a cluster, then simulate what every daemon of it holds at the end."""
    kinds = [read_claim(given) for given in KINDS]
    cluster = Cluster(nodes, 2, kinds, load=load, life_ns=3600 * S)
    began = time.process_time()
    played = VirtualCluster(cluster, Placement(**WAYS[way]), seed)
    outcome = played.run(minutes * 60 * S, 10 * S)
    came = outcome.placed + outcome.refused + outcome.pending
    decision_us = (time.process_time() - began) / max(1, came) * 1e6
    gpus = played.placement.books.gpus.values()
    found = sum((misses(gpu, 1000 * MS, seed) for gpu in gpus), Misses())
    return Row(way, load, outcome, found, decision_us)


def table(rows: list[Row]) -> str:
    lines = [
        "| load | placed by | at once | wait p50 / p99 | wait at the end | promised | splintered |"
        " late jobs | GPUs with late jobs | CPU for a claim |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        out, late = row.outcome, row.misses
        first = out.at_once / max(1, out.placed + out.pending)
        lines.append(
            f"| {row.load:.2f} | {row.way} | {first:.0%} | {row.wait_s(0.5):.0f} /"
            f" {row.wait_s(0.99):.0f} s | {out.pending} | {_last(out.used):.0%} |"
            f" {_last(out.splintered):.0%} | {late.missed / max(1, late.jobs):.1%} of {late.jobs} |"
            f" {late.gpus} | {row.decision_us:.0f} us |"
        )
    return "\n".join(lines)


def _last(looks: list[float]) -> float:
    """The mean of the last quarter, when as many come as go."""
    last = looks[-max(1, len(looks) // 4) :]
    return sum(last) / len(last)


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    shown: dict[str, Callable[[Row], float]] = {
        "jobs that are late, %": lambda r: 100 * r.misses.missed / max(1, r.misses.jobs),
        "claims placed at once, %": lambda r: (
            100 * r.outcome.at_once / max(1, r.outcome.placed + r.outcome.pending)
        ),
        "GPU time promised, %": lambda r: 100 * _last(r.outcome.used),
    }
    for place, (title, value) in zip(axes, shown.items(), strict=True):
        for way in WAYS:
            mine = [row for row in rows if row.way == way]
            place.plot([row.load for row in mine], [value(r) for r in mine], "o-", label=way)
        place.set(title=title, xlabel="GPU time asked for, of all", ylim=(-3, 103))
        place.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--loads", default="0.1,0.2,0.3,0.4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = []
    for load in map(float, given.loads.split(",")):
        for way in WAYS:
            rows.append(measure(given.nodes, load, way, given.minutes, given.seed))
            print(table(rows).splitlines()[-1], flush=True)
    if given.write:
        text = PAGE.read_text()
        before, rest = text.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}")
        draw(rows, PICTURE)


if __name__ == "__main__":
    main()
