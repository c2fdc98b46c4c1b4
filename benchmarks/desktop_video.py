"""Does a video keep its 24 frames a second beside clear bombs? mplayer on a software GPU.

    python -m benchmarks.desktop_video [--repeats 3] [--seconds 4] [--bomb-size 4096]

Every case is measured once per round; medians, and the slowest and the fastest. TimeGraph's Figure
13 has five bombs and draws the frame rate without numbers; the two numbers are those of the PIX/RIX
paper, whose video played beside three widgets with the X server in between.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.gpu.results import Table
from tests.integration import gl, video

PAPERS = {
    "unmanaged": "disturbed (Figure 13); 12.7 without RIX",
    "the same, video in 10ms/40ms": "close to 24 (Figure 13); 23.9 with RIX",
}
"""What they say of this way with five bombs."""
GOAL = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--bomb-size", default=video.BOMB_SIZE, help="pixels each way")
    options = parser.parse_args()
    cases = [gl.Case("alone"), *video.cases(1), *video.cases(5)]
    rates: dict[gl.Case, list[float]] = {case: [] for case in cases}
    with gl.new_stage() as stage:
        stage.daemon()
        path = stage.folder / "video.y4m"
        video.write(path)
        for number in range(options.repeats):
            for case, seen in rates.items():
                rate = video.measure(stage, case, path, options.seconds, options.bomb_size)
                seen.append(rate)
            print(f"round {number + 1} of {options.repeats}", file=sys.stderr)
    print(table(rates).markdown())
    kept = min(statistics.median(rates[case]) for case in cases if case.reserve) / video.RATE
    print(f"\nbombs reserved: at least {kept:.2f} of {video.RATE} fps (goal {GOAL})")
    return 0 if kept >= GOAL else 1


def table(rates: dict[gl.Case, list[float]]) -> Table:
    rows = []
    for case, values in rates.items():
        company = f"{case.bombs} bombs, " if case.bombs > 1 else "1 bomb, " if case.bombs else ""
        spread = f"{min(values):.1f} - {max(values):.1f}"
        papers = PAPERS.get(case.title, "") if case.bombs > 1 else ""
        rows.append(
            [company + case.title, f"{statistics.median(values):.1f}", spread, papers],
        )
    head = [f"video of {video.RATE} fps", "shown fps", "slowest - fastest", "papers"]
    return Table("", head, rows)


if __name__ == "__main__":
    raise SystemExit(main())
