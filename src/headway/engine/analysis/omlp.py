"""The clustered k-exclusion OMLP, another protocol, for comparison (Brandenburg and Anderson 2012).

Requests queue in FIFO order for k replicas; priority donation happens when a job is released, so a
job may be blocked once by the longest request span of a task of its own cluster. The algorithm is
that of SchedCAT's `apply_clustered_kx_omlp_bounds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.engine.locks.settings import ceil_div


@dataclass(frozen=True, slots=True)
class Sharer:
    """A task that uses replicated resources. Of two, the one with the smaller index is stronger."""

    cluster: int
    period_ns: int
    response_ns: int
    requests: Mapping[int, tuple[int, int]]
    """By resource: how many requests a job makes, and the longest."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """What a task waits for."""

    direct_ns: int
    """For replicas."""
    arrival_ns: int
    """As a donor when it is released."""

    @property
    def total_ns(self) -> int:
        return self.direct_ns + self.arrival_ns


def kx_omlp(
    tasks: Sequence[Sharer], cpus: Sequence[int], replicas: Mapping[int, int]
) -> list[Blocking]:
    """Bounds for each task; `cpus` of each cluster, `replicas` of each resource."""
    spans = [_span(task, tasks, cpus, replicas) for task in tasks]
    found = []
    for place, task in enumerate(tasks):
        direct = sum(
            _direct(task, count, resource, tasks, cpus, replicas)
            for resource, (count, _) in task.requests.items()
        )
        arrival = max(
            (spans[i] for i in range(place + 1, len(tasks)) if tasks[i].cluster == task.cluster),
            default=0,
        )
        found.append(Blocking(direct, arrival))
    return found


def _span(
    task: Sharer, tasks: Sequence[Sharer], cpus: Sequence[int], replicas: Mapping[int, int]
) -> int:
    """How long one request of the task may be outstanding."""
    return max(
        (
            _direct(task, 1, resource, tasks, cpus, replicas) + length
            for resource, (_, length) in task.requests.items()
        ),
        default=0,
    )


def _direct(
    task: Sharer,
    count: int,
    resource: int,
    tasks: Sequence[Sharer],
    cpus: Sequence[int],
    replicas: Mapping[int, int],
) -> int:
    """What `count` requests for one resource wait for."""
    lengths: list[int] = []
    for cluster, own_cpus in enumerate(cpus):
        limit = count * (own_cpus - 1 if cluster == task.cluster else own_cpus)
        of_cluster: list[int] = []
        for other in tasks:
            if other is task or other.cluster != cluster or resource not in other.requests:
                continue
            number, length = other.requests[resource]
            window = ceil_div(task.response_ns + other.response_ns, other.period_ns) * number
            of_cluster += [length] * min(count, window)
        lengths += sorted(of_cluster, reverse=True)[:limit]
    ahead = count * (ceil_div(sum(cpus), replicas[resource]) - 1)
    return sum(sorted(lengths, reverse=True)[:ahead])
