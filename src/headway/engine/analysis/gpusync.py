"""Response times of a machine with tokens and unit locks, in the worst case.

Suspension-oblivious: while a job waits for an operation of its own, or begins later than its
release, it is counted as if it had a CPU, and what it waits for locks is added to its cost. From
the lengths of operations come the waits for units, from these the lengths of token sections, from
these the waits for tokens; then the CPU cluster is tested. Waits depend on response times, so all
is repeated until nothing grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from headway.engine.analysis.multiprocessor import (
    Demand,
    dense,
    earliest_deadline,
    fixed_priority,
    tardiness,
)
from headway.engine.analysis.requests import (
    Rival,
    donation_bound,
    longest,
    priority_bound,
    sections_ahead,
)
from headway.engine.analysis.verdicts import OWN, Verdict
from headway.engine.locks.copies import Move
from headway.engine.locks.quantities import transfer_ns
from headway.engine.locks.settings import AllocatorSettings
from headway.engine.locks.system import LockSystem, LockTask

UNITS, TOKENS, MIGRATION, CPUS = "units", "tokens", "moves", "CPUs"
JITTER = "jitter"
ROUNDS = 100
UNBOUNDED_NS = 2**62
"""The response time of a task that has no bound, where others' windows need one."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Operations of one kind in a job."""

    engines: frozenset[str]
    """The kinds of units that one of them takes. If `peer`, of two devices, or of one of which the
    job may have no token."""
    length_ns: int
    count: int
    peer: bool = False
    state: bool = False


@dataclass(slots=True)
class Working:
    """A task, and what is known of it so far."""

    task: LockTask
    strength: int
    """Its place by priority under RM, 0 the strongest."""
    kinds: list[Kind]
    response_ns: int = 0
    units_ns: int | None = 0
    section_ns: int = 0
    tokens_ns: int | None = 0

    @property
    def own_ns(self) -> int:
        work_ns = sum(kind.length_ns * kind.count for kind in self.kinds if not kind.state)
        return self.task.cpu_ns + work_ns

    @property
    def migration_ns(self) -> int:
        return sum(kind.length_ns * kind.count for kind in self.kinds if kind.state)

    @property
    def operations(self) -> int:
        return sum(kind.count for kind in self.kinds)


def analyse(system: LockSystem, tasks: Sequence[LockTask]) -> list[Verdict]:
    """A verdict for each task, in their order."""
    verdicts: dict[str, Verdict] = {}
    for number in sorted({task.cpus for task in tasks}):
        here = [task for task in tasks if task.cpus == number]
        for verdict in _Node(system, here).verdicts():
            verdicts[verdict.task] = verdict
    return [verdicts[task.name] for task in tasks]


