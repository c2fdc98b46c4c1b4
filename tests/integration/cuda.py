"""CUDA programs on the software driver: how tests build, start and measure them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent.parent / "programs" / "cuda"
DRIVER = ("driver", "engine", "gpu", "launch", "lookup", "stream")
PROGRAMS = ("checks", "cudaapp")
Env = Mapping[str, object]
GCC = ("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror")


def compile_driver(folder: Path) -> Path:
    """Build libcuda.so.1, bound to itself: its look-ups must not find an interposer's wrappers."""
    library = folder / "libcuda.so.1"
    shared = ("-shared", "-fPIC", "-fvisibility=hidden")
    linker = ("-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,defs")
    sources = [str(SOURCES / f"{name}.c") for name in DRIVER]
    command = [*GCC, *shared, *linker, "-o", str(library), *sources, "-lpthread"]
    subprocess.run(command, check=True)
    return library


def compile_all(folder: Path) -> Path:
    """Build the driver and each program twice: linked with the driver, and one that looks it up."""
    library = str(compile_driver(folder))
    for name in PROGRAMS:
        source, target = str(SOURCES / f"{name}.c"), str(folder / name)
        subprocess.run([*GCC, "-o", target, source, "-ldl", "-lpthread"], check=True)
        linked = [*GCC, "-DLINKED", "-o", f"{target}-linked", source, library, "-lpthread"]
        subprocess.run(linked, check=True)
    return folder


@dataclass(frozen=True)
class Gpu:
    """A software GPU: processes given the same one compete for it."""

    built: Path
    file: Path

    def environment(self, env: Env | None = None) -> dict[str, str]:
        ours = ("SOFTCUDA_", "HEADWAY_")
        base = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        base |= {"LD_LIBRARY_PATH": str(self.built), "SOFTCUDA_GPU": str(self.file)}
        return base | {name: str(value) for name, value in (env or {}).items()}

    def command(self, program: str, *arguments: object) -> list[str]:
        return [str(self.built / program), *map(str, arguments)]

    def start(
        self, program: str, *arguments: object, env: Env | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(program, *arguments),
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, program: str, *arguments: object, env: Env | None = None
    ) -> subprocess.CompletedProcess[str]:
        return finish(self.start(program, *arguments, env=env))

    def app(
        self, *arguments: object, program: str = "cudaapp", env: Env | None = None
    ) -> dict[str, Any]:
        """What cudaapp measured."""
        return answer(self.run(program, *arguments, env=env))


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for a program that was started."""
    with process:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def answer(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))
