"""A cluster in virtual time: the placer's policy over many nodes, and the daemons of their GPUs.

Claims come at random, stay for a while and go; nodes die and come back. The placement policy is the
one of a real cluster. What the daemons make of the claims is simulated by the engine, GPU by GPU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any

from headway.engine.units import format_ns
from headway.fleet.books import Gpu
from headway.fleet.claims import UNITS, Claim
from headway.fleet.placement import Decision, Placed, Placement, Refused
from headway.sim.api import run

MS, S = 1_000_000, 1_000_000_000
LABELS = {"model": "NVIDIA-H200"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines, and how claims come and go."""

    nodes: int
    gpus_each: int
    kinds: Sequence[Claim]
    """Claims that may come, all as often."""
    load: float = 0.9
    """The GPU time that claims ask for, of all there is."""
    stay_ns: int = 300 * S
    """Mean time for which a claim holds its GPU; exponential."""
    down_ns: int = 60 * S
    """For how long a node that died is gone."""
    life_ns: int = 0
    """Mean time between two deaths of a node; 0: none dies."""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_each

    @property
    def gap_ns(self) -> float:
        """Mean time between two claims."""
        mean_units = sum(claim.units for claim in self.kinds) / len(self.kinds)
        together = self.load * self.gpus * UNITS / mean_units
        return self.stay_ns / together


@dataclass(slots=True)
class Outcome:
    """What became of the claims."""

    placed: int = 0
    at_once: int = 0
    refused: int = 0
    moved: int = 0
    lost: int = 0
    """Claims whose node died under them."""
    waits_ns: list[int] = field(default_factory=list)
    """Times from the submission to the first place, of claims that got one."""
    pending: int = 0
    """Claims that wait at the end."""
    used: list[float] = field(default_factory=list)
    """The part of all GPU time that is promised, at each look."""
    splintered: list[float] = field(default_factory=list)
    """Fragmentation: the part of what is not promised that lies on GPUs with too little room for
    the largest claim that comes, at each look."""


Step = Callable[[int], None]


class VirtualCluster:
    """Claims and nodes that come and go, and a placement policy between them."""

    def __init__(self, cluster: Cluster, placement: Placement, seed: int) -> None:
        self.cluster, self.placement = cluster, placement
        self.outcome = Outcome()
        self.now_ns = 0
        self._rng = random.Random(f"{seed} claims")
        self._fates = random.Random(f"{seed} nodes")
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._since: dict[str, int] = {}
        """When claims that had no GPU yet were submitted."""
        self._left: dict[str, int] = {}
        """For how long each claim will hold a GPU."""
        self._largest = max(claim.units for claim in cluster.kinds)
        for number in range(cluster.nodes):
            self._node_comes(number)
        self._next_claim()

    def run(self, duration_ns: int, look_ns: int, watch: Step | None = None) -> Outcome:
        """Play for a while and look at the books now and then."""
        for end_ns in range(look_ns, duration_ns + 1, look_ns):
            while self._events and self._events[0][0] <= end_ns:
                self.now_ns, _, happens = heappop(self._events)
                happens()
            self.now_ns = end_ns
            self._look()
            if watch is not None:
                watch(end_ns)
        self.outcome.pending = len(self.placement.waiting)
        return self.outcome

    def _at(self, after_ns: float, happens: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (self.now_ns + int(after_ns), self._count, happens))

    # -- claims ------------------------------------------------------------------------------

    def _next_claim(self) -> None:
        self._at(self._rng.expovariate(1 / self.cluster.gap_ns), self._claim_comes)

    def _claim_comes(self) -> None:
        ticket = f"{len(self._left)}"
        self._left[ticket] = int(self._rng.expovariate(1 / self.cluster.stay_ns))
        self._since[ticket] = self.now_ns
        decision = self.placement.submit(ticket, self._rng.choice(self.cluster.kinds))
        if isinstance(decision, Placed):
            self.outcome.at_once += 1
            self.outcome.moved += len(decision.moved)
            where = self.placement.books.where
            others = [t for t in self._since if t in where] if decision.moved else [ticket]
            self._settled(Placed(t, where[t].place) for t in others)
        elif isinstance(decision, Refused):
            self.outcome.refused += 1
            del self._since[ticket]
        self._next_claim()

    def _settled(self, decisions: Iterable[Decision]) -> None:
        """Who has a GPU now and had none yet begins to hold the GPU."""
        for decision in decisions:
            if not isinstance(decision, Placed) or decision.ticket not in self._since:
                continue
            since_ns = self._since.pop(decision.ticket)
            self.outcome.placed += 1
            self.outcome.waits_ns.append(self.now_ns - since_ns)
            ticket = decision.ticket
            self._at(self._left[ticket], partial(self._claim_goes, ticket))

    def _claim_goes(self, ticket: str) -> None:
        if ticket in self.placement.waiting:  # moved away, and without a GPU when its time is over
            self.placement.release(ticket)
        else:
            self._settled(self.placement.release(ticket))

    # -- nodes -------------------------------------------------------------------------------

    def _node_comes(self, number: int) -> None:
        gpus = [LABELS] * self.cluster.gpus_each
        self._settled(self.placement.node_came(f"n{number}", gpus))
        if self.cluster.life_ns:
            life_ns = self._fates.expovariate(1 / self.cluster.life_ns)
            self._at(life_ns, partial(self._node_dies, number))

    def _node_dies(self, number: int) -> None:
        name = f"n{number}"
        here = self.placement.books.where.values()
        self.outcome.lost += sum(gpu.place.node == name for gpu in here)
        self._settled(self.placement.node_gone(name))
        self._at(self.cluster.down_ns, partial(self._node_comes, number))

    # -- looks -------------------------------------------------------------------------------

    def _look(self) -> None:
        rooms = [gpu.room for gpu in self.placement.books.gpus.values()]
        there, free = len(rooms) * UNITS, sum(rooms)
        self.outcome.used.append(1 - free / there)
        small = sum(room for room in rooms if room < self._largest)
        self.outcome.splintered.append(small / free if free else 0.0)


