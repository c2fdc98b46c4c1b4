"""Figure 8: thirty video streams on clusters of one, two and four GPUs (observations 10 to 13)."""

from __future__ import annotations

from collections.abc import Mapping

from headway.sim.gpusync.paper.workloads import ORDERS, SHAPES, Scenario
from headway.sim.gpusync.paper.workloads import vision as scenario
from headway.sim.gpusync.results import GpuSyncResult
from headway.sim.papers.claims import Claim, judged
from headway.sim.papers.figure import Curve, Plot

Results = Mapping[str, GpuSyncResult]
HOPELESS = 9000.0
"""Percent of the period: the paper's worst responses where state goes through the host."""


def variants() -> dict[str, Scenario]:
    return {f"{order}: {shape}": scenario(order, shape) for order in ORDERS for shape in SHAPES}


def percents(result: GpuSyncResult) -> list[float]:
    """Response times as percents of the period, sorted."""
    return sorted(
        100 * response / task.period_ns
        for task in result.tasks.values()
        for response in task.responses()
    )


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def rows(results: Results) -> list[tuple[str, ...]]:
    found = []
    for name, result in results.items():
        order, _, shape = name.partition(": ")
        values = percents(result)
        places = (len(values) // 2, int(len(values) * 0.95))
        numbers = (values[places[0]], mean(values), values[places[1]], values[-1])
        grows = result.unschedulable
        found.append(
            (
                order,
                shape,
                *(f"{number:.0f} %" for number in numbers),
                f"no: {len(grows)} tasks" if grows else "yes",
            )
        )
    return found


def plot(results: Results) -> Plot:
    curves = []
    for name, result in results.items():
        values = percents(result)
        step = max(1, len(values) // 400)
        x = values[::step]
        y = [100 * (place * step + 1) / len(values) for place in range(len(x))]
        curves.append(Curve(name, y, x))
    return Plot("lines", "response time, % of the period", "% of jobs", curves)


def claims(results: Results) -> list[Claim]:
    values = {name: percents(result) for name, result in results.items()}
    means = {name: mean(found) for name, found in values.items()}
    worst = {name: found[-1] for name, found in values.items()}
    fifo, *by_priority = ORDERS
    improved = [
        (order, shape)
        for order in by_priority
        for shape in SHAPES
        if means[f"{order}: {shape}"] < means[f"{fifo}: {shape}"]
    ]
    pairs = len(by_priority) * len(SHAPES)
    alone = f"{fifo}: g=1"
    clustered = [f"{fifo}: g=2, peer", f"{fifo}: g=4, peer"]
    sizes = [
        (f"{order}: g=2, {way}", f"{order}: g=4, {way}")
        for order in ORDERS
        for way in ("peer", "system")
    ]
    smaller = sum(means[two] < means[four] for two, four in sizes)
    through_host = [name for name in results if name.endswith("system")]
    bounded = [name for name in through_host if not results[name].unschedulable]
    costs = [means[name] / means[f"{name.split(':')[0]}: g=1"] for name in through_host]
    return [
        judged(
            "10: priority-ordered queues often improve observed response times",
            "curves of (b) and (c) above those of (a)",
            f"shorter on average in {len(improved)} of {pairs}; worst response with peers "
            f"{worst[f'{by_priority[0]}: g=2, peer']:.0f} against {worst[clustered[0]]:.0f} %",
            2 * len(improved) > pairs,
            "a shorter mean than under FIFO in most configurations",
        ),
        judged(
            "11: clustered management can outperform partitioned, under FIFO with peers",
            "both cluster sizes above g = 1",
            f"mean {' and '.join(f'{means[name]:.1f}' for name in clustered)} against "
            f"{means[alone]:.1f} %",
            all(means[name] < means[alone] for name in clustered),
            "a shorter mean than g = 1, for both cluster sizes",
            "the chosen execution times load the engines to 74 %, evenly dealt; clusters of four "
            "pay for moves across the hub more than they gain",
        ),
        judged(
            "12: small clusters may be preferable over large ones",
            "g = 2 above g = 4 in every graph",
            f"shorter on average in {smaller} of {len(sizes)} pairs",
            2 * smaller > len(sizes),
            "a shorter mean in most pairs of the same order and migration",
        ),
        judged(
            "13: state migration through system memory is often too costly",
            "none schedulable, worst above 9000 %",
            f"{len(through_host) - len(bounded)} of {len(through_host)} unschedulable, worst "
            f"{max(worst[name] for name in through_host):.0f} %; means "
            f"{min(costs):.1f} to {max(costs):.1f} times those of g = 1",
            not bounded and max(worst[name] for name in through_host) > HOPELESS,
            "response times keep growing in each, and reach 9000 %",
            "the streams' execution times and the bus's speed were chosen, not given; with them "
            "the copies of the state fit, at a multiple of the partitioned response time",
        ),
    ]
