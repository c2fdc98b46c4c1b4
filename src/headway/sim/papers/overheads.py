"""TimeGraph §6.3: what managing costs, and what ticks cost (Figures 15 and 16)."""

from __future__ import annotations

from headway.sim.papers.claims import Claim, between, judged, loss, near, shown
from headway.sim.papers.figure import Curve, Figure, Plot, bars
from headway.sim.papers.games import SECONDS, TITLES, game_rates
from headway.sim.papers.results import Results, Scenario
from headway.sim.papers.workloads import (
    FOREGROUND,
    GAMES,
    TIMEGRAPH,
    VIEWPERF_US,
    drawing,
    duration,
    scenario,
    task,
    x_server,
)

# -- Figure 15 -----------------------------------------------------------------------------------

OVERHEADS = {
    "none": "no manager",
    "ht": "HT for both",
    "mixed": "HT for the game, PRT for the X server",
    "prt": "PRT for both",
}
_POLICIES = {
    "none": ("fifo", "fifo"),
    "ht": ("ht", "ht"),
    "mixed": ("ht", "prt"),
    "prt": ("prt", "prt"),
}


def alone(game: str, mode: str) -> Scenario:
    """A variant of Figure 15: a game and the X server, nobody else."""
    game_policy, x_policy = _POLICIES[mode]
    tasks = [
        x_server(TIMEGRAPH, x_policy),
        drawing(TIMEGRAPH, "game", GAMES[game], game_policy, FOREGROUND),
    ]
    return scenario(TIMEGRAPH, tasks, seconds=SECONDS)


def _fig15_variants() -> dict[str, Scenario]:
    return {f"{game}-{mode}": alone(game, mode) for game in GAMES for mode in OVERHEADS}


def _fig15_claims(results: Results) -> list[Claim]:
    cost = {
        mode: [
            loss(ours, base)
            for ours, base in zip(
                game_rates(results, mode), game_rates(results, "none"), strict=True
            )
        ]
        for mode in ("ht", "mixed", "prt")
    }
    mean_ht = sum(cost["ht"]) / len(GAMES)
    dearer = all(m > h for m, h in zip(cost["mixed"], cost["ht"], strict=True))
    return [
        near("HT for the game and the X server costs, on average", 4, mean_ht, "%"),
        judged(
            "PRT for the X server costs more than HT for it",
            "more",
            f"{shown(cost['mixed'], '%')} after {shown(cost['ht'], '%')}",
            dearer,
            "more for every game",
        ),
        near(
            "PRT for the X server costs up to",
            10,
            max(cost["mixed"]),
            "%",
            otherwise=(
                "PRT adds one decision per piece of a blit, and the X server's priority keeps the "
                "game from getting in between, so that is all it adds"
            ),
        ),
        between("PRT for both costs", 17, 28, cost["prt"], "%"),
    ]


# -- Figure 16 -----------------------------------------------------------------------------------


def _fig16_variants() -> dict[str, Scenario]:
    variants = {}
    for test, cost_us in VIEWPERF_US.items():
        for policy in ("prt", "germ"):
            work = {"greedy": {"cost": duration(cost_us), "depth": 2}}
            tasks = [task("viewperf", policy, FOREGROUND, work)]
            variants[f"{test}-{policy}"] = scenario(TIMEGRAPH, tasks, seconds=1)
    return variants


def _fig16_ratios(results: Results) -> list[float]:
    return [
        results[f"{test}-prt"].groups_per_s("viewperf")
        / results[f"{test}-germ"].groups_per_s("viewperf")
        for test in VIEWPERF_US
    ]


def _fig16_claims(results: Results) -> list[Claim]:
    ratios = _fig16_ratios(results)
    inside = sum(15 <= ratio <= 30 for ratio in ratios)
    return [
        judged(
            "an event-driven manager is 15-30 times as fast as one that ticks every ms",
            "15-30x for most tests",
            shown(ratios, "x"),
            2 * inside > len(ratios),
            "more than half of the tests inside the paper's range",
            "the ratio is the tick over the time of a group and its decision, so it is that high"
            " only for groups of about 20 us or less; the tests' group sizes are not given, and"
            " ours double from test to test",
        ),
        judged(
            "the event-driven manager has the better score in every test",
            "better",
            shown(ratios, "x"),
            min(ratios) > 1.05,
            "at least 5 % better",
        ),
    ]


def _fig16_plot(results: Results) -> Plot:
    curves = [
        Curve(label, [results[f"{test}-{key}"].groups_per_s("viewperf") for test in VIEWPERF_US])
        for key, label in (("prt", "event-driven (PRT)"), ("germ", "tick-driven (GERM)"))
    ]
    return Plot("bars", "", "groups per second", curves, list(VIEWPERF_US))


FIGURES = (
    Figure(
        "timegraph/fig15",
        "What managing costs a game that is alone",
        "HT is nearly free, PRT for everything is not.",
        _fig15_variants,
        _fig15_claims,
        lambda results: bars(results, TITLES, OVERHEADS, "game"),
    ),
    Figure(
        "timegraph/fig16",
        "Event-driven against tick-driven management",
        "A manager that acts only at ticks starves programs that send many small groups.",
        _fig16_variants,
        _fig16_claims,
        _fig16_plot,
    ),
)
