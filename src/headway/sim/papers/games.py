"""TimeGraph §6.1: games beside a widget and beside bombs (Figures 7 to 10)."""

from __future__ import annotations

from itertools import pairwise

from headway.sim.papers.claims import (
    Claim,
    at_least,
    at_most,
    between,
    judged,
    near,
    percent,
    shown,
)
from headway.sim.papers.figure import Curve, Figure, Plot, bars
from headway.sim.papers.results import Results, Scenario
from headway.sim.papers.workloads import (
    BACKDROP,
    FOREGROUND,
    GAMES,
    TIMEGRAPH,
    WIDGET,
    Reserve,
    Task,
    bombs,
    drawing,
    reserve,
    scenario,
    x_server,
)

SECONDS = 5
TITLES = {key: game.title for key, game in GAMES.items()}
MODES = {
    "unmanaged": "no manager",
    "priority": "priorities (HT)",
    "pe": "HT and a PE reserve",
    "ae": "HT and an AE reserve",
}
CAP = ("2.5ms", "25ms")
"""A tenth of the GPU for what competes (§6.1)."""


def _one_cap(mode: str) -> Reserve | None:
    return reserve(mode, *CAP) if mode in ("pe", "ae") else None


def _five_caps(mode: str) -> Reserve | None:
    if mode == "shared":
        return reserve("pe", *CAP, shared="bombs")
    return reserve(mode, "0.5ms", "25ms") if mode in ("pe", "ae") else None


def _beside(game: str, mode: str, rivals: list[Task]) -> Scenario:
    """A game at high priority under HT, the X server above it under PRT (§6.1), and its rivals."""
    managed = mode != "unmanaged"
    tasks = [
        x_server(TIMEGRAPH, "prt" if managed else "fifo"),
        drawing(TIMEGRAPH, "game", GAMES[game], "ht" if managed else "fifo", FOREGROUND),
        *rivals,
    ]
    return scenario(TIMEGRAPH, tasks, seconds=SECONDS)


def _rival_policy(mode: str) -> str:
    return "fifo" if mode == "unmanaged" else "prt"


def beside_widget(game: str, mode: str) -> Scenario:
    """A variant of Figure 7."""
    policy = _rival_policy(mode)
    widget = drawing(TIMEGRAPH, "widget", WIDGET, policy, BACKDROP, reserved=_one_cap(mode))
    return _beside(game, mode, [widget])


def beside_bomb(game: str, mode: str) -> Scenario:
    """A variant of Figure 8."""
    return _beside(game, mode, bombs(1, _rival_policy(mode), reserved=_one_cap(mode)))


def beside_five_bombs(game: str, mode: str) -> Scenario:
    """A variant of Figure 9."""
    return _beside(game, mode, bombs(5, _rival_policy(mode), reserved=_five_caps(mode)))


def game_rates(results: Results, series: str) -> list[float]:
    return [results[f"{game}-{series}"].fps("game") for game in GAMES]


def _pairwise(results: Results, series: str, base: str) -> list[float]:
    """By how many percent each game is faster in one series than in another."""
    both = zip(game_rates(results, series), game_rates(results, base), strict=True)
    return [percent(ours, theirs) for ours, theirs in both]


# -- Figure 7 ------------------------------------------------------------------------------------


def _fig7_variants() -> dict[str, Scenario]:
    return {f"{game}-{mode}": beside_widget(game, mode) for game in GAMES for mode in MODES}


def _fig7_claims(results: Results) -> list[Claim]:
    gains = _pairwise(results, "priority", "unmanaged")
    stated = dict(zip(GAMES, (11.0, 27.0, 22.0, 2.0), strict=True))
    claims = [
        near(f"priorities make {TITLES[game]} beside the widget faster", expected, gain, "%")
        for (game, expected), gain in zip(stated.items(), gains, strict=True)
    ]
    pe, ae = (_pairwise(results, mode, "priority") for mode in ("pe", "ae"))
    ahead = all(a >= p for a, p in zip(ae, pe, strict=True))
    return [
        *claims,
        between("a PE reserve for the widget adds to that", 2, 21, pe, "%"),
        between("an AE reserve for the widget adds to priorities alone", 4, 36, ae, "%"),
        judged(
            "AE leaves the games more than PE does",
            "AE above PE",
            f"AE {shown(ae, '%')}, PE {shown(pe, '%')}",
            ahead,
            "no game slower under AE than under PE",
        ),
    ]


