"""PIX/RIX §2 and §7: widgets that share the GPU with the X server (Figures 1-3 and 12-16)."""

from __future__ import annotations

from itertools import pairwise

from headway.sim.papers.claims import Claim, between, judged, near, percent, shown
from headway.sim.papers.figure import Figure, over_time
from headway.sim.papers.results import Results, Scenario, VariantResult
from headway.sim.papers.workloads import (
    FOREGROUND,
    GEARS,
    PIX_RIX,
    PIX_VIDEO,
    PIX_VIDEO_AHEAD,
    PIX_WIDGET,
    X_HIGH,
    Reserve,
    drawing,
    reserve,
    scenario,
    x_server,
)

SECONDS = 8
ENGINES = ("engine1", "engine2", "engine3")
X_LOW = 1
"""Below the widgets: the default of §7."""
GEARS_PRIORITY = 0
VIDEO_PRIORITY = 6
"""A person watches it while the widgets run in the background (§7.2)."""

_SMALL = (
    "the frame-rates before and after are near the paper's, their difference is not: what a program"
    " loses elsewhere, such as on its CPU, is not simulated"
)

SAME = (("5ms", "20ms"), ("5ms", "20ms"), ("5ms", "20ms"))
DIFFERENT = (("5ms", "10ms"), ("5ms", "20ms"), ("5ms", "40ms"))

_STARVED = (
    "widgets 1 and 2 use nearly all of the GPU, so widget 3 hardly gets a frame either way; the "
    "time that Gears takes comes out of what the other two leave"
)


def desktop(
    count: int = 3,
    *,
    x: int = X_LOW,
    pix: bool = False,
    rix: bool = False,
    gears: bool = False,
    video: bool = False,
    sizes: tuple[tuple[str, str], ...] | None = None,
    x_size: tuple[str, str] | None = None,
) -> Scenario:
    """Widgets in descending priority, and who else is there. PRT for everybody (§3)."""

    def pe(size: tuple[str, str] | None) -> Reserve | None:
        return None if size is None else reserve("pe", *size)

    tasks = [x_server(PIX_RIX, priority=x, reserved=pe(x_size), pix=pix, rix=rix)]
    for place, name in enumerate(ENGINES[:count]):
        own = pe(sizes[place] if sizes is not None else None)
        level = FOREGROUND - place
        tasks.append(drawing(PIX_RIX, name, PIX_WIDGET, "prt", level, reserved=own))
    if gears:
        tasks.append(drawing(PIX_RIX, "gears", GEARS, "prt", GEARS_PRIORITY))
    if video:
        ahead = PIX_VIDEO_AHEAD
        player = drawing(PIX_RIX, "mplayer", PIX_VIDEO, "prt", VIDEO_PRIORITY, ahead=ahead)
        tasks.append(player)
    return scenario(PIX_RIX, tasks, seconds=SECONDS)


def _fps(result: VariantResult, count: int = 3) -> list[float]:
    return [result.fps(name) for name in ENGINES[:count]]


def _in_order(fps: list[float]) -> bool:
    return all(a > 1.1 * b for a, b in pairwise(fps))


# -- Figures 1 to 3: what the X server's priority does -------------------------------------------

_X_HIGH, _X_HIGH_GEARS, _X_LOW_GEARS = "x high", "x high, gears", "x low, gears"


def _fig1_variants() -> dict[str, Scenario]:
    return {_X_HIGH: desktop(x=X_HIGH)}


def _fig1_claims(results: Results) -> list[Claim]:
    fps = _fps(results[_X_HIGH])
    return [
        judged(
            "with the X server above them the widgets are in order",
            "correctly prioritized",
            shown(fps, "fps"),
            _in_order(fps),
            "each a tenth or more above the next",
        )
    ]


def _fig2_variants() -> dict[str, Scenario]:
    return _fig1_variants() | {_X_HIGH_GEARS: desktop(x=X_HIGH, gears=True)}


def _fig2_claims(results: Results) -> list[Claim]:
    before, after = _fps(results[_X_HIGH]), _fps(results[_X_HIGH_GEARS])
    return [
        judged(
            f"Gears slows widget {place + 1} down",
            "degraded",
            f"{shown(after[place], 'fps')} after {shown(before[place], 'fps')}",
            after[place] < 0.95 * before[place],
            "at least 5 % slower",
        )
        for place in range(2)
    ] + [
        judged(
            "widget 3 is slightly faster beside Gears",
            "slightly improved",
            f"{shown(after[2], 'fps')} after {shown(before[2], 'fps')}",
            after[2] > before[2],
            "faster",
            otherwise=_STARVED,
        )
    ]


