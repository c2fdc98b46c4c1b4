"""A game beside a widget and beside clear bombs: OpenArena's demo on a software GPU.

    python -m benchmarks.desktop_openarena [--repeats 1] [--seconds 8]
        [--bomb-size 1024] [--picture docs/images/openarena.png]

The companies of TimeGraph's Figures 7 to 9: es2gears, one bomb and five. The game has priority 9
and HT, the others 1 and PRT; PE and AE cap them at a tenth of the GPU. They join when the game has
been loaded. The same frames of the demo are timed in every case, for `--seconds` at most; a round
of all cases takes two to four minutes, and medians over the rounds are shown.

Splitting alone makes this game about twice as fast on llvmpipe, for the same time of the device
per frame; probably because rasterising begins before the frame is complete. So there are two kinds
of alone. What is unmanaged is compared with the game unmanaged and alone; what is managed with the
game beside a widget that was stopped, where its frames are split too. Without that, the gain by
splitting would pass for one by scheduling.

OpenArena is half a gigabyte and not needed for anything else; it is no part of the tests.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.desktop import INSTALL, has_openarena, openarena, save_picture
from benchmarks.gpu.results import Table
from headway.view.plots import new_figure
from tests.integration import gl

JOIN, FIRST, LAST = 60, 90, 390
"""Frames of the demo: where the others join, and from where to where it is timed."""
NOBODY, STOPPED, WIDGET = "nobody", "stopped widget", "widget"
UNMANAGED = "unmanaged"
COMPANIES: dict[str, tuple[int, tuple[str, ...]]] = {
    WIDGET: (1, (gl.GEARS,)),
    "1 bomb": (1, ()),
    "5 bombs": (5, ()),
}
"""How many, and of what if it is not bombs."""
Rates = dict[tuple[str, str], float]
"""Frames per second by company and way."""
PAPER = {
    (WIDGET, "HT"): "1.11 times unmanaged",
    (WIDGET, "PE"): "1.02 - 1.21 times HT (four games)",
    (WIDGET, "AE"): "1.04 - 1.36 times HT (four games)",
    ("1 bomb", "HT"): "3 - 6 times unmanaged",
    ("1 bomb", "PE"): "at most 3 % below widget",
    ("1 bomb", "AE"): "at most 3 % below widget",
    ("5 bombs", UNMANAGED): "nearly unresponsive",
    ("5 bombs", "HT"): "7 - 20 % lost",
    ("5 bombs", "PE"): "nearly no loss",
    ("5 bombs", "AE"): "nearly no loss",
    ("5 bombs", "shared PE"): "nearly no loss",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--bomb-size", default="1024", help="pixels each way that a bomb clears")
    parser.add_argument("--picture", type=Path, help="draw it there, the data beside it")
    options = parser.parse_args()
    if not has_openarena():
        raise SystemExit(INSTALL)
    seen: dict[tuple[str, str], list[float]] = {}
    with gl.new_stage() as stage:
        stage.daemon()
        measure(stage, gl.Case(NOBODY), (), 1.0)  # what it has to load is cached now
        for number in range(options.repeats):
            for company, case, command in runs():
                command = command or bomb(stage, options.bomb_size)
                idle = company == STOPPED
                rate = measure(stage, case, command, options.seconds, idle=idle)
                seen.setdefault((company, case.title), []).append(rate)
            print(f"round {number + 1} of {options.repeats}", file=sys.stderr)
    middle = {key: statistics.median(values) for key, values in seen.items()}
    print(table(middle).markdown())
    if options.picture is not None:
        draw(options.picture, middle)
    return 0


def runs() -> Iterator[tuple[str, gl.Case, tuple[str, ...]]]:
    yield NOBODY, gl.Case(UNMANAGED, 0, None), ()
    yield NOBODY, gl.Case("HT", 0, "ht"), ()
    yield STOPPED, gl.Case("HT", 1, "ht"), (gl.GEARS,)
    for company, (number, command) in COMPANIES.items():
        for case in cases(number):
            yield company, case, command


def bomb(stage: gl.Stage, size: str) -> tuple[str, ...]:
    return (str(stage.built / "bomb"), gl.BOMB_SECONDS, size)


def cases(number: int) -> list[gl.Case]:
    """Nobody at the gate; the game first; and the others capped at a tenth of the GPU."""
    part = f"{2.5 / number:g}ms/25ms"
    low = ("--policy", "prt")
    capped: dict[str, tuple[str, ...]] = {
        kind: (*low, "--reserve", f"{part}:{kind.lower()}") for kind in ("PE", "AE")
    }
    if number > 1:
        capped["shared PE"] = (*low, "--reserve", gl.TENTH, "--shared", "all")
    return [
        gl.Case(UNMANAGED, number, None),
        gl.Case("HT", number, "ht", low),
        *(gl.Case(kind, number, "ht", reserve) for kind, reserve in capped.items()),
    ]


def measure(
    stage: gl.Stage,
    case: gl.Case,
    command: tuple[str, ...],
    seconds: float,
    *,
    idle: bool = False,
) -> float:
    """Frames per second of the game over one and the same part of the demo."""
    try:
        game = gl.start_important(stage, case, openarena(stage.folder / "openarena"))
        gl.wait_until(lambda: game.frames() >= JOIN or game.ended(), "the demo's begin", seconds=60)
        gl.start_rivals(stage, case, command)
        for rival in stage.programs[1:] if idle else ():
            rival.process.send_signal(signal.SIGSTOP)
        wait(game, FIRST, 3.0)
        first, start = game.frames(), time.monotonic()
        wait(game, LAST, seconds)
        if game.ended():
            raise SystemExit("OpenArena ended before it was measured")
        return (game.frames() - first) / (time.monotonic() - start)
    finally:
        stage.stop_programs()


def wait(game: gl.Program, frame: int, seconds: float) -> None:
    """Until it has shown that frame, or for so long."""
    end = time.monotonic() + seconds
    while game.frames() < frame and time.monotonic() < end and not game.ended():
        time.sleep(0.002)


def alone(rates: Rates, way: str) -> float:
    """The game with the GPU to itself and its frames split or not, as in this way."""
    return rates[NOBODY, UNMANAGED] if way == UNMANAGED else rates[STOPPED, "HT"]


def table(rates: Rates) -> Table:
    rows = []
    for (company, way), rate in rates.items():
        row = [company, way, f"{rate:.1f}"]
        if company in COMPANIES:
            kept = rate / alone(rates, way)
            unmanaged = max(rates[company, UNMANAGED], 0.1) / alone(rates, UNMANAGED)
            paper = PAPER.get((company, way), "")
            rows.append([*row, f"{kept:.2f}", f"{kept / unmanaged:.1f}", paper])
        else:
            rows.append([*row, "", "", ""])
    head = ["beside", "the game by", "fps", "kept of alone", "times unmanaged", "TimeGraph"]
    return Table("", head, rows)


def draw(path: Path, rates: Rates) -> None:
    figure = new_figure(8, 4)
    axes = figure.subplots()
    ways = list(dict.fromkeys(way for _, way in rates))
    width = 1 / (len(ways) + 1)
    for place, way in enumerate(ways):
        shown = [
            (x, 100 * rates[c, way] / alone(rates, way))
            for x, c in enumerate(COMPANIES)
            if (c, way) in rates
        ]
        at = [x + (place - (len(ways) - 1) / 2) * width for x, _ in shown]
        drawn = axes.bar(at, [share for _, share in shown], width, label=way)
        axes.bar_label(drawn, fmt="%.0f", fontsize=8)
    axes.axhline(100, color="#555555", linestyle="--", linewidth=1)
    axes.set_xticks(range(len(COMPANIES)), [f"beside {company}" for company in COMPANIES])
    axes.set_ylabel("frame rate, % of the same way alone")
    axes.set_title("OpenArena (demo, 320x240) on a software GPU")
    figure.legend(fontsize="small", ncols=len(ways), loc="outside lower center")
    data = [{"beside": c, "way": way, "fps": rate} for (c, way), rate in rates.items()]
    save_picture(figure, path, {"frames_per_second": data})


if __name__ == "__main__":
    raise SystemExit(main())