# -- Figure 8 ------------------------------------------------------------------------------------


def _fig8_variants() -> dict[str, Scenario]:
    variants = {f"{game}-{mode}": beside_bomb(game, mode) for game in GAMES for mode in MODES}
    for game in GAMES:
        for mode in ("priority", "pe", "ae"):
            variants[f"{game}-widget-{mode}"] = beside_widget(game, mode)
    return variants


def _fig8_claims(results: Results) -> list[Claim]:
    ratios = [
        ours / theirs
        for ours, theirs in zip(
            game_rates(results, "priority"), game_rates(results, "unmanaged"), strict=True
        )
    ]
    losses = {
        mode: [-gain for gain in _pairwise(results, mode, f"widget-{mode}")]
        for mode in ("priority", "pe", "ae")
    }
    over_pe = _pairwise(results, "ae", "pe")
    return [
        between("beside one bomb, priorities make the games faster", 3, 6, ratios, "x"),
        between(
            "with priorities alone they lose against the widget's company",
            24,
            52,
            losses["priority"],
            "%",
        ),
        at_most("a PE reserve for the bomb limits that loss", 3, losses["pe"], "%"),
        at_most("an AE reserve for the bomb limits that loss", 3, losses["ae"], "%"),
        judged(
            "AE improves on PE by up to 5 %",
            "up to 5 %",
            shown(over_pe, "%"),
            all(gain <= 5 for gain in over_pe) and sum(over_pe) > 0,
            "none above 5 %, and better on average",
        ),
    ]


# -- Figure 9 ------------------------------------------------------------------------------------

FIVE_MODES = {**MODES, "shared": "HT and one shared PE reserve"}
UNRESPONSIVE_FPS = 5.0


def _fig9_variants() -> dict[str, Scenario]:
    variants = {f"{g}-{mode}": beside_five_bombs(g, mode) for g in GAMES for mode in FIVE_MODES}
    for game in GAMES:
        variants[f"{game}-one-priority"] = beside_bomb(game, "priority")
        for mode in ("pe", "ae"):
            variants[f"{game}-widget-{mode}"] = beside_widget(game, mode)
    return variants


def _fig9_claims(results: Results) -> list[Claim]:
    """What priorities leave is measured against one bomb (less than one bomb's 24-52 % would make
    no sense otherwise), what reserves leave against the capped widget, "similar to Figure 8"."""
    unmanaged = game_rates(results, "unmanaged")
    impact = [-gain for gain in _pairwise(results, "priority", "one-priority")]
    capped = {
        mode: [-gain for gain in _pairwise(results, mode, f"widget-{base}")]
        for mode, base in (("pe", "pe"), ("ae", "ae"), ("shared", "pe"))
    }
    shared = _pairwise(results, "shared", "pe")
    return [
        judged(
            "without a manager five bombs leave the games nearly unresponsive",
            "nearly unresponsive",
            shown(unmanaged, "fps"),
            all(fps < UNRESPONSIVE_FPS for fps in unmanaged),
            f"all below {UNRESPONSIVE_FPS:g} frames a second",
        ),
        between(
            "with priorities, what four more bombs cost the games",
            7,
            20,
            impact,
            "%",
            otherwise=(
                "one bomb fills every gap that a game leaves the GPU, so four more change nothing; "
                "what else they cost, such as their load on the CPUs, is not simulated"
            ),
        ),
        at_most("with PE reserves of 0.5 ms every 25 ms: nearly nothing", 3, capped["pe"], "%"),
        at_most("with AE reserves of 0.5 ms every 25 ms: nearly nothing", 3, capped["ae"], "%"),
        at_most("with one shared reserve of 2.5 ms: nearly nothing", 3, capped["shared"], "%"),
        judged(
            "the shared reserve is slightly better than five of their own",
            "slightly better",
            shown(shared, "%"),
            0 < sum(shared) / len(shared) <= 5,
            "better on average, by no more than 5 %",
        ),
    ]


# -- Figure 10 -----------------------------------------------------------------------------------

SHARES = (10, 20, 30, 40, 50, 60, 70, 80)
"""Percent of the GPU for the game; the widget has the rest of 90."""
GOOD_SHARES = (60, 70, 80)


