"""PIX/RIX §4 and §5: how inversion comes about and how inheritance ends it (Figures 7 to 10).

One set of three tasks above the X server, small enough to follow by hand; the claims are about who
is delayed by whom.
"""

from __future__ import annotations

from itertools import pairwise

from headway.sim.papers.claims import Claim, judged
from headway.sim.papers.figure import Curve, Figure, Plot
from headway.sim.papers.results import Results, Scenario, Story
from headway.sim.papers.workloads import Task, reserve, task

_CLIENTS = {
    # name: priority, first group, groups, blit, reserve. Preemption at once, as the paper assumes
    # it, is approached by groups of half a millisecond.
    "hp": (3, "0ms", 6, "3ms", ("6ms", "20ms")),
    "mp": (2, "6.4ms", 6, "2ms", ("6ms", "20ms")),
    "lp": (1, "3.7ms", 6, "1.5ms", ("4ms", "20ms")),
}
_X_RESERVE = ("2ms", "10ms")
"""Too small for HP's blit of 3 ms."""
_REQUEST = {"hp": "Request #1", "mp": "Request #3", "lp": "Request #2"}


def _three(*, pix: bool, rix: bool = False, reserves: bool = False) -> Scenario:
    serves = {"order": "priority", "blit": "2ms", "groups": 4, "pix": pix, "rix": rix}
    x = task("x", "prt", 0, {"serves": serves})
    tasks: list[Task] = [x]
    if reserves:
        x["reserve"] = reserve("pe", *_X_RESERVE)
    for name, (priority, first, groups, blit, size) in _CLIENTS.items():
        frame = {
            "groups": groups,
            "cost": "500us",
            "cpu": "0ms",
            "prepare": first,
            "count": 1,
            "blit": blit,
        }
        own = reserve("pe", *size) if reserves else None
        tasks.append(task(name, "prt", priority, {"server": "x", "widget": frame}, reserved=own))
    return {"run": {"duration": "60ms"}, "task": tasks}


_INVERSION, _PIX, _SUSPENDED, _RIX = "X below", "PIX", "PIX, small X reserve", "PIX and RIX"


def _answers(story: Story) -> str:
    return ", ".join(f"{name} {at:g} ms" for name, at in story.shown_ms.items())


def _executed(story: Story, who: str, begin_ms: float, end_ms: float) -> float:
    """How long this task had the GPU within a stretch of time."""
    return sum(
        span.finished_ms - span.started_ms
        for span in story.of(who)
        if begin_ms <= span.started_ms and span.finished_ms <= end_ms
    )


def _fig7_variants() -> dict[str, Scenario]:
    return {_INVERSION: _three(pix=False)}


def _fig7_claims(results: Results) -> list[Claim]:
    story = results[_INVERSION].story
    rendered = story.of("hp")[-1].finished_ms
    answered = story.shown_ms["hp"]
    stolen = {name: _executed(story, name, rendered, answered) for name in ("lp", "mp")}
    whole = {name: _executed(story, name, 0, answered) for name in ("lp", "mp")}
    return [
        judged(
            "LP preempts the X server in the middle of HP's blit",
            "priority inversion",
            f"{stolen['lp']:g} ms of LP before the answer",
            story.of("x")[0].finished_ms <= story.of("lp")[0].started_ms < answered,
            "LP starts after the blit has begun and before it is done",
        ),
        judged(
            "HP is blocked until MP's whole frame is rendered",
            "blocked for long by MP",
            f"{stolen['mp']:g} ms of MP before the answer",
            stolen["mp"] == whole["mp"] == 3.0,
            "all of MP's 3 ms lie between HP's rendering and its answer",
        ),
        judged(
            "requests come in the order #1, #2, #3 and are answered HP, MP, LP",
            "hp lp mp; hp mp lp",
            f"{' '.join(story.asked)}; {' '.join(story.shown_ms)}",
            story.asked == ["hp", "lp", "mp"] and list(story.shown_ms) == ["hp", "mp", "lp"],
            "exactly these orders",
        ),
    ]


def _fig8_variants() -> dict[str, Scenario]:
    return {_INVERSION: _three(pix=False), _PIX: _three(pix=True)}


def _fig8_claims(results: Results) -> list[Claim]:
    before, after = results[_INVERSION].story, results[_PIX].story
    rendered = after.of("hp")[-1].finished_ms
    blit = [s for s in after.of("x") if s.finished_ms <= after.shown_ms["hp"]]
    lp_left = [s for s in after.of("lp") if s.started_ms >= after.shown_ms["mp"]]
    return [
        judged(
            "the X server blits HP's frame without being preempted",
            "not preempted",
            f"rendered {rendered:g} ms, answered {after.shown_ms['hp']:g} ms",
            after.shown_ms["hp"] - rendered == sum(s.finished_ms - s.started_ms for s in blit),
            "answered after exactly the time of the blit",
        ),
        judged(
            "the X server preempts LP to serve MP",
            "preempts LP",
            f"{len(lp_left)} groups of LP are left when MP is answered",
            bool(lp_left) and after.of("lp")[0].started_ms < after.shown_ms["mp"],
            "LP has begun before MP is answered and is not done then",
        ),
        judged(
            "HP and MP are answered earlier than without PIX, LP is not",
            "HP and MP improved",
            f"{_answers(after)}; without: {_answers(before)}",
            all(after.shown_ms[name] < before.shown_ms[name] for name in ("hp", "mp"))
            and after.shown_ms["lp"] >= before.shown_ms["lp"],
            "earlier, earlier, not earlier",
        ),
    ]


