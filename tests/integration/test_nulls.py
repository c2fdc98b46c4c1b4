"""A program may call any function with nothing but zeros: what it survives, and is told, is what
it is without Headway."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration import cuda
from tests.integration.gl import PROGRAMS, Stage

pytestmark = pytest.mark.timeout(120)

SHIM = PROGRAMS.parents[1] / "shim"


def hooked(definitions: str) -> list[str]:
    """The names that a list of hooks declares."""
    text = (SHIM / definitions).read_text()
    declared = re.findall(r"^[A-Z_]+\((.*?), \(", text, re.MULTILINE)
    return [name for part in declared for name in re.findall(r"\b(?:gl|egl|cu|cl|X)[A-Z]\w+", part)]


def survived(stdout: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in stdout.splitlines())


@pytest.mark.parametrize(
    ("api", "library", "definitions"),
    [
        ("gl", "libGL.so.1", "gl/hooks.def"),
        ("opencl", "libOpenCL.so.1", "opencl/opencl.def"),
    ],
)
def test_zeros_mean_the_same_with_headway(
    stage: Stage, api: str, library: str, definitions: str
) -> None:
    names = hooked(definitions)
    command = [str(stage.built / "nulls"), api, library, *names]
    alone = stage.run(*command, headway=False)
    managed = stage.run(*command, options=["-q", "--require"])
    assert alone.returncode == 0, alone.stderr
    assert sum("back" in answer for answer in survived(alone.stdout).values()) > len(names) / 2
    assert survived(managed.stdout) == survived(alone.stdout)


def test_zeros_mean_the_same_to_egl(stage: Stage) -> None:
    names = [name for name in hooked("gl/hooks.def") if name.startswith("egl")]
    command = [str(stage.built / "nulls"), "gl", "libEGL.so.1", *names]
    alone = stage.run(*command, headway=False)
    managed = stage.run(*command, options=["-q", "--require"])
    assert sum("back" in answer for answer in survived(alone.stdout).values()) > len(names) / 2
    assert survived(managed.stdout) == survived(alone.stdout)


def test_zeros_mean_the_same_to_cuda(managed: cuda.Managed, built: Path) -> None:
    names = hooked("cuda/cuda.def")
    command = ["cuda", "libcuda.so.1", *names]
    (managed.gpu.built / "nulls").write_bytes((built / "nulls").read_bytes())
    (managed.gpu.built / "nulls").chmod(0o755)
    alone = managed.gpu.run("nulls", *command)
    beside = managed.run("nulls", *command)
    assert alone.returncode == 0, alone.stderr
    assert sum("back" in answer for answer in survived(alone.stdout).values()) > len(names) / 4
    assert survived(beside.stdout) == survived(alone.stdout)


def test_sizes_that_are_none_are_refused_by_the_driver_alone(stage: Stage) -> None:
    """Two calls whose sizes come to nothing, as unsigned numbers, are no division by it."""
    command = [str(stage.built / "nulls"), "sizes", "libGLESv2.so.2", "glClear", "glDrawArrays"]
    alone = stage.run(*command, headway=False)
    managed = stage.run(*command, options=["-q", "--require"])
    assert survived(alone.stdout) == {"glClear": "back 0", "glDrawArrays": "back 1281"}
    assert survived(managed.stdout) == survived(alone.stdout)
