"""What the interposer remembers of kinds of work: many at once, none forgotten for another."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "shim"
SEED, PRIME, WORD = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
KINDS = 600
"""More than a transformer's training has."""


class Cost(ctypes.Structure):
    _fields_ = (("signature", ctypes.c_uint64), ("ns", ctypes.c_uint64), ("seen", ctypes.c_uint32))


@pytest.fixture
def costs(tmp_path: Path) -> ctypes.CDLL:
    """With an empty table: it is another library each time."""
    built = tmp_path / "costs.so"
    source = str(SHIM / "costs.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(built), source], check=True)
    library = ctypes.CDLL(str(built))
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
