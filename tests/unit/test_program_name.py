"""What the interposer calls a program: a Python program by its script, as Python finds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "shim" / "core"
TELL = """
import ctypes, os
name = ctypes.create_string_buffer(16)
ctypes.CDLL(os.environ["NAME_LIBRARY"]).hw_program_name(name, ctypes.c_size_t(len(name)))
print(name.value.decode())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("name") / "name.so"
    source = str(SHIM / "name.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(built), source], check=True)
    return built


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["{}/train.py"], "train.py"),
        (["-u", "{}/train.py", "-c", "x"], "train.py"),
        (["-uW", "ignore", "-X", "dev", "train.py"], "train.py"),
        (["-Wignore", "-Xdev", "--check-hash-based-pycs", "never", "train.py"], "train.py"),
        (["-m", "train", "--epochs", "3"], "train"),
        (["-um", "train"], "train"),
        (["-mtrain"], "train"),
        (["{}/a name thats longer.py"], "a name thats lo"),
    ],
    ids=" ".join,
)
def test_a_python_program_is_called_by_what_it_runs(
    library: Path, tmp_path: Path, words: list[str], name: str
) -> None:
    """Python agrees about which word that is: it runs the script."""
    for script in ("train.py", "a name thats longer.py"):
        (tmp_path / script).write_text(TELL)
    words = [word.format(tmp_path) for word in words]
    assert told([sys.executable, *words], library, tmp_path) == name


def test_code_and_standard_input_have_no_name_of_their_own(library: Path, tmp_path: Path) -> None:
    python = Path(sys.executable).name
    assert told([sys.executable, "-c", TELL, "train.py"], library, tmp_path) == python
    assert told([sys.executable, "-", "train.py"], library, tmp_path, TELL) == python


def test_other_programs_keep_their_name(library: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TELL)
    command = ["bash", "-c", f"exec -a notpython {sys.executable} train.py"]
    assert told(command, library, tmp_path) == "notpython"


def told(command: list[str], library: Path, folder: Path, code: str = "") -> str:
    return subprocess.run(
        command,
        input=code,
        env={"NAME_LIBRARY": str(library), "PATH": "/usr/bin:/bin"},
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout.strip()
