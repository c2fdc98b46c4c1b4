"""Vulkan passes unmanaged: a program that has it says so in a line, those who watch see it, and
with --require a program does not get it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import gl
from tests.integration.command import HEADWAY, headway
from tests.integration.daemon_client import DaemonProcess, running_daemon

SOURCES = gl.PROGRAMS / "vulkan"
PASSES = "what it does with Vulkan passes unmanaged"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs that are linked with Vulkan, open it, or have a driver that does."""
    folder = tmp_path_factory.mktemp("vulkan")
    shared, uses = ("-shared", "-fPIC"), SOURCES / "uses.c"
    library = folder / "libvulkan.so.1"
    soname = "-Wl,-soname,libvulkan.so.1"
    gl.compile_program(SOURCES / "libvulkan.c", library, *shared, soname)
    gl.compile_program(uses, folder / "libgallium-1.so", *shared, "-DDRIVER", "-ldl")
    gl.compile_program(uses, folder / "opens", "-ldl")
    gl.compile_program(uses, folder / "draws", "-DGL", "-ldl")
    gl.compile_program(uses, folder / "linked", "-DLINKED", str(library))
    inner = folder / "libinner.so"
    gl.compile_program(uses, inner, *shared, "-DDRIVER", "-DLINKED", str(library))
    gl.compile_program(
        uses, folder / "deep", "-Wl,--no-as-needed", str(inner), f"-Wl,-rpath-link,{folder}"
    )
    return folder


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path / "r") as made:
        yield made


def environment(daemon: DaemonProcess, built: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(built), "HEADWAY_DIR": str(daemon.folder)}


def run(
    daemon: DaemonProcess, built: Path, *words: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HEADWAY, "run", *words],
        cwd=cwd or built,
        env=environment(daemon, built),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("program", ["opens", "linked"])
def test_a_program_with_vulkan_says_so_in_one_line(
    daemon: DaemonProcess, built: Path, program: str
) -> None:
    result = run(daemon, built, "--", f"./{program}")
    assert (result.returncode, result.stdout) == (0, "used 0\n")
    assert result.stderr == f"headway: {program}: {PASSES}\n"
    result = run(daemon, built, "-q", "--", f"./{program}")
    assert (result.returncode, result.stdout, result.stderr) == (0, "used 0\n", "")


def test_an_opengl_driver_that_is_made_of_vulkan_is_none(
    daemon: DaemonProcess, built: Path
) -> None:
    """What such a driver does comes from OpenGL, which is managed."""
    for options in ((), ("--require",)):
        result = run(daemon, built, *options, "--", "./draws")
        assert (result.returncode, result.stdout, result.stderr) == (0, "used 0\n", "")


@pytest.mark.parametrize("program", ["opens", "linked", "deep"])
def test_no_program_runs_on_vulkan_under_require(
    daemon: DaemonProcess, built: Path, program: str
) -> None:
    result = run(daemon, built, "--require", "--", f"./{program}")
    assert len(result.stderr.splitlines()) == 1
    assert "Vulkan" in result.stderr
    assert "--require" in result.stderr
    if program == "opens":  # it may have another way, and says itself that it has none
        assert result.returncode == 3
        assert result.stdout.startswith("no Vulkan: libvulkan.so, which headway run --require")
    else:
        assert (result.returncode, result.stdout) == (2, "")


def test_a_child_does_not_run_on_vulkan_under_require_either(
    daemon: DaemonProcess, built: Path
) -> None:
    result = run(daemon, built, "--require", "--", "sh", "-c", "./linked; echo $?")
    assert result.stdout == "2\n"
    assert result.stderr.startswith("headway: linked: it is linked with Vulkan")


def test_nothing_is_said_to_a_file_that_took_the_place_of_standard_error(
    daemon: DaemonProcess, built: Path, tmp_path: Path
) -> None:
    """A program may open its own file under that number."""
    code = "import ctypes, os, sys\n"
    code += f"os.dup2(os.open({str(tmp_path / 'data')!r}, os.O_RDWR | os.O_CREAT), 2)\n"
    code += "ctypes.CDLL('libvulkan.so.1').vkGetInstanceProcAddr\n"
    result = run(daemon, built, "--", "python3", "-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "data").read_bytes() == b""


def test_those_who_watch_see_it(daemon: DaemonProcess, built: Path) -> None:
    env = environment(daemon, built)
    with subprocess.Popen(
        [HEADWAY, "run", "-q", "--", "./opens"],
        cwd=built,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "used 0\n"
        task = f"opens.{program.pid}"
        for command in ("ps", "status"):
            told = headway(command, env={**env, "COLUMNS": "150"})
            assert told.returncode == 0, told.stderr
            assert f"{task}: {PASSES}" in told.stdout
            row = next(
                r
                for r in map(str.split, told.stdout.splitlines())
                if r[:2] == ["opens", str(program.pid)]
            )
            assert "unmanaged" in row
        found = json.loads(headway("status", "--json", env=env).stdout)["unmanaged"]
        assert found == [{"task": task, "pid": program.pid, "why": PASSES}]
        for name in ("opens", str(program.pid)):
            told = headway("explain", name, env=env)
            assert (told.returncode, told.stderr) == (0, "")
            assert told.stdout == f"{task}: {PASSES}: no daemon decides when\n"
        checks = json.loads(headway("doctor", "--json", env=env).stdout)["checks"]
        (check,) = (entry for entry in checks if entry["check"] == "daemon")
        assert check["state"] == "warn"
        assert f"Vulkan passes unmanaged in {task}" in check["found"]
        program.communicate("")
    assert headway("explain", "opens", env=env).returncode == 2


@pytest.mark.parametrize("program", ["opens", "linked"])
def test_the_doctor_sees_it_pass(daemon: DaemonProcess, built: Path, program: str) -> None:
    words = ("doctor", "--json", "--", str(built / program))
    answer = json.loads(headway(*words, env=environment(daemon, built)).stdout)
    (api,) = answer["run"]["survey"]["apis"]
    assert api["name"] == "Vulkan"
    assert {entry["why"] for entry in api["passed"]} == {"Vulkan is not managed"}
    names = [entry["name"] for entry in api["passed"]]
    assert names == (["vkQueueSubmit"] if program == "linked" else ["vkGetInstanceProcAddr"])
