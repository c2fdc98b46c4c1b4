"""The placer's books: GPUs of a cluster, which claims each holds, and an index by room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.fleet.claims import BLOCKED_NS, UNITS, Claim

LONGEST_NS = BLOCKED_NS
"""The longest group of a task without a reserve: a daemon's window, if a node says nothing else."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One GPU of one node."""

    node: str
    gpu: int

    def __str__(self) -> str:
        return f"GPU {self.gpu} of node {self.node}"


Shape = tuple[int, str, int, int, int, str, int]
"""What the analysis looks at in a claim: two claims of one shape are alike to it."""


def shape_of(claim: Claim) -> Shape:
    spec = claim.reserve
    if spec is None:
        return claim.effective_level, claim.rule, 0, 0, 0, "", 0
    due_ns = claim.deadline_ns or 0
    reserve = spec.capacity_ns, spec.period_ns, due_ns, spec.kind
    return claim.level, claim.rule, *reserve, claim.period_ns


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU and the claims that it holds."""

    place: Place
    labels: Mapping[str, str]
    longest_ns: int = LONGEST_NS
    problem: str = ""
    """Why it takes no claims now; nothing if it does."""
    held: dict[str, Claim] = field(default_factory=dict)
    """By ticket."""
    units: int = 0
    """What was promised of it."""
    unreserved: int = 0
    """How many of its claims have no reserve."""
    _shape: tuple[Shape, ...] | None = None

    @property
    def room(self) -> int:
        return UNITS - self.units

    @property
    def shape(self) -> tuple[Shape, ...]:
        """Of all its claims; any number of like ones without a reserve are one to the analysis."""
        if self._shape is None:
            shapes = [shape_of(claim) for claim in self.held.values()]
            reserved = [shape for shape in shapes if shape[2]]
            self._shape = tuple(sorted(reserved + list({s for s in shapes if not s[2]})))
        return self._shape

    @property
    def movable(self) -> int:
        """How much of it preemptible claims have."""
        return sum(claim.units for claim in self.held.values() if claim.preemptible)

    def put(self, ticket: str, claim: Claim) -> None:
        self.held[ticket] = claim
        self._changed(claim, 1)

    def take(self, ticket: str) -> Claim:
        claim = self.held.pop(ticket)
        self._changed(claim, -1)
        return claim

    def _changed(self, claim: Claim, sign: int) -> None:
        self.units += sign * claim.units
        self.unreserved += sign * (claim.reserve is None)
        self._shape = None


class _Index:
    """GPUs by a number, those of one number in the order in which they came to it."""

    def __init__(self) -> None:
        self._by: dict[int, dict[Place, Gpu]] = {}

    def add(self, number: int, gpu: Gpu) -> None:
        self._by.setdefault(number, {})[gpu.place] = gpu

    def remove(self, number: int, gpu: Gpu) -> None:
        here = self._by[number]
        del here[gpu.place]
        if not here:
            del self._by[number]

    def within(self, most: int, *, largest_first: bool) -> Iterator[tuple[int, Gpu]]:
        for number in sorted((n for n in self._by if n <= most), reverse=largest_first):
            for gpu in self._by[number].values():
                yield number, gpu


class Books:
    """All GPUs; an index for each kind of them."""

    def __init__(self) -> None:
        self.gpus: dict[Place, Gpu] = {}
        self.where: dict[str, Gpu] = {}
        """The GPU of each ticket."""
        self._kinds: dict[frozenset[tuple[str, str]], tuple[_Index, _Index]] = {}
        """By labels: GPUs that take claims, by what is promised of them, and by how many of their
        claims have no reserve."""

    def kinds(self) -> list[dict[str, str]]:
        """The labels of every kind of GPU that is there."""
        return [dict(kind) for kind in {frozenset(g.labels.items()) for g in self.gpus.values()}]

    def add(self, gpu: Gpu) -> None:
        self.gpus[gpu.place] = gpu
        self._enter(gpu)

    def remove(self, gpu: Gpu) -> dict[str, Claim]:
        """Forget a GPU; its claims."""
        self._leave(gpu)
        del self.gpus[gpu.place]
        for ticket in gpu.held:
            del self.where[ticket]
        return gpu.held

    def trouble(self, gpu: Gpu, problem: str) -> None:
        """The GPU takes no claims for this reason, or (an empty one) takes them again."""
        self._leave(gpu)
        gpu.problem = problem
        self._enter(gpu)

    def hold(self, ticket: str, claim: Claim, gpu: Gpu) -> None:
        self._leave(gpu)
        gpu.put(ticket, claim)
        self.where[ticket] = gpu
        self._enter(gpu)

    def free(self, ticket: str) -> Claim:
        gpu = self.where.pop(ticket)
        self._leave(gpu)
        claim = gpu.take(ticket)
        self._enter(gpu)
        return claim

    def fullest_first(self, claim: Claim) -> Iterator[Gpu]:
        """GPUs that suit a claim and have room for it; of equally full ones any order that is the
        same each time."""
        most = UNITS - claim.units
        yield from self._merged(claim, 0, most, largest_first=True)

    def least_shared_first(self, claim: Claim) -> Iterator[Gpu]:
        """GPUs that suit a claim without a reserve, those with the fewest of its kind first."""
        yield from self._merged(claim, 1, len(self.where), largest_first=False)

    def suiting(self, claim: Claim) -> Iterator[Gpu]:
        """All GPUs that take claims and have the labels."""
        yield from self._merged(claim, 1, len(self.where), largest_first=False)

    def _merged(self, claim: Claim, index: int, most: int, *, largest_first: bool) -> Iterator[Gpu]:
        from heapq import merge

        kinds = [pair[index] for kind, pair in self._kinds.items() if claim.suits(dict(kind))]
        found = [kind.within(most, largest_first=largest_first) for kind in kinds]
        for _, gpu in merge(*found, key=lambda pair: pair[0], reverse=largest_first):
            yield gpu

    def _enter(self, gpu: Gpu) -> None:
        if not gpu.problem:
            promised, shared = self._of(gpu)
            promised.add(gpu.units, gpu)
            shared.add(gpu.unreserved, gpu)

    def _leave(self, gpu: Gpu) -> None:
        if not gpu.problem:
            promised, shared = self._of(gpu)
            promised.remove(gpu.units, gpu)
            shared.remove(gpu.unreserved, gpu)

    def _of(self, gpu: Gpu) -> tuple[_Index, _Index]:
        return self._kinds.setdefault(frozenset(gpu.labels.items()), (_Index(), _Index()))
