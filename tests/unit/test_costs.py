"""What the interposer remembers of kinds of work: many at once, none forgotten for another."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from headway.live.wire import header

SHIM = Path(__file__).parents[2] / "shim"
SEED, PRIME, WORD = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
KINDS = 600
"""More than a transformer's training has."""


ROOM = 4095
"""So many costs are found without the lock."""
KNOWN = """
#include "costs.h"
uint32_t known(uint64_t signature, hw_u32 *next) { return hw_cost_known(signature, next); }
"""


class Cost(ctypes.Structure):
    _fields_ = (
        ("signature", ctypes.c_uint64),
        ("ns", ctypes.c_uint64),
        ("seen", ctypes.c_uint32),
        ("at", ctypes.c_uint32),
    )


@pytest.fixture
def costs(tmp_path: Path) -> ctypes.CDLL:
    """With an empty table: it is another library each time."""
    built = tmp_path / "costs.so"
    source = tmp_path / "known.c"
    source.write_text(KNOWN)
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-I{SHIM}/core", f"-I{SHIM}/stream"]
    command.append(f"-I{header.write(tmp_path).parent}")
    sources = [str(SHIM / "stream" / "costs.c"), str(source)]
    subprocess.run([*command, "-o", str(built), *sources], check=True)
    library = ctypes.CDLL(str(built))
    library.known.argtypes = (ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32))
    library.known.restype = ctypes.c_uint32
    library.hw_cost_find.restype = ctypes.POINTER(Cost)
    library.hw_cost_find.argtypes = (ctypes.c_uint64,)
    return library


def signature(*words: int) -> int:
    """As kernels have them: FNV-1a over whole words."""
    found = SEED
    for word in words:
        found = (found ^ word) * PRIME & WORD
    return found


def kinds(seed: int) -> set[int]:
    """Functions at neighbouring addresses, each with some shapes of grid and block."""
    chance = random.Random(seed)
    base = chance.randrange(0x550000000000, 0x7FFF00000000, 4096)
    found: set[int] = set()
    while len(found) < KINDS:
        function = base + 0x90 * chance.randrange(300)
        grid = chance.choice([1, 8, 64, 96, 128, 512, 1024, 4096]) * chance.choice([1, 3, 4])
        block = chance.choice([32, 64, 128, 256, 512])
        shared = chance.choice([0, 0, 0, 49152, 98304])
        found.add(signature(function, grid << 32 | 1, 1 << 32 | block, 1 << 32 | 1, shared))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_hundreds_of_kinds_of_work_are_all_remembered(costs: ctypes.CDLL, seed: int) -> None:
    known = kinds(seed)
    for kind in known:
        costs.hw_cost_find(kind).contents.ns = kind % 997 + 1
    lost = [kind for kind in known if costs.hw_cost_find(kind).contents.ns != kind % 997 + 1]
    assert len(lost) <= KINDS // 200


def test_a_new_kind_of_work_is_unknown(costs: ctypes.CDLL) -> None:
    entry = costs.hw_cost_find(signature(12345)).contents
    assert (entry.ns, entry.seen) == (0, 0)


# -- costs that are found without the lock ------------------------------------------------------


def publish(costs: ctypes.CDLL, kind: int, ns: int, *, seen: int = 3) -> None:
    cost = costs.hw_cost_find(kind)
    cost.contents.ns, cost.contents.seen = ns, seen
    costs.hw_cost_publish(cost)


def published(costs: ctypes.CDLL, seed: int = 0) -> list[int]:
    """Kinds of work in the order in which they became known, each with a cost of its own."""
    order = sorted(kinds(seed))
    random.Random(seed).shuffle(order)
    for kind in order:
        publish(costs, kind, kind % 997 + 1)
    return order


def found(costs: ctypes.CDLL, order: list[int]) -> tuple[list[int], int]:
    """What each costs, and how many were not where they were first looked for."""
    next_place, costs_ns, jumps = ctypes.c_uint32(0), [], 0
    for kind in order:
        before = next_place.value
        costs_ns.append(costs.known(kind, ctypes.byref(next_place)))
        jumps += next_place.value != before + 1
    return costs_ns, jumps


@pytest.mark.parametrize("seed", range(5))
def test_what_follows_in_the_same_order_again_is_found_at_once(
    costs: ctypes.CDLL, seed: int
) -> None:
    order = published(costs, seed)
    assert found(costs, order) == ([kind % 997 + 1 for kind in order], 1)


@pytest.mark.parametrize("seed", range(5))
def test_in_any_order_nearly_all_are_found_and_none_is_anothers(
    costs: ctypes.CDLL, seed: int
) -> None:
    order = published(costs, seed)
    random.Random(seed + 1).shuffle(order)
    costs_ns, _ = found(costs, order)
    assert all(ns in (0, kind % 997 + 1) for kind, ns in zip(order, costs_ns, strict=True))
    assert costs_ns.count(0) <= KINDS // 100


def test_a_cost_that_changes_is_the_new_one(costs: ctypes.CDLL) -> None:
    order = published(costs)
    for kind in order:
        publish(costs, kind, 7)
    assert found(costs, order) == ([7] * KINDS, 1)


def test_what_was_not_seen_often_enough_is_not_known(costs: ctypes.CDLL) -> None:
    publish(costs, signature(1), 100, seen=2)
    publish(costs, signature(2), 100)
    assert found(costs, [signature(kind) for kind in (1, 2, 3)])[0] == [0, 100, 0]


def test_where_there_are_too_many_the_oldest_give_way(costs: ctypes.CDLL) -> None:
    order = [signature(number, number) for number in range(ROOM + KINDS)]
    for number, kind in enumerate(order):
        publish(costs, kind, number + 1)
    costs_ns, _ = found(costs, order[::-1])
    right = range(ROOM + KINDS, 0, -1)
    assert all(ns in (0, number) for ns, number in zip(costs_ns, right, strict=True))
    assert all(ns == 0 for ns in costs_ns[ROOM:])
    assert costs_ns[:KINDS].count(0) <= KINDS // 4
