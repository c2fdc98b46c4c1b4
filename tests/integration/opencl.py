"""OpenCL programs on PoCL: how tests build, start and measure them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.live.identity import launcher
from tests.integration.daemon_client import DaemonProcess

SOURCES = Path(__file__).parent.parent / "programs" / "opencl"
HEADWAY = (sys.executable, "-m", "headway", "run", "-q")
OURS = ("HEADWAY_", "LD_PRELOAD", "OPENCL_LAYERS", "POCL_")
ONE_DEVICE = {"POCL_MAX_PTHREAD_COUNT": "1"}
LOOPS_PER_US = "500"
"""How far a kernel's microsecond is from a real one matters little; that all agree on it does."""
ROUTES: dict[str, tuple[str, ...]] = {
    "as a layer": (),
    "before the loader": ("env", "-u", "OPENCL_LAYERS"),
    "under Headway twice": (*HEADWAY, "--"),
}
"""How a program's calls come to the gate, by what stands before its name."""


def compile_all(folder: Path) -> Path:
    for name in ("checks", "clapp", "shapes"):
        gcc = ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
        source, target = str(SOURCES / f"{name}.c"), str(folder / name)
        subprocess.run([*gcc, "-o", target, source, "-lOpenCL", "-lpthread"], check=True)
    return folder


def environment(**more: str) -> dict[str, str]:
    base = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    return base | ONE_DEVICE | {"LOOPS": LOOPS_PER_US} | more


def unmanaged() -> dict[str, str]:
    """One device on one CPU as under --software-gpu, with nobody at the gate."""
    device = {"HEADWAY_SOFTWARE_GPU": str(launcher.device_cpu())}
    return environment(LD_PRELOAD=str(launcher.library()), **device)


@dataclass
class Programs:
    """Built programs and, unless they run unmanaged, the daemon they run under."""

    built: Path
    daemon: DaemonProcess | None
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(
        self,
        name: str,
        *arguments: object,
        options: Sequence[str] = (),
        route: Sequence[str] = (),
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        command = [*route, str(self.built / name), *map(str, arguments)]
        variables = environment(**(env or {}))
        if self.daemon is None:
            variables = {**unmanaged(), **(env or {})}
        else:
            command = [*HEADWAY, *options, "--", *command]
            variables["HEADWAY_DIR"] = str(self.daemon.folder)
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.started.append(process)
        return process

    def run(self, name: str, *arguments: object, **how: Any) -> str:
        """What it prints."""
        return finish(self.start(name, *arguments, **how))

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        self.started.clear()


def finish(process: subprocess.Popen[str]) -> str:
    """What a program that was started prints until it ends, as it should."""
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What clapp measured."""
    return dict(json.loads(finish(process)))
