"""The interposer's own code in every order of its accesses, beside the daemon's and other threads.

tests/interleave makes the orders: stores that need not be seen at once are seen late, out of order
as far as C lets them. What must hold is in stories.c; a mistake put into a copy must be found.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from headway.live.wire import header

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "tests" / "interleave"
FILES = ("core/gate", *(f"stream/{name}" for name in ("turn", "lanes", "pieces", "costs", "jobs")))
STORIES = ("lease", "turn", "rest", "revoke", "asks", "piece", "join", "joins", "three", "loans")
GCC = ("gcc", "-std=gnu11", "-O0", "-Wall", "-Wextra", "-Werror")


def build(folder: Path, shim: Path, *defines: str) -> Path:
    header.write(folder)
    sources = [OURS / "explore.c", OURS / "stories.c", *(shim / f"{name}.c" for name in FILES)]
    places = [OURS, folder, *(shim / name for name in ("core", "gl", "stream", "cuda"))]
    flags = [f"-I{place}" for place in places] + [f"-D{name}" for name in defines]
    program = folder / "stories"
    model = '-DHEADWAY_MODEL="model.h"'
    subprocess.run([*GCC, model, *flags, "-o", program, *sources, "-lpthread"], check=True)
    return program


def tell(program: Path, story: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), story]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("interleave"), ROOT / "shim")


@pytest.mark.parametrize("story", STORIES)
def test_whatever_the_order_one_of_two_sees_the_other(stories: Path, story: str) -> None:
    done = tell(stories, story)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout) > 5, "there was more than one order"


class Mistake(NamedTuple):
    story: str
    """Where it must be found."""
    file: str
    before: str
    after: str


MISTAKES = {
    "no second look at the lease": Mistake(
        "lease", "core/gate.c", "return hw_load_full(&daemon->lease);", "return true;"
    ),
    "busy may be seen late": Mistake(
        "lease", "core/gate.c", "hw_store_full(&page->busy, 1);", "hw_store(&page->busy, 1);"
    ),
    "what is about to go is not told": Mistake(
        "turn", "core/gate.c", "hw_store_full(&page->unmarked, 1);", "(void)0;"
    ),
    "the end of a turn may be seen late": Mistake(
        "rest", "stream/turn.c", "hw_store_full(&page->busy, 0);", "hw_store(&page->busy, 0);"
    ),
    "a piece may be seen late": Mistake(
        "piece",
        "stream/pieces.c",
        "hw_store_full(&page->given[lane->slot], seq);",
        "hw_store(&page->given[lane->slot], seq);",
    ),
    "a loan that has ended can be joined": Mistake(
        "join",
        "stream/lanes.c",
        "hw_exchange_full(&hw_fast.room, hw_room_of(hw.loan, 0))",
        "hw_load(&hw_fast.room)",
    ),
    "who joins does not say so before": Mistake(
        "join", "stream/turn.h", "    hw_add_full(&hw_fast.joining, 1);\n", ""
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, tmp_path: Path) -> None:
    mistake, shim = MISTAKES[name], tmp_path / "shim"
    shutil.copytree(ROOT / "shim", shim)
    file = shim / mistake.file
    text = file.read_text()
    assert text.count(mistake.before) == 1
    file.write_text(text.replace(mistake.before, mistake.after))
    done = tell(build(tmp_path, shim), mistake.story)
    assert done.returncode == 1, done.stdout
    assert "thread " in done.stdout, "the order is shown"


def test_a_daemon_without_a_fence_is_found(tmp_path: Path) -> None:
    assert tell(build(tmp_path, ROOT / "shim", "NO_FENCE"), "lease").returncode == 1