def regulated(share: int, kind: str) -> Scenario:
    """A variant of Figure 10. Reserves work under PRT (§5); the period is Figure 7's."""

    def part(percent_of_gpu: int, policy: str) -> Reserve:
        return reserve(policy, f"{percent_of_gpu * 0.25:g}ms", "25ms")

    game = drawing(
        TIMEGRAPH, "game", GAMES["openarena"], "prt", FOREGROUND, reserved=part(share, "pe")
    )
    widget = drawing(TIMEGRAPH, "widget", WIDGET, "prt", BACKDROP, reserved=part(90 - share, kind))
    return scenario(TIMEGRAPH, [x_server(TIMEGRAPH), game, widget], seconds=SECONDS)


def _fig10_variants() -> dict[str, Scenario]:
    return {f"{kind}-{share}": regulated(share, kind) for kind in ("pe", "ae") for share in SHARES}


def _fig10_claims(results: Results) -> list[Claim]:
    def rates(kind: str, task: str, shares: tuple[int, ...] = SHARES) -> list[float]:
        return [results[f"{kind}-{share}"].fps(task) for share in shares]

    def rises(values: list[float]) -> bool:
        steps = pairwise(values)
        return all(b >= a * 0.98 for a, b in steps) and values[-1] > 1.5 * values[0]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    follows = [rises(rates(kind, "game")) for kind in ("pe", "ae")]
    follows += [rises(rates(kind, "widget")[::-1]) for kind in ("pe", "ae")]
    game = percent(mean(rates("ae", "game")), mean(rates("pe", "game")))
    widget = percent(mean(rates("ae", "widget")), mean(rates("pe", "widget")))
    return [
        judged(
            "frame-rates follow the sizes of the reserves",
            "regulated by reserve size",
            f"game {shown([rates('pe', 'game')[0], rates('pe', 'game')[-1]], 'fps')}, "
            f"widget {shown([rates('pe', 'widget')[-1], rates('pe', 'widget')[0]], 'fps')}",
            all(follows),
            "each rises with its reserve, by half or more over the whole range",
        ),
        at_least(
            "with 60-80 % the game is acceptable",
            25,
            [*rates("pe", "game", GOOD_SHARES), *rates("ae", "game", GOOD_SHARES)],
            "fps",
        ),
        at_least(
            "with 10-30 % the widget is acceptable",
            25,
            [*rates("pe", "widget", GOOD_SHARES), *rates("ae", "widget", GOOD_SHARES)],
            "fps",
        ),
        judged(
            "AE for the widget helps the game a little and costs the widget something",
            "game slightly up, widget down",
            f"game {game:+.1f} %, widget {widget:+.1f} %",
            game >= 0 and widget < 0,
            "on average over the sizes, the game not slower and the widget slower",
        ),
    ]


def _fig10_plot(results: Results) -> Plot:
    curves = [
        Curve(
            f"{task}, widget under {kind.upper()}",
            [results[f"{kind}-{share}"].fps(task) for share in SHARES],
            [float(share) for share in SHARES],
        )
        for kind in ("pe", "ae")
        for task in ("game", "widget")
    ]
    return Plot("lines", "the game's reserve, % of the GPU", "frames per second", curves)


FIGURES = (
    Figure(
        "timegraph/fig7",
        "Games beside the Engine widget",
        "Priorities free the games from the widget, a reserve for the widget more so.",
        _fig7_variants,
        _fig7_claims,
        lambda results: bars(results, TITLES, MODES, "game"),
    ),
    Figure(
        "timegraph/fig8",
        "Games beside one Clearspd bomb",
        "Priorities keep a bomb from stopping a game; a reserve for the bomb does the rest.",
        _fig8_variants,
        _fig8_claims,
        lambda results: bars(results, TITLES, MODES, "game"),
    ),
    Figure(
        "timegraph/fig9",
        "Games beside five Clearspd bombs",
        "Five bombs stop a game without a manager and hardly matter with reserves.",
        _fig9_variants,
        _fig9_claims,
        lambda results: bars(results, TITLES, FIVE_MODES, "game"),
    ),
    Figure(
        "timegraph/fig10",
        "OpenArena and the widget with reserves of different sizes",
        "The size of a reserve sets the frame-rate.",
        _fig10_variants,
        _fig10_claims,
        _fig10_plot,
    ),
)