def _fig9_variants() -> dict[str, Scenario]:
    return {_PIX: _three(pix=True), _SUSPENDED: _three(pix=True, reserves=True)}


def _fig9_claims(results: Results) -> list[Claim]:
    free, story = results[_PIX].story, results[_SUSPENDED].story
    blit = [s for s in story.of("x") if s.finished_ms <= story.shown_ms["hp"]]
    gap = max((b.started_ms - a.finished_ms for a, b in pairwise(blit)), default=0)
    late = [name for name, at in story.shown_ms.items() if at > free.shown_ms[name]]
    return [
        judged(
            "the X server is suspended in the middle of HP's blit until its replenishment",
            "forced to suspend",
            f"{gap:g} ms, until {blit[-1].started_ms:g} ms",
            gap > 0 and 10.0 <= blit[-1].started_ms < 10.5,
            "a pause within the blit until 10 ms, when at most one group is executing",
        ),
        judged(
            "every request waits for it, though PIX is on",
            "all wait",
            f"{_answers(story)}; without reserves: {_answers(free)}",
            len(late) == len(_CLIENTS),
            "all three answered later than without reserves",
        ),
    ]


def _fig10_variants() -> dict[str, Scenario]:
    return {
        _SUSPENDED: _three(pix=True, reserves=True),
        _RIX: _three(pix=True, rix=True, reserves=True),
    }


def _fig10_claims(results: Results) -> list[Claim]:
    before, after = results[_SUSPENDED].story, results[_RIX].story
    rendered = after.of("hp")[-1].finished_ms
    blit = [s for s in after.of("x") if s.finished_ms <= after.shown_ms["hp"]]
    lent = {name: after.moved_ms(name, "x") for name in _CLIENTS}
    back = {name: after.moved_ms("x", name) for name in _CLIENTS}

    def budget(name: str) -> str:
        return f"{back[name]:g} of {lent[name]:g} ms"

    return [
        judged(
            "the X server serves Request #1 without being suspended",
            "not suspended",
            f"rendered {rendered:g} ms, answered {after.shown_ms['hp']:g} ms",
            after.shown_ms["hp"] - rendered == sum(s.finished_ms - s.started_ms for s in blit),
            "answered after exactly the time of the blit",
        ),
        judged(
            "every response is earlier than in Figure 9",
            "improved",
            f"{_answers(after)}; without RIX: {_answers(before)}",
            all(after.shown_ms[name] < before.shown_ms[name] for name in _CLIENTS),
            "all three earlier",
        ),
        judged(
            "HP gets a part of its budget back, by equation (1)",
            "a part",
            budget("hp"),
            0 < back["hp"] < lent["hp"],
            "more than nothing, less than it lent",
        ),
        judged(
            "MP gets all of it back: the X server was replenished in time",
            "the same amount",
            budget("mp"),
            back["mp"] == lent["mp"] > 0,
            "exactly what it lent",
        ),
        judged(
            "LP gets nothing back: serving it used up what it lent",
            "none",
            budget("lp"),
            back["lp"] == 0 < lent["lp"],
            "nothing",
        ),
    ]


def _answers_plot(results: Results) -> Plot:
    """When each request was answered."""
    curves = [
        Curve(name, [result.story.shown_ms[client] for client in _CLIENTS])
        for name, result in results.items()
    ]
    labels = [f"{name} ({_REQUEST[name]})" for name in _CLIENTS]
    return Plot("bars", "", "answered after ms", curves, labels)


FIGURES = (
    Figure(
        "pix-rix/fig7",
        "Priority inversion through the X server",
        "An important task waits for the X server, which waits for the unimportant ones.",
        _fig7_variants,
        _fig7_claims,
        _answers_plot,
    ),
    Figure(
        "pix-rix/fig8",
        "The same with PIX",
        "The X server runs at the priority of the task that it works for.",
        _fig8_variants,
        _fig8_claims,
        _answers_plot,
    ),
    Figure(
        "pix-rix/fig9",
        "Untimely enforcement of the X server's reserve",
        "An X server whose reserve is too small holds everybody up.",
        _fig9_variants,
        _fig9_claims,
        _answers_plot,
    ),
    Figure(
        "pix-rix/fig10",
        "The same with RIX",
        "The X server works on its clients' budgets and returns what it did not need.",
        _fig10_variants,
        _fig10_claims,
        _answers_plot,
    ),
)