# -- what daemons make of it -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Misses:
    """Jobs with deadlines on simulated GPUs."""

    jobs: int = 0
    missed: int = 0
    gpus: int = 0
    """With at least one miss."""

    def __add__(self, other: Misses) -> Misses:
        return Misses(self.jobs + other.jobs, self.missed + other.missed, self.gpus + other.gpus)


def misses(gpu: Gpu, duration_ns: int, seed: int) -> Misses:
    """Simulate the claims of one GPU as its daemon would order them: jobs of C every T, which begin
    at random; without a reserve always another group, as long as the node's longest."""
    rng = random.Random(f"{seed} {gpu.place}")
    tasks = [
        _task(f"t{n}", claim, gpu.longest_ns, rng) for n, claim in enumerate(gpu.held.values())
    ]
    if not any(claim.deadline_ns for claim in gpu.held.values()):
        return Misses()
    result = run({"run": {"duration": format_ns(duration_ns)}, "task": tasks})
    jobs = missed = 0
    for name, claim in zip((t["name"] for t in tasks), gpu.held.values(), strict=True):
        if claim.deadline_ns:
            found = result.tasks[name]
            jobs += len(found.jobs)
            missed += found.missed
    return Misses(jobs, missed, int(missed > 0))


def _task(name: str, claim: Claim, longest_ns: int, rng: random.Random) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name, "policy": "prt"}
    if claim.reserve is None:
        group = format_ns(longest_ns)
        return {**told, "priority": max(claim.effective_level, -1000), "greedy": {"cost": group}}
    offset_ns = rng.randrange(claim.period_ns)
    job = {
        "period": format_ns(claim.period_ns),
        "cost": format_ns(claim.reserve.capacity_ns),
        "offset": format_ns(offset_ns),
    }
    if claim.deadline_ns:
        job["deadline"] = format_ns(claim.deadline_ns)
    reserve = {
        "policy": claim.reserve.kind,
        "capacity": format_ns(claim.reserve.capacity_ns),
        "period": format_ns(claim.reserve.period_ns),
    }
    priority = claim.level if claim.rule == "fixed" else f"{claim.rule}@{claim.level}"
    return {**told, "priority": priority, "reserve": reserve, "periodic": job}


__all__ = ["Cluster", "Decision", "Misses", "Outcome", "VirtualCluster", "misses"]
