"""From the wheel to a protected program, for a stranger: another user, a path with a space."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon_client import ROOT, wait_until
from tests.integration.gl import LIBRARIES, PROGRAMS, compile_program, xvfb

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
            **self.identity(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0 or not check, done.stderr
        return done

    def start(self, *command: str | Path) -> subprocess.Popen[bytes]:
        out = subprocess.DEVNULL
        return subprocess.Popen(command, **self.identity(), stdout=out, stderr=out)

    def identity(self) -> dict[str, Any]:
        return {
            "env": self.env,
            "cwd": self.folder,
            "user": self.uid,
            "group": None if self.uid is None else pwd.getpwuid(NOBODY).pw_gid,
            "extra_groups": None if self.uid is None else [],
        }


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


def frames_in(stranger: Stranger, trace: str) -> int:
    """Of es2gears, as the page says, in as long as every trace here takes."""
    stranger.run("trace", "-o", trace, "--for", "3s")
    assert ": fine, " in stranger.run("check", trace).stdout
    page = trace.replace(".pftrace", ".html")
    assert f"{page}: 2 tasks" in stranger.run("report", trace).stdout
    (data,) = re.findall(r'id="data">(.*?)</script>', (stranger.folder / page).read_text())
    tasks = {task["name"].split(".")[0]: task for task in json.loads(data)["tasks"]}
    return sum(tasks["es2gears_x11"]["frames"][1::2])


def test_five_minutes_of_a_new_user(stranger: Stranger) -> None:
    """Two programs that draw as fast as they can, on a software GPU: which goes first is seen in
    top, in a trace and in its page, and is the other way round a moment later."""
    bomb = stranger.folder / "bomb"
    compile_program(PROGRAMS / "bomb.c", bomb, *LIBRARIES["bomb"])
    bomb.chmod(0o755)
    with xvfb("-ac") as display:
        stranger.env["DISPLAY"] = display
        run = ("headway", "run", "--software-gpu", "--require", "--priority")
        programs = [
            stranger.start(*run, "1", "--", bomb, "120"),
            stranger.start(*run, "9", "--", "es2gears_x11"),
        ]
        try:
            wait_until(
                lambda: (
                    {"bomb", "es2gears_x11"}
                    <= {*stranger.run("top", "--once", check=False).stdout.split()}
                ),
                "both programs in top",
            )
            assert "priority 9" in stranger.run("explain", "es2gears_x11").stdout
            first = frames_in(stranger, "first.pftrace")
            stranger.run("set", "bomb", "--priority", "20")
            last = frames_in(stranger, "last.pftrace")
        finally:
            for program in programs:
                program.terminate()
                program.wait()
    assert first > 2 * last


def test_what_is_read_and_what_is_operated_comes_with_the_wheel(stranger: Stranger) -> None:
    found = subprocess.run(
        ["man", "-w", "headway", "headway-run"],
        env=stranger.env,
        check=True,
        capture_output=True,
        text=True,
    )
    assert all("a venv/share/man" in line for line in found.stdout.splitlines())
    for name in ("headway.service", "headway-user.service", "grafana.json"):
        there = (ROOT / "packaging" / name).read_text()
        assert stranger.run("examples", f"operate/{name}").stdout == there


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
