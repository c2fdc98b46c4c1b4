"""Figures 6 and 7, a controller's run, and controllers beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from headway.sim.cudamon.runs import Measured, Point
from headway.sim.cudamon.workloads import HIGH, LOW, RESTART, Scenario, controlled
from headway.sim.papers.claims import Claim, judged
from headway.sim.papers.figure import Curve, Plot

Results = Mapping[str, Measured]
REPORT = "aimd, a restart for each change"
DIRECT, BETTER = "aimd, no restart", "bisection, no restart"
FEW, FEW_BETTER = "aimd, few restarts", "bisection, few restarts"
SOON = 5
"""Periods within which misses are to end."""
MORE = 1.3
"""Times the report's throughput that the less important task is to have."""
POINTS = 1000
"""Of a curve in a picture."""


def variants() -> dict[str, Scenario]:
    """What Figures 6 and 7 show: the report's controller, as it was and without restarts."""
    return {
        REPORT: controlled("aimd", "30s", restart=RESTART, restarts="every"),
        DIRECT: controlled("aimd", "5s"),
        BETTER: controlled("bisection", "5s"),
    }


def all_variants() -> dict[str, Scenario]:
    """Every controller, with restarts as many as in the report, as few as Headway has, and none."""
    return {
        **variants(),
        "slowdown, no restart": controlled("slowdown", "5s"),
        FEW: controlled("aimd", "30s", restart=RESTART),
        FEW_BETTER: controlled("bisection", "30s", restart=RESTART),
    }


def _report(results: Results) -> str:
    """The report's controller, with as many restarts as there can be: a launcher makes few."""
    return REPORT if REPORT in results else FEW


# -- responses over time ---------------------------------------------------------------------------


def response_claims(results: Results) -> list[Claim]:
    report = results[_report(results)]
    high, low = report.tasks[HIGH], report.tasks[LOW]
    first = next((place for place, missed in enumerate(high.missed) if not missed), 0)
    after = high.missed[first:]
    again = sum(missed and not before for before, missed in pairwise(after))
    return [
        judged(
            "initially both kernels always miss their deadlines",
            "both miss",
            f"the first {first} jobs of the important one, and {low.missed[:2].count(True)} of the"
            " first 2 of the other",
            first >= 1 and all(low.missed[:2]),
            "the first jobs of both",
        ),
        judged(
            "then the important one meets its deadline",
            "meets it",
            f"{after.count(False)} of {len(after)} jobs after that",
            after.count(False) > 0.9 * len(after),
            "more than 90 % of its jobs after that",
        ),
        judged(
            "until it misses again, and this recurs",
            "recurs",
            f"{again} times in {report.seconds:.0f} s",
            again >= 2,
            "at least twice more",
        ),
    ]


def response_plot(results: Results) -> Plot:
    """As in the report: both kernels under its controller."""
    tasks = results[_report(results)].tasks
    curves = [_curve(who, _thinned(tasks[who].responses)) for who in (HIGH, LOW)]
    return Plot("lines", "seconds", "response, ms", curves)


def _curve(name: str, points: list[Point]) -> Curve:
    return Curve(name, [value for _, value in points], [at for at, _ in points])