class _Node:
    """One cluster of CPUs with its devices."""

    def __init__(self, system: LockSystem, tasks: Sequence[LockTask]) -> None:
        self.system = system
        self.cpus = system.clusters.cpus_each
        self._topology = system.topology()
        self._near_and_far: dict[int, tuple[bool, bool]] = {}
        order = sorted(range(len(tasks)), key=lambda place: (tasks[place].period_ns, place))
        self.works = [
            Working(task, order.index(place), self._kinds(task)) for place, task in enumerate(tasks)
        ]
        clusters = {cluster.number: cluster for cluster in system.clusters}
        self.settings: dict[int, AllocatorSettings] = {
            task.devices: system.token_settings(clusters[task.devices])
            for task in tasks
            if task.work is not None
        }
        self.limit_ns = 1000 * max(task.period_ns for task in tasks)
        self.by_period = system.scheduler == "rm"

    # -- operations --------------------------------------------------------------------------

    def _kinds(self, task: LockTask) -> list[Kind]:
        """What a job does with units, at its longest: a copy as its chunks, each with the helper
        threads behind it."""
        work, system = task.work, self.system
        if work is None:
            return []
        copies = system.copies
        near, far = self._peers_of(task.devices)
        # One completion of each job that owns a unit of the device may be served before.
        owners = 1 + copies.units
        if not far or system.migration != "peer":
            owners = min(system.rho, owners)  # all of them have a token of the device
        behind_ns = system.launch_ns + owners * system.interrupt_ns + system.worker_ns
        kinds = [Kind(frozenset({"ee"}), ns + behind_ns, 1) for ns in work.kernels_ns]

        def copy(move: Move, size: int, *, state: bool, peer: bool = False) -> None:
            engines = frozenset(kind for _, kind in copies.needs(move, 0, 1))
            chunks = copies.chunks(size)
            for length in sorted(set(chunks)):
                ns = transfer_ns(length, system.worst_rate) + behind_ns
                kinds.append(Kind(engines, ns, chunks.count(length), peer, state))

        copy(Move.IN, work.input_bytes, state=False)
        copy(Move.OUT, work.output_bytes, state=False)
        if system.migration == "system":
            copy(Move.STATE_OUT, work.state_bytes, state=True)
            if system.clusters.devices_each > 1:
                copy(Move.STATE_IN, work.state_bytes, state=True)
            return kinds
        if near:
            copy(Move.PEER, work.state_bytes, state=True, peer=True)
        if far:  # out of a device of which the job has no token, so that as many others may wait
            copy(Move.STATE_OUT, work.state_bytes, state=True, peer=True)
            copy(Move.STATE_IN, work.state_bytes, state=True, peer=True)
        return kinds

    def _peers_of(self, number: int) -> tuple[bool, bool]:
        """Whether a cluster has devices that copy to each other, and others that cannot: state
        moves between these through the host."""
        known = self._near_and_far.get(number)
        if known is None:
            (devices,) = (c.devices for c in self.system.clusters if c.number == number)
            pairs = {self._topology.are_peers(a, b) for a, b in combinations(devices, 2)}
            known = self._near_and_far[number] = True in pairs, False in pairs
        return known

    def _rivals(self, work: Working) -> list[Working]:
        """The other tasks of the same allocator."""
        return [
            other
            for other in self.works
            if other is not work and other.kinds and other.task.devices == work.task.devices
        ]

    # -- units -------------------------------------------------------------------------------

    def _units(self, work: Working) -> int | None:
        """What all operations of a job wait for units."""
        total_ns = 0
        settings = self.settings[work.task.devices]
        rivals = self._rivals(work)
        for kind in work.kinds:
            if self.system.unit_order == "fifo":
                one_ns: int | None = self._fifo(kind, rivals, settings)
            else:
                one_ns = self._by_priority(kind, work, rivals)
            if one_ns is None:
                return None
            total_ns += one_ns * kind.count
        return total_ns

    def _peers(self, rivals: Sequence[Working]) -> bool:
        return any(kind.peer for other in rivals for kind in other.kinds)

    def _competes(self, kind: Kind, other: Kind, *, peers: bool) -> bool:
        """Whether an operation may have to wait for another one: they take the same kind of unit,
        or, where peer-to-peer copies couple copy engines, both are copies."""
        copies = "ee" not in kind.engines and "ee" not in other.engines
        return bool(kind.engines & other.engines) or (peers and copies)

    def _fifo(self, kind: Kind, rivals: Sequence[Working], settings: AllocatorSettings) -> int:
        """One earlier request of each other token holder of the device; of the whole cluster, where
        peer-to-peer copies couple the copy engines."""
        copies = "ee" not in kind.engines
        coupled = copies and (kind.peer or self._peers(rivals))
        places = settings.tokens - 1 if coupled else self.system.rho - 1
        lengths = [
            max(
                (k.length_ns for k in other.kinds if self._competes(kind, k, peers=coupled)),
                default=0,
            )
            for other in rivals
        ]
        return longest(((ns, 1) for ns in lengths if ns), places)

    def _by_priority(self, kind: Kind, work: Working, rivals: Sequence[Working]) -> int | None:
        """The longest weaker operation, and the stronger ones meanwhile. A unit that stays free
        for a stronger peer-to-peer copy costs one more weaker operation each time. Operations go
        by effective priority, so those of a weaker task count as stronger ones wherever a stronger
        task may wait for a token that the weaker one holds."""
        copies = "ee" not in kind.engines
        coupled = copies and (kind.peer or self._peers(rivals))
        weaker_ns, longest_ns = 0, 0
        stronger: list[Rival] = []
        for other in rivals:
            for k in other.kinds:
                if not self._competes(kind, k, peers=coupled):
                    continue
                longest_ns = max(longest_ns, k.length_ns)
                if self._may_be_weaker(other, work):
                    weaker_ns = max(weaker_ns, k.length_ns)
        lent = self._tokens_lacking(work) and any(
            self._may_be_stronger(other, work) for other in rivals
        )
        for other in rivals:
            if not (lent or self._may_be_stronger(other, work)):
                continue
            for k in other.kinds:
                if self._competes(kind, k, peers=coupled):
                    ns = k.length_ns + (longest_ns if k.peer else 0)
                    stronger.append(self._rival(other, ns, k.count))
        return priority_bound(1, weaker_ns, stronger, self.limit_ns)

    # -- tokens ------------------------------------------------------------------------------

    def _tokens_lacking(self, work: Working) -> bool:
        """Whether a request to the task's allocator may have to wait."""
        settings, tasks = self.settings[work.task.devices], len(self._rivals(work)) + 1
        if settings.order == "donation":
            return sections_ahead(settings, tasks, affinity=self.system.affinity) != 0
        return tasks > settings.tokens

    def _tokens(self, work: Working) -> int | None:
        """What a job waits for its token."""
        settings = self.settings[work.task.devices]
        rivals = self._rivals(work)
        if settings.order == "donation":
            candidates = [self._rival(other, other.section_ns, 1) for other in rivals]
            return donation_bound(
                settings, candidates, work.response_ns, affinity=self.system.affinity
            )
        # Of the weaker holders only one runs with this job's priority; the others may stand still
        # until the stronger waiters that came meanwhile lend theirs. So weaker sections may follow
        # one another, though no weaker one begins while this job waits.
        weaker_ns = longest(
            ((other.section_ns, 1) for other in rivals if self._may_be_weaker(other, work)),
            settings.tokens,
        )
        stronger = [
            self._rival(other, other.section_ns, 1)
            for other in rivals
            if self._may_be_stronger(other, work)
        ]
        return priority_bound(settings.tokens, weaker_ns, stronger, self.limit_ns)

    def _rival(self, other: Working, length_ns: int, count: int) -> Rival:
        task = other.task
        return Rival(task.name, length_ns, task.period_ns, other.response_ns, count)

    def _may_be_stronger(self, other: Working, work: Working) -> bool:
        """Under EDF every other task has jobs that are stronger, and jobs that are weaker."""
        return not self.by_period or other.strength < work.strength

    def _may_be_weaker(self, other: Working, work: Working) -> bool:
        return not self.by_period or other.strength > work.strength

    # -- the whole ---------------------------------------------------------------------------

    def _waits(self) -> None:
        """Waits for units and tokens, from the response times so far."""
        for work in self.works:
            if work.kinds:
                work.units_ns = self._units(work)
                cpu_ns = work.task.cpu_ns
                inside_ns = work.own_ns - cpu_ns + work.migration_ns + (work.units_ns or 0)
                work.section_ns = UNBOUNDED_NS if work.units_ns is None else inside_ns
        for work in self.works:
            if work.kinds:
                known = work.section_ns < UNBOUNDED_NS
                work.tokens_ns = self._tokens(work) if known else None

    def _cost(self, work: Working) -> int | None:
        if work.units_ns is None or work.tokens_ns is None:
            return None
        waits_ns = work.units_ns + work.tokens_ns
        return work.task.jitter_ns + work.own_ns + work.migration_ns + waits_ns

    def _helpers(self, work: Working) -> Callable[[int], int]:
        """Work of interrupt and worker threads that may go before a task in a window. They serve a
        weaker job with a stronger one's priority, so there must be a stronger one with devices."""
        if not any(w.kinds and self._may_be_stronger(w, work) for w in self.works if w is not work):
            return lambda window_ns: 0
        each_ns = self.system.interrupt_ns + self.system.worker_ns
        rows = []
        for other in self.works:
            if other.kinds:
                shortest_ns = max(1, int(other.own_ns * other.task.least))
                task_ns = other.operations * each_ns
                rows.append((other.task.period_ns, other.response_ns, shortest_ns, task_ns))

        def all_of_them(window_ns: int) -> int:
            total_ns = 0
            for period_ns, response_ns, shortest_ns, ns in rows:
                jobs = -(-(window_ns + response_ns) // period_ns)
                total_ns += min(jobs, window_ns // shortest_ns + 2) * ns
            return total_ns

        return all_of_them

    def verdicts(self) -> list[Verdict]:
        """Repeat until nothing grows."""
        for work in self.works:
            work.response_ns = work.task.jitter_ns + work.own_ns
        found: list[int | None] = []
        for _ in range(ROUNDS):
            self._waits()
            found = self._responses()
            grown = False
            for work, response_ns in zip(self.works, found, strict=True):
                following_ns = UNBOUNDED_NS if response_ns is None else response_ns
                if following_ns > work.response_ns:
                    work.response_ns = following_ns
                    grown = True
            if not grown:
                return [self._verdict(w, r) for w, r in zip(self.works, found, strict=True)]
        return [
            self._verdict(work, None, "waits and responses do not settle") for work in self.works
        ]

    def _responses(self) -> list[int | None]:
        """Response times from the waits so far; under EDF all or none."""
        costs = [self._cost(work) for work in self.works]
        if self.by_period:
            order = sorted(range(len(self.works)), key=lambda place: self.works[place].strength)
            demands = []
            for place in order:
                cost_ns, task = costs[place], self.works[place].task
                demands.append(
                    Demand(
                        task.name,
                        UNBOUNDED_NS if cost_ns is None else cost_ns,
                        task.period_ns,
                        min(task.deadline_ns, task.period_ns),
                    )
                )
            extras = [self._helpers(self.works[place]) for place in order]
            responses = fixed_priority(demands, self.cpus, extras)
            return [responses[order.index(place)] for place in range(len(self.works))]
        if any(cost_ns is None for cost_ns in costs):
            return [None] * len(costs)
        demands = [
            Demand(work.task.name, cost_ns or 0, work.task.period_ns, work.task.deadline_ns)
            for work, cost_ns in zip(self.works, costs, strict=True)
        ]
        hard = None
        if all(demand.deadline_ns <= demand.period_ns for demand in demands):
            extras = [self._helpers(work) for work in self.works]
            hard = earliest_deadline(demands, self.cpus, extras)
            alone = not any(extra(d.period_ns) for extra, d in zip(extras, demands, strict=True))
            if hard is None and alone and dense(demands, self.cpus):
                hard = [demand.deadline_ns for demand in demands]
        if hard is not None:
            return [*hard]
        if any(demand.deadline_ns != demand.period_ns for demand in demands):
            return [None] * len(costs)
        soft = self._soft(demands)
        return [None] * len(costs) if soft is None else [*soft]

    def _soft(self, demands: Sequence[Demand]) -> list[int] | None:
        """Bounded tardiness; the helpers' work is charged to the task whose operations they end
        and, once more, to all: no task may be delayed by more than all helpers of its period."""
        inflated = [
            Demand(
                demand.name,
                demand.cost_ns + -(-self._helpers(work)(demand.period_ns) // self.cpus),
                demand.period_ns,
                demand.deadline_ns,
            )
            for work, demand in zip(self.works, demands, strict=True)
        ]
        return tardiness(inflated, self.cpus)

    def _verdict(self, work: Working, response_ns: int | None, why: str = "") -> Verdict:
        parts = {OWN: work.own_ns}
        if work.task.jitter_ns:
            parts[JITTER] = work.task.jitter_ns
        if work.kinds:
            parts[UNITS] = work.units_ns or 0
            parts[MIGRATION] = work.migration_ns
            parts[TOKENS] = work.tokens_ns or 0
        if response_ns is not None:
            parts[CPUS] = response_ns - sum(parts.values())
        elif not why:
            why = self._reason(work)
        return Verdict(work.task.name, work.task.deadline_ns, response_ns, parts, why)

    def _reason(self, work: Working) -> str:
        """Why there is no bound."""
        if work.units_ns is None:
            return "stronger tasks can keep the units it needs busy for ever"
        if work.tokens_ns is None:
            settings = self.settings[work.task.devices]
            if settings.order == "donation":
                return f"fewer places in the queues ({settings.cap}) than CPUs ({settings.top})"
            return "stronger tasks can keep all tokens busy for ever"
        cost_ns = self._cost(work) or 0
        if cost_ns > work.task.deadline_ns:
            return "its work and its waits alone are longer than its deadline"
        if not self.by_period:
            load = sum((self._cost(other) or 0) / other.task.period_ns for other in self.works)
            return f"work and waits load {self.cpus} CPUs by {load:.2f}"
        return "stronger tasks and its own work take longer than its deadline"
