"""TimeGraph §6.1: frame-rates over time, of widgets and a video (Figures 11 to 13)."""

from __future__ import annotations

from itertools import pairwise

from headway.sim.papers.claims import Claim, judged, near, shown
from headway.sim.papers.figure import Figure, over_time
from headway.sim.papers.results import Results, Scenario
from headway.sim.papers.workloads import (
    FOREGROUND,
    TIMEGRAPH,
    VIDEO,
    WIDGET,
    Reserve,
    bombs,
    drawing,
    reserve,
    scenario,
    x_server,
)

SECONDS = 10

# -- Figure 11 -----------------------------------------------------------------------------------

_CAPS: dict[str, Reserve | None] = {
    "unmanaged": None,
    "priority": None,
    "pe": reserve("pe", "0.5ms", "25ms"),
    "ae": reserve("ae", "0.5ms", "25ms"),
    "shared": reserve("pe", "2.5ms", "25ms", shared="bombs"),
}


def _fig11_variants() -> dict[str, Scenario]:
    variants = {}
    for mode, cap in _CAPS.items():
        policy = "fifo" if mode == "unmanaged" else "prt"
        widget = drawing(TIMEGRAPH, "widget", WIDGET, policy, FOREGROUND)
        tasks = [x_server(TIMEGRAPH, policy), widget, *bombs(5, policy, reserved=cap)]
        variants[mode] = scenario(TIMEGRAPH, tasks, seconds=SECONDS)
    return variants


def _fig11_claims(results: Results) -> list[Claim]:
    capped = ("pe", "ae", "shared")
    spread = {mode: 100 * results[mode].unsteadiness("widget") for mode in _CAPS}
    fps = {mode: results[mode].fps("widget") for mode in _CAPS}
    return [
        judged(
            "with reserves for the bombs the widget's frame-rate is stable",
            "stable",
            "varies by " + shown([spread[mode] for mode in capped], "%"),
            all(spread[mode] <= 5 for mode in capped),
            "half-second averages with a standard deviation of at most 5 % of the mean",
        ),
        judged(
            "without reserves the widget suffers, more than games do",
            "affected more",
            f"{shown([fps['unmanaged'], fps['priority']], 'fps')} against "
            f"{shown([fps[mode] for mode in capped], 'fps')}",
            all(fps["priority"] < 0.48 * fps[mode] for mode in capped),
            "with priorities alone below 48 % of what reserves give (games lose 52 % at most)",
        ),
    ]


# -- Figure 12 -----------------------------------------------------------------------------------

ENGINES = ("engine1", "engine2", "engine3")
_SIZES = (("15ms", "25ms"), ("5ms", "50ms"), ("5ms", "100ms"))


def _fig12_variants() -> dict[str, Scenario]:
    variants = {}
    for mode in ("unmanaged", "priority", "reserves"):
        policy = "fifo" if mode == "unmanaged" else "prt"
        tasks = [x_server(TIMEGRAPH, policy)]
        for place, (name, size) in enumerate(zip(ENGINES, _SIZES, strict=True)):
            own = reserve("pe", *size) if mode == "reserves" else None
            level = FOREGROUND - place
            tasks.append(drawing(TIMEGRAPH, name, WIDGET, policy, level, reserved=own))
        variants[mode] = scenario(TIMEGRAPH, tasks, seconds=SECONDS)
    return variants


def _ordered(fps: list[float]) -> bool:
    """Each clearly above the next: by a tenth or more."""
    return all(a > 1.1 * b for a, b in pairwise(fps))