def _fig3_variants() -> dict[str, Scenario]:
    return {_X_HIGH_GEARS: desktop(x=X_HIGH, gears=True), _X_LOW_GEARS: desktop(gears=True)}


def _fig3_claims(results: Results) -> list[Claim]:
    high, low = _fps(results[_X_HIGH_GEARS]), _fps(results[_X_LOW_GEARS])
    return [
        judged(
            "with the X server below them widget 3 gets in the way of widget 1",
            "prioritization jeopardized",
            f"{shown(low, 'fps')} after {shown(high, 'fps')}",
            low[0] < high[0] and low[2] > high[2],
            "widget 1 slower and widget 3 faster than with the X server above them",
        )
    ]


# -- Figures 12 to 14: priority inheritance ------------------------------------------------------

_WITHOUT, _WITH = "without PIX", "with PIX"


def _fig12_variants() -> dict[str, Scenario]:
    return {_WITHOUT: desktop(2), _WITH: desktop(2, pix=True)}


def _fig12_claims(results: Results) -> list[Claim]:
    without, with_pix = (results[name].fps("engine1") for name in (_WITHOUT, _WITH))
    return [
        near(
            "what PIX adds to widget 1 of two",
            13,
            percent(with_pix, without),
            "%",
            otherwise=_SMALL,
        ),
        judged(
            "PIX speeds widget 1 up",
            "138 to 156 fps, +13 %",
            f"{percent(with_pix, without):+.0f} %",
            with_pix > without,
            "faster with PIX",
        ),
    ]


def _fig13_variants() -> dict[str, Scenario]:
    return {_WITHOUT: desktop(), _WITH: desktop(pix=True)}


def _fig13_claims(results: Results) -> list[Claim]:
    without, with_pix = _fps(results[_WITHOUT]), _fps(results[_WITH])
    return [
        near(
            "what PIX adds to widget 1 of three",
            53,
            percent(with_pix[0], without[0]),
            "%",
            otherwise=_SMALL,
        ),
        near(
            "what PIX adds to widget 2 of three",
            28,
            percent(with_pix[1], without[1]),
            "%",
            otherwise=_SMALL,
        ),
        judged(
            "PIX puts the three in order",
            "correctly prioritized",
            f"{shown(with_pix, 'fps')} after {shown(without, 'fps')}",
            _in_order(with_pix) and with_pix[0] > without[0] and with_pix[1] > without[1],
            "each a tenth or more above the next, widgets 1 and 2 faster than without",
        ),
    ]


def _fig14_variants() -> dict[str, Scenario]:
    return {
        "pix": desktop(pix=True),
        "pix, gears": desktop(pix=True, gears=True),
        **_fig2_variants(),
    }


def _fig14_claims(results: Results) -> list[Claim]:
    before, after = _fps(results["pix"]), _fps(results["pix, gears"])
    losses = [b - a for b, a in zip(before, after, strict=True)]
    high = zip(_fps(results[_X_HIGH]), _fps(results[_X_HIGH_GEARS]), strict=True)
    high_loss = sum(b - a for b, a in high)
    return [
        between("what Gears costs widgets 1 and 2 under PIX", 20, 30, losses[:2], "fps"),
        judged(
            "widget 3 is slightly faster beside Gears",
            "slightly higher",
            f"{shown(after[2], 'fps')} after {shown(before[2], 'fps')}",
            after[2] > before[2],
            "faster",
            otherwise=_STARVED,
        ),
        judged(
            "with PIX Gears costs less than with the X server on top",
            "loss reduced",
            f"{shown(sum(losses), 'fps')} in all, {shown(high_loss, 'fps')} there",
            sum(losses) < high_loss,
            "the sum of the three losses is smaller than in Figure 2",
        ),
    ]


# -- Figures 15 and 16, and the video: reserve inheritance ---------------------------------------

_NO_RIX, _RIX = "PIX only", "PIX and RIX"


def _fig15_variants() -> dict[str, Scenario]:
    size = ("5ms", "20ms")
    return {
        name: desktop(pix=True, rix=rix, gears=True, sizes=SAME, x_size=size)
        for name, rix in ((_NO_RIX, False), (_RIX, True))
    }


