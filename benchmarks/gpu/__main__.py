"""All measurements on a real NVIDIA GPU: tables with goals, results.md and results.json.

    benchmarks/gpu/run [--quick] [--only pairs,kill] [--out FOLDER]

Sections are independent: one that fails says why, and the others go on. Exit code 0: everything ran
and every goal was met; 1: a goal was missed; 2: a section failed.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.gpu import (
    cudamon,
    frameworks,
    gates,
    graphics,
    inference,
    kills,
    mps,
    opencl,
    ordinary,
    overhead,
    pairs,
    results,
    shares,
    slices,
    ticks,
)
from benchmarks.gpu.results import Outcome
from benchmarks.gpu.stage import Stage, opened

SECTIONS: dict[str, tuple[Callable[[Stage, bool], Outcome], int, int]] = {
    "ordinary": (ordinary.measure, 540, 420),
    "pairs": (pairs.measure, 210, 85),
    "overhead": (overhead.measure, 270, 90),
    "shares": (shares.measure, 160, 30),
    "slices": (slices.measure, 60, 15),
    "torch": (inference.measure, 205, 30),
    "gates": (gates.measure, 16, 8),
    "tick": (ticks.measure, 35, 20),
    "kill": (kills.measure, 70, 70),
    "frameworks": (frameworks.measure, 80, 55),
    "graphics": (graphics.measure, 50, 30),
    "opencl": (opencl.measure, 40, 28),
    "mps": (mps.measure, 50, 35),
    "cudamon": (cudamon.measure, 900, 120),
}
"""How to measure, and about how many seconds that takes, in full and quickly."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between")
    parser.add_argument("--quick", action="store_true", help="shorter, and fewer rows")
    parser.add_argument("--out", type=Path, default=Path("out/gpu"), help="folder for the results")
    parser.add_argument("--built", type=Path, help="programs that are built already")
    parser.add_argument("--cases", default="", help="of ordinary, with semicolons between")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"--only: found {', '.join(unknown)}, expected {', '.join(SECTIONS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    facts, outcomes = results.facts(), dict[str, Outcome]()
    with opened(options.built) as stage:
        stage.cases = tuple(filter(None, options.cases.split(";")))
        facts |= {f"without {name}": why for name, why in stage.missing.items()}
        for name in names:
            about_s = SECTIONS[name][2 if options.quick else 1]
            print(f"\n## {name} (about {about_s} s)\n", flush=True)
            stage.keep = partial(_keep, options.out, facts, outcomes, name)
            outcomes[name] = section(name, stage, options.quick)
            print(f"\n{outcomes[name].markdown()}", flush=True)
            write(options.out, facts, outcomes)  # whatever comes, what was measured is there
    if any(outcome.error for outcome in outcomes.values()):
        return 2
    return 0 if all(goal.met for outcome in outcomes.values() for goal in outcome.goals) else 1


def _keep(
    folder: Path, facts: dict[str, str], outcomes: dict[str, Outcome], name: str, so_far: Outcome
) -> None:
    write(folder, facts, {**outcomes, name: so_far})


def section(name: str, stage: Stage, quick: bool) -> Outcome:
    since = time.monotonic()
    try:
        outcome = SECTIONS[name][0](stage, quick)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome(error=f"{type(error).__name__}: {error}")
    outcome.took_s = time.monotonic() - since
    return outcome


def write(folder: Path, facts: dict[str, str], outcomes: dict[str, Outcome]) -> None:
    sections = {name: outcome.to_json() for name, outcome in outcomes.items()}
    content = json.dumps({"facts": facts, "sections": sections}, indent=1)
    (folder / "results.json").write_text(content + "\n")
    (folder / "results.md").write_text(results.document(facts, outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