def _fig12_claims(results: Results) -> list[Claim]:
    fps = {mode: [results[mode].fps(name) for name in ENGINES] for mode in results}
    chaos = [100 * results["unmanaged"].unsteadiness(name) for name in ENGINES]
    calm = 100 * results["priority"].unsteadiness("engine1")
    entitled = [1000 * 15 / 25, 1000 * 5 / 50, 1000 * 5 / 100]
    frame_ms = 3 * sum(WIDGET.cost_us) / 2 / 1000
    expected = [ms / frame_ms for ms in entitled]
    small = list(zip(fps["reserves"], expected, strict=True))[1:]
    return [
        judged(
            "without a manager the frame-rates do not follow the priorities",
            "not by priority",
            shown(fps["unmanaged"], "fps"),
            not _ordered(fps["unmanaged"]),
            "no order in which each is a tenth above the next",
        ),
        judged(
            "without a manager the frame-rates vary a lot",
            "chaotic",
            f"vary by {shown(chaos, '%')}, with priorities {calm:.1f} % (engine1)",
            min(chaos) > 2 * calm and min(chaos) > 5,
            "twice as unsteady as under priorities, and by more than 5 %",
            otherwise=(
                "a queue in order of arrival serves three equal widgets in turn, very evenly; what "
                "else can make rates vary, such as the CPU's scheduler or the card's own choice of "
                "channel, is not simulated"
            ),
        ),
        judged(
            "PRT and priorities put them in order",
            "engine1 > engine2 > engine3",
            shown(fps["priority"], "fps"),
            _ordered(fps["priority"]),
            "each a tenth or more above the next",
        ),
        judged(
            "reserves separate them by size",
            "15/25, 5/50, 5/100 ms",
            shown(fps["reserves"], "fps"),
            _ordered(fps["reserves"]),
            "each a tenth or more above the next",
        ),
        judged(
            "small reserves give less than their size would suggest",
            "lower than expected",
            f"{shown(fps['reserves'], 'fps')} of {shown(expected, 'fps')}",
            all(ours < 0.95 * full for ours, full in small),
            "engine2 and engine3 at least 5 % below reserved time divided by the cost of a frame",
            otherwise=(
                "a widget's CPU time for a frame is short beside these periods, so it uses up what "
                "is reserved"
            ),
        ),
    ]


# -- Figure 13 -----------------------------------------------------------------------------------


def _fig13_variants() -> dict[str, Scenario]:
    variants = {}
    for mode in ("unmanaged", "reserves"):
        policy = "fifo" if mode == "unmanaged" else "prt"
        own = None if mode == "unmanaged" else reserve("pe", "10ms", "40ms")
        cap = None if mode == "unmanaged" else reserve("pe", "5ms", "40ms", shared="bombs")
        player = drawing(TIMEGRAPH, "mplayer", VIDEO, policy, FOREGROUND, reserved=own)
        tasks = [x_server(TIMEGRAPH, policy), player, *bombs(5, policy, reserved=cap)]
        variants[mode] = scenario(TIMEGRAPH, tasks, seconds=SECONDS)
    return variants


def _fig13_claims(results: Results) -> list[Claim]:
    unmanaged, reserves = (results[mode].fps("mplayer") for mode in ("unmanaged", "reserves"))
    swing = max(abs(rate - 24) for _, rate in results["reserves"].rates("mplayer"))
    return [
        judged(
            "without a manager five bombs disturb the video",
            "significantly disturbed",
            shown(unmanaged, "fps"),
            unmanaged < 12,
            "less than half of its 24 frames a second",
        ),
        near("with reserves the video has its frame-rate", 24, reserves, "fps"),
        judged(
            "with reserves it follows 24 frames a second closely",
            "closely",
            f"at most {swing:.1f} fps away",
            swing <= 2.4,
            "every half-second average within a tenth of 24, about one frame",
        ),
    ]


FIGURES = (
    Figure(
        "timegraph/fig11",
        "The widget beside five bombs, over time",
        "Reserves for the bombs keep the widget's frame-rate up and stable.",
        _fig11_variants,
        _fig11_claims,
        lambda results: over_time(results, ["widget"]),
    ),
    Figure(
        "timegraph/fig12",
        "Three widgets beside each other, over time",
        "Priorities put equal programs in order, reserves separate them.",
        _fig12_variants,
        _fig12_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "timegraph/fig13",
        "A video beside five bombs, over time",
        "With reserves the video follows its 24 frames a second.",
        _fig13_variants,
        _fig13_claims,
        lambda results: over_time(results, ["mplayer"]),
    ),
)