def _fig15_claims(results: Results) -> list[Claim]:
    without, with_rix = _fps(results[_NO_RIX]), _fps(results[_RIX])
    rich = (
        "the X server's own reserve is usually full again at the start of a period, so equation "
        "(1) returns most of what widget 1, the first to ask, has lent; in nearly every second "
        "period that is enough for another frame"
    )
    return [
        judged(
            "without RIX widget 1 is faster than its period allows, widget 3 slower",
            "above 50 and below 50 fps",
            f"{shown([without[0], without[2]], 'fps')}",
            without[0] > 50 and without[2] < 50,
            "above and below 50 frames a second",
        ),
        *(
            near(f"widget {place + 1} with RIX", 50, with_rix[place], "fps", otherwise=rich)
            for place in range(3)
        ),
        judged(
            "RIX brings the three together",
            "well isolated",
            f"{shown(with_rix, 'fps')} after {shown(without, 'fps')}",
            min(with_rix) / max(with_rix) > min(without) / max(without),
            "the slowest nearer to the fastest than without RIX",
        ),
    ]


def _fig16_variants() -> dict[str, Scenario]:
    return {
        name: desktop(pix=True, rix=rix, gears=True, sizes=DIFFERENT, x_size=("1ms", "10ms"))
        for name, rix in ((_NO_RIX, False), (_RIX, True))
    }


def _fig16_claims(results: Results) -> list[Claim]:
    without, with_rix = _fps(results[_NO_RIX]), _fps(results[_RIX])
    expected = (100, 50, 25)
    off = [abs(ours / theirs - 1) for ours, theirs in zip(without, expected, strict=True)]
    return [
        judged(
            "without RIX the X server's small reserve is the bottleneck",
            "isolation affected",
            shown(without, "fps"),
            sum(o > 0.2 for o in off) >= 2,
            "two or more of the widgets a fifth or more away from 100, 50 and 25",
        ),
        *(
            near(f"widget {place + 1} with RIX", expected[place], with_rix[place], "fps")
            for place in range(3)
        ),
    ]


def _mplayer_variants() -> dict[str, Scenario]:
    return {
        name: desktop(pix=True, rix=rix, video=True, sizes=DIFFERENT, x_size=("1ms", "10ms"))
        for name, rix in ((_NO_RIX, False), (_RIX, True))
    }


def _mplayer_claims(results: Results) -> list[Claim]:
    gain = percent(results[_RIX].fps("mplayer"), results[_NO_RIX].fps("mplayer"))
    return [near("what RIX adds to the video", 88, gain, "%", otherwise=_SMALL)]


FIGURES = (
    Figure(
        "pix-rix/fig1",
        "Three widgets below the X server",
        "Priorities work while only the widgets' own frames are blitted.",
        _fig1_variants,
        _fig1_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/fig2",
        "Three widgets below the X server, beside an X client",
        "An X client slows programs down that are more important than it.",
        _fig2_variants,
        _fig2_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/fig3",
        "Three widgets above the X server, beside an X client",
        "With the X server below them, unimportant widgets delay important ones.",
        _fig3_variants,
        _fig3_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/fig12",
        "Two widgets without and with PIX",
        "Priority inheritance speeds the important one up.",
        _fig12_variants,
        _fig12_claims,
        lambda results: over_time(results, ENGINES[:2]),
    ),
    Figure(
        "pix-rix/fig13",
        "Three widgets without and with PIX",
        "Priority inheritance puts three widgets in order.",
        _fig13_variants,
        _fig13_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/fig14",
        "Three widgets under PIX beside an X client",
        "An X client costs less than when the X server is above everything.",
        _fig14_variants,
        _fig14_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/fig15",
        "Three widgets with reserves of one size, without and with RIX",
        "Reserve inheritance gives each the frame-rate of its period.",
        _fig15_variants,
        _fig15_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/fig16",
        "Three widgets with reserves of different sizes, without and with RIX",
        "Reserve inheritance takes the X server's small reserve out of the way.",
        _fig16_variants,
        _fig16_claims,
        lambda results: over_time(results, ENGINES),
    ),
    Figure(
        "pix-rix/mplayer",
        "A video through the X server, without and with RIX",
        "Reserve inheritance serves programs that draw through the X server, too.",
        _mplayer_variants,
        _mplayer_claims,
        lambda results: over_time(results, ["mplayer"]),
    ),
)
