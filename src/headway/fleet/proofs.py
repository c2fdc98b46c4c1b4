"""Whether a GPU can take a claim with all deadlines kept, by the engine's analysis."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headway.engine.analysis.groups import GroupTask
from headway.engine.analysis.proof import MOST, objection_among
from headway.engine.reserves import ReserveSpec
from headway.fleet.books import Gpu, Shape, shape_of
from headway.fleet.claims import UNITS, Claim

KEPT = 200_000
"""Proofs that are remembered; few kinds of claims make few proofs."""


def fits(gpu: Gpu, claim: Claim, without: Iterable[str] = ()) -> bool:
    """Whether the claim has room on this GPU, and every deadline on it is proven; `without`:
    tickets that would leave."""
    gone = [gpu.held[ticket] for ticket in without]
    if gpu.units - sum(other.units for other in gone) + claim.units > UNITS:
        return False
    here = gpu.shape if not gone else _shape_without(gpu, without)
    return _is_proven(here, shape_of(claim), gpu.longest_ns)


def objection(gpu: Gpu, claim: Claim) -> str:
    """Why the deadlines are not kept if this GPU takes the claim, in words."""
    before = [
        _group(name, shape_of(other), gpu.longest_ns)
        for name, other in _named(gpu.held.values(), claim.name)
    ]
    return _object(before, _group(claim.name, shape_of(claim), gpu.longest_ns))


def objection_alone(claim: Claim, longest_ns: int) -> str:
    """Why the claim's own deadline is not kept even if the claim has a GPU for itself."""
    return _object([], _group(claim.name, shape_of(claim), longest_ns))


def _shape_without(gpu: Gpu, gone: Iterable[str]) -> tuple[Shape, ...]:
    left = Gpu(gpu.place, gpu.labels)
    for ticket, claim in gpu.held.items():
        if ticket not in set(gone):
            left.put(ticket, claim)
    return left.shape


@lru_cache(maxsize=KEPT)
def _is_proven(here: tuple[Shape, ...], new: Shape, longest_ns: int) -> bool:
    if not any(shape[4] for shape in (*here, new)):
        return True
    before = [_group(f"{n}", shape, longest_ns) for n, shape in enumerate(here)]
    return not _object(before, _group("new", new, longest_ns))


def _object(before: list[GroupTask], new: GroupTask) -> str:
    if len(before) >= MOST:
        return f"admission by analysis is for {MOST} tasks, and {len(before)} are there"
    return objection_among(before, new)


def _group(name: str, shape: Shape, longest_ns: int) -> GroupTask:
    """As `proof` takes tasks: one of C every T is a job of one group of C every T."""
    level, rule, capacity_ns, refill_ns, deadline_ns, kind, period_ns = shape
    if not capacity_ns:
        return GroupTask(name, level, rule, "prt", longest_ns)
    refused = "" if kind == "pe" else "its reserve goes by predictions that may be wrong"
    return GroupTask(
        name,
        level,
        rule,
        "prt",
        capacity_ns,
        period_ns=period_ns,
        deadline_ns=deadline_ns or None,
        order_ns=period_ns,
        reserve=ReserveSpec(kind, capacity_ns, refill_ns, predict="history"),
        refused=f"{refused}; expected pe" if refused else "",
    )


def _named(claims: Iterable[Claim], taken: str) -> Iterable[tuple[str, Claim]]:
    """Claims with names that differ, as the analysis needs them."""
    seen = {taken: 1}
    for claim in claims:
        count = seen[claim.name] = seen.get(claim.name, 0) + 1
        yield (claim.name if count == 1 else f"{claim.name} ({count})"), claim
