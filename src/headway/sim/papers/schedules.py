"""TimeGraph §4 and §5: the worked schedules (Figures 5 and 6).

They are small enough to follow by hand, and their claims are about what goes before what.
"""

from __future__ import annotations

from headway.sim.papers.claims import Claim, judged
from headway.sim.papers.figure import Curve, Figure, Plot
from headway.sim.papers.results import Results, Scenario, Story
from headway.sim.papers.workloads import reserve, task

# -- TimeGraph Figure 5: three priorities under PRT and HT ---------------------------------------

_ARRIVALS = {
    "prt": {"hp": (2, 9), "mp": (0, 1), "lp": (3, 10)},
    "ht": {"hp": (2, 7), "mp": (0, 1), "lp": (3, 10)},
}
"""In ms. HP's second group comes while its first executes, which is earlier under HT."""
_COST = {"hp": 2, "mp": 3, "lp": 2}


def _fig5_variants() -> dict[str, Scenario]:
    variants = {}
    for policy, arrivals in _ARRIVALS.items():
        tasks = [
            task(name, policy, 3 - place, {"groups": _groups(times, _COST[name])})
            for place, (name, times) in enumerate(arrivals.items())
        ]
        # A tenth of a millisecond makes the decisions of the figure visible.
        variants[policy] = {"device": {"decide": "100us"}, "task": tasks}
    return variants


def _groups(times: tuple[int, ...], *costs: int) -> list[dict[str, str]]:
    """Groups that are due at these times; one cost serves them all."""
    every = costs if len(costs) == len(times) else costs * len(times)
    return [{"at": f"{at}ms", "cost": f"{c}ms"} for at, c in zip(times, every, strict=True)]


def _order(text: str, expected: str, story: Story) -> Claim:
    ours = " ".join(story.order)
    return judged(text, expected, ours, ours == expected, "exactly this order")


def _fig5_claims(results: Results) -> list[Claim]:
    prt, ht = results["prt"].story, results["ht"].story
    waits = {
        name: story.of("hp")[0].started_ms - story.of("hp")[0].submitted_ms
        for name, story in (("prt", prt), ("ht", ht))
    }
    own = [story.idle_ms("mp") for story in (ht, prt)]
    return [
        _order("PRT dispatches by priority at every boundary", "mp0 hp0 mp1 lp0 hp1 lp1", prt),
        _order("HT lets a task go on with its next group", "mp0 mp1 hp0 hp1 lp0 lp1", ht),
        judged(
            "HT keeps HP waiting for longer",
            "longer under HT",
            f"{waits['ht']:.1f} ms, under PRT {waits['prt']:.1f} ms",
            waits["ht"] > waits["prt"],
            "longer",
        ),
        judged(
            "MP's groups follow each other without idle time under HT, not under PRT",
            "no idle time",
            f"{own[0]:.1f} ms idle, under PRT {own[1]:.1f} ms",
            own[0] == 0 and own[1] > 0,
            "none under HT, some at each boundary under PRT",
        ),
    ]


def _waits_plot(results: Results) -> Plot:
    """How long each group waited to start."""
    groups = sorted(next(iter(results.values())).story.order)
    curves = []
    for name, result in results.items():
        wait = {f"{s.task}{s.index}": s.started_ms - s.submitted_ms for s in result.story.spans}
        curves.append(Curve(name, [wait[group] for group in groups]))
    return Plot("bars", "group", "wait in ms", curves, groups)


# -- TimeGraph Figure 6: four groups of one task under PE and AE ---------------------------------


def _fig6_variants() -> dict[str, Scenario]:
    # One set of groups for both, as the figure draws it.
    pe, ae = (
        task("a", "prt", 1, {"groups": _groups((0, 2, 12, 13), 2, 4, 2, 2)}) for _ in range(2)
    )
    pe["reserve"] = reserve("pe", "3ms", "10ms")
    # Figure 6 assumes perfect prediction.
    ae["reserve"] = reserve("ae", "3ms", "10ms") | {"predict": "exact"}
    return {"pe": {"task": [pe]}, "ae": {"task": [ae]}}


def _fig6_claims(results: Results) -> list[Claim]:
    pe, ae = results["pe"].story.spans, results["ae"].story.spans
    period_ms = 10.0

    def started(span_ms: float) -> str:
        return f"starts at {span_ms:g} ms"

    return [
        judged(
            "PE: the second group goes at once and overruns the budget",
            "at once",
            started(pe[1].started_ms),
            pe[1].started_ms == pe[1].submitted_ms,
            "starts when it is submitted, though it costs more than is left",
        ),
        judged(
            "PE: the third waits for the replenishment though the GPU is idle",
            "at the replenishment",
            started(pe[2].started_ms),
            pe[2].started_ms % period_ms == 0 and pe[2].started_ms > pe[2].submitted_ms,
            "submitted to an idle GPU, starts at a multiple of 10 ms",
        ),
        judged(
            "PE: the fourth is blocked while the third executes, whatever the budget",
            "blocked",
            started(pe[3].started_ms),
            pe[3].submitted_ms < pe[2].finished_ms <= pe[3].started_ms,
            "submitted during the third, started after it",
        ),
        judged(
            "AE: the second waits until the budget is as large as its cost",
            "at the replenishment",
            started(ae[1].started_ms),
            ae[1].started_ms == period_ms > ae[1].submitted_ms,
            "submitted to an idle GPU, starts at 10 ms",
        ),
        judged(
            "AE: the fourth waits for a replenishment, too",
            "at a replenishment",
            started(ae[3].started_ms),
            ae[3].started_ms % period_ms == 0 and ae[3].started_ms > ae[2].finished_ms,
            "starts at a multiple of 10 ms, later than the third ends",
        ),
    ]


FIGURES = (
    Figure(
        "timegraph/fig5",
        "Three priorities under PRT and under HT",
        "PRT decides at every boundary; HT trades HP's response for throughput.",
        _fig5_variants,
        _fig5_claims,
        _waits_plot,
    ),
    Figure(
        "timegraph/fig6",
        "Four groups of one task under PE and under AE",
        "PE enforces after a group has run, AE before.",
        _fig6_variants,
        _fig6_claims,
        _waits_plot,
    ),
)
