"""Words that two sides use at once are used by one header alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headway.live.wire import header

SHIM = Path(__file__).parents[2] / "shim"
HOMES = {"atomics.h", "fence.c"}
RAW = re.compile(r"__atomic_|__sync_|_Atomic|\bvolatile\b|stdatomic")


def code(path: Path) -> str:
    """Without comments, and without assembler, in which volatile means something else."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    return text.replace("__asm__ volatile", "")


def test_no_other_file_has_atomics_of_its_own() -> None:
    found = {path.name for path in SHIM.glob("*/*.[ch]") if RAW.search(code(path))}
    assert found == HOMES


@pytest.mark.parametrize(
    ("statement", "compiles"),
    [
        ("hw_store_full(&page->busy, 1);", True),
        ("page->busy = 1;", False),
        ("if (page->busy) return;", False),
        ("page->passed++;", False),
        ("page->done[3] = page->issued[3] + 1;", False),
    ],
)
def test_a_plain_access_to_a_page_does_not_compile(
    statement: str, compiles: bool, tmp_path: Path
) -> None:
    source = tmp_path / "page.c"
    source.write_text(
        f'#include "protocol.h"\nvoid f(struct hw_client_page *page) {{ {statement} }}\n'
    )
    folders = (SHIM / "core", header.write(tmp_path).parent)
    command = ["gcc", "-fsyntax-only", *(f"-I{folder}" for folder in folders), str(source)]
    assert (subprocess.run(command, capture_output=True).returncode == 0) == compiles