def _thinned(points: list[Point]) -> list[Point]:
    """The largest of each few, so that no miss is left out of a picture."""
    step = max(1, len(points) // POINTS)
    groups = (points[place : place + step] for place in range(0, len(points), step))
    return [max(group, key=lambda point: point[1]) for group in groups]


# -- shares over time ------------------------------------------------------------------------------


def _shares(result: Measured) -> list[Point]:
    return result.tasks[LOW].shares


def _mean_share(result: Measured) -> float:
    ends = [*_shares(result)[1:], (result.seconds, 0.0)]
    parts = zip(_shares(result), ends, strict=True)
    return sum(share * (end - at) for (at, share), (end, _) in parts) / result.seconds


def share_rows(results: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        shares = [share for _, share in _shares(result)]
        span = (f"{min(shares):g} %", f"{max(shares):g} %", f"{_mean_share(result):.1f} %")
        rows.append((name, str(len(shares) - 1), *span))
    return rows


def _teeth(shares: list[float]) -> list[tuple[float, float]]:
    """From where to where the share fell, each time."""
    return [(before, after) for before, after in pairwise(shares) if after < before]


def share_claims(results: Results) -> list[Claim]:
    claims = []
    for name in (_report(results), DIRECT):
        shares = [share for _, share in _shares(results[name])]
        falls = _teeth(shares)
        low = next((i for i, (a, b) in enumerate(pairwise(shares)) if b > a), len(shares) - 1)
        rises = [after - before for before, after in pairwise(shares) if after > before]
        claims += [
            judged(
                f"{name}: halved until the important task is in time",
                "halved",
                ", ".join(f"{share:g}" for share in shares[: low + 1]) + " %",
                low >= 1 and all(abs(b - a / 2) < 0.1 for a, b in falls),
                "each fall is to a half",
            ),
            judged(
                f"{name}: then increased slowly until it misses again, a pattern that recurs",
                "by 1 % a job in time",
                f"{len(falls) - low} more teeth, from {_span(falls[low:])}",
                len(falls) - low >= 2 and all(abs(rise - 1) < 0.1 for rise in rises),
                "every rise is 1 %, and at least two teeth follow the first halvings",
            ),
        ]
    better = _shares(results[BETTER])
    later = [share for at, share in better if at > results[BETTER].seconds / 2]
    claims.append(
        judged(
            "a controller with a global view does not saw-tooth (§3.4: envisioned)",
            "a more optimal algorithm",
            f"{len(later)} changes in the second half of the run, at {better[-1][1]:g} %",
            len(later) <= 4,
            "at most two trials of more in the second half",
        )
    )
    return claims


def _span(falls: list[tuple[float, float]]) -> str:
    if not falls:
        return "none"
    tops, bottoms = zip(*falls, strict=True)
    return f"{min(tops):g}-{max(tops):g} to {min(bottoms):g}-{max(bottoms):g} %"


def share_plot(results: Results) -> Plot:
    """As in the report: both kernels under its controller."""
    result = results[_report(results)]
    curves = []
    for who in (HIGH, LOW):
        shares = [*result.tasks[who].shares, (result.seconds, 0.0)]
        steps = [point for a, b in pairwise(shares) for point in (a, (b[0], a[1]))]
        curves.append(_curve(who, steps))
    return Plot("lines", "seconds", "share, %", curves)


# -- controllers beside each other -----------------------------------------------------------------


def comparison_rows(results: Results) -> list[tuple[str, ...]]:
    base = results[_report(results)].rate(LOW)
    return [
        (
            name,
            f"{result.tasks[HIGH].misses} of {len(result.tasks[HIGH].missed)}",
            f"{result.tasks[HIGH].periods_of_misses()} periods",
            f"{result.rate(LOW):.1f}",
            f"{result.rate(LOW) / base:.2f}x" if base else "-",
        )
        for name, result in results.items()
    ]


def comparison_claims(results: Results) -> list[Claim]:
    better, report, direct = (results[n] for n in (BETTER, _report(results), DIRECT))
    periods = better.tasks[HIGH].periods_of_misses()
    gain = better.rate(LOW) / report.rate(LOW) if report.rate(LOW) else 0.0
    alike = better.rate(LOW) / direct.rate(LOW) if direct.rate(LOW) else 0.0
    missed, others = better.tasks[HIGH].misses, direct.tasks[HIGH].misses
    return [
        judged(
            "the better controller: misses end soon after the first",
            f"goal: within {SOON} periods",
            f"{periods} periods from the first miss to the last",
            periods <= SOON,
            f"at most {SOON} periods from the first to the last",
        ),
        judged(
            "the less important task gets more done than under the report's controller",
            f"goal: {MORE:g}x",
            f"{gain:.1f}x with the report's restarts; {alike:.2f}x AIMD without restarts",
            gain >= MORE,
            f"at least {MORE:g} times the jobs a second of AIMD with restarts",
        ),
        judged(
            "and the important one misses less often than under AIMD without restarts",
            "fewer",
            f"{missed} against {others}",
            missed < others,
            "fewer misses in a run as long",
        ),
    ]


def comparison_plot(results: Results) -> Plot:
    names = [*results]
    low = Curve("jobs a second of the less important task", [results[n].rate(LOW) for n in names])
    missed = [
        100 * result.tasks[HIGH].misses / len(result.tasks[HIGH].missed)
        for result in results.values()
    ]
    return Plot("bars", "", "", [low, Curve("% of jobs missed, important task", missed)], names)
