"""From the wheel to a protected program, for a stranger: another user, a path with a space."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemon_client import ROOT

pytestmark = pytest.mark.live
NOBODY = 65534


@pytest.fixture(scope="module")
def wheel() -> Path:
    subprocess.run(["make", "wheel"], cwd=ROOT, check=True, capture_output=True, timeout=280)
    (found,) = (ROOT / "dist").glob("*.whl")
    return found


def everybodys_python() -> str:
    """An interpreter that another user may run; ours may lie in a home of root's."""
    if all(parent.stat().st_mode & 0o001 for parent in Path(sys.executable).resolve().parents):
        return sys.executable
    return "/usr/bin/python3"


@pytest.fixture(scope="module")
def stranger(wheel: Path) -> Iterator[Stranger]:
    # Not in pytest's own folder, which pytest closes to others whenever it starts.
    with tempfile.TemporaryDirectory(prefix="home of a stranger ") as name:
        yield from _stranger(wheel, Path(name))


def _stranger(wheel: Path, folder: Path) -> Iterator[Stranger]:
    folder.chmod(0o755)
    stranger = Stranger(folder)
    shutil.copy(wheel, folder)
    home = str(folder / "a venv")
    subprocess.run([everybodys_python(), "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", f"{home}/bin/python", "install", "--quiet"]
    subprocess.run([*pip, str(folder / wheel.name)], check=True, capture_output=True)
    (folder / "run").mkdir(mode=0o700)
    stranger.own()
    yield stranger
    stranger.run("stop", check=False)


class Stranger:
    """A user who has nothing but a wheel; the one who runs the tests, if that is not root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uid = NOBODY if os.getuid() == 0 else None
        self.env = {
            "HOME": str(folder),
            "PATH": f"{folder / 'a venv' / 'bin'}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "LANG": "C.UTF-8",
        }

    def own(self) -> None:
        if self.uid is None:
            return
        group = pwd.getpwuid(NOBODY).pw_gid
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, NOBODY, group, follow_symlinks=False)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["headway", *command],
            env=self.env,
            cwd=self.folder,
            user=self.uid,
            group=None if self.uid is None else pwd.getpwuid(NOBODY).pw_gid,
            extra_groups=None if self.uid is None else [],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done


def test_the_wheel_is_for_any_linux_with_glibc_2_28(wheel: Path) -> None:
    found = re.findall(r"manylinux_(\d+)_(\d+)_", wheel.name)
    assert found
    assert all((int(major), int(minor)) <= (2, 28) for major, minor in found)
    assert "-py3-none-" in wheel.name


def test_a_stranger_protects_a_program(stranger: Stranger) -> None:
    ran = stranger.run("run", "--require", "--priority", "9", "--", "sh", "-c", "echo managed")
    assert ran.stdout == "managed\n"
    assert ran.stderr == ""
    maps = stranger.run("run", "--require", "--", "cat", "/proc/self/maps").stdout
    assert "libheadway.so" in maps  # though the path has a space
    inside = stranger.run("run", "--require", "--", "headway", "status", "--json")
    assert '"channels"' in inside.stdout  # the daemon lives as long as the program


def test_examples_come_with_the_wheel(stranger: Stranger) -> None:
    assert "bombs.toml" in stranger.run("examples").stdout
    stranger.run("examples", "--copy", str(stranger.folder / "mine"))
    assert "groups" in stranger.run("sim", str(stranger.folder / "mine" / "fair.toml")).stdout
    again = stranger.run("examples", "--copy", str(stranger.folder / "mine"), check=False)
    assert again.returncode == 2
    assert "expected a folder that is not there yet" in again.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion(stranger: Stranger, shell: str) -> None:
    script = stranger.run("completion", shell).stdout
    assert "_HEADWAY_COMPLETE" in script


def test_bash_completes_commands_policies_and_tasks(stranger: Stranger) -> None:
    script = stranger.run("completion", "bash").stdout
    tries = "COMP_WORDS=(headway {}); COMP_CWORD={}; _headway_completion headway; "
    tries += 'echo "${{COMPREPLY[@]}}"'
    asked = "\n".join([script, tries.format("ex", 1), tries.format("run --policy p", 3)])
    done = subprocess.run(
        ["bash", "-c", asked], env=stranger.env, capture_output=True, text=True, check=True
    )
    commands, policies = done.stdout.splitlines()[-2:]
    assert commands.split() == ["examples", "explain"]
    assert "prt" in policies.split()
