"""A GPU, the programs built for it, and ways to run them: as they are, under MPS, under Headway."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def headway(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headway", *arguments]


def build(folder: Path) -> None:
    """The programs, and the interposer where it was not installed."""
    for source in sorted(HERE.glob("*.cu")):
        target = folder / source.stem
        subprocess.run(["nvcc", "-O2", "-arch=native", "-o", target, source], check=True)
    library = ROOT / "src" / "headway" / "live" / "libheadway.so"
    shim = sorted(str(path) for path in (ROOT / "shim").glob("*.c"))
    options = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run(["gcc", *options, "-o", library, *shim, "-ldl", "-lpthread"], check=True)


@dataclass
class Stage:
    """A folder with programs, and the environment they run in."""

    built: Path
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), self.env.get("PYTHONPATH", "")]))
        return {**self.env, "PYTHONPATH": path, **more}

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(command),
            env=self.environment(**(env or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def app(self, *arguments: object) -> list[str]:
        return [str(self.built / "app"), *map(str, arguments)]

    def status(self) -> dict[str, Any]:
        done = subprocess.run(
            headway("status", "--json"), env=self.environment(), capture_output=True, check=True
        )
        return dict(json.loads(done.stdout))


def finish(process: subprocess.Popen[str], timeout_s: float = 60.0) -> dict[str, Any]:
    """The JSON line that the program ends with, or what went wrong."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"error": "hung"}
    try:
        return dict(json.loads(out.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return {"error": f"exit {process.returncode}: {err[-300:]}"}


@contextlib.contextmanager
def opened() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="headway-gpu-") as name:
        folder = Path(name)
        build(folder)
        stage = Stage(folder)
        found = subprocess.run(
            stage.app("cal"), env=stage.environment(), capture_output=True, text=True, check=True
        )
        stage.env["ITERS_PER_US"] = found.stdout.strip()
        yield stage


@contextlib.contextmanager
def mps(stage: Stage) -> Iterator[Stage]:
    """The same stage with an MPS daemon of its own."""
    folder = stage.built / "mps"
    folder.mkdir(exist_ok=True)
    own = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    other = Stage(stage.built, {**stage.env, **own})
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=other.environment(), check=True)
    time.sleep(1)
    try:
        yield other
    finally:
        subprocess.run(
            ["nvidia-cuda-mps-control"], input="quit\n", text=True, env=other.environment()
        )
        time.sleep(1)


@contextlib.contextmanager
def daemon(stage: Stage, *options: str) -> Iterator[Stage]:
    """The same stage with a Headway daemon of its own."""
    folder = Path(tempfile.mkdtemp(prefix="headway-d-"))
    other = Stage(stage.built, {**stage.env, "HEADWAY_DIR": str(folder)})
    log = (stage.built / "daemon.log").open("a")
    process = subprocess.Popen(
        headway("daemon", *options), env=other.environment(), stdout=log, stderr=log
    )
    for _ in range(200):
        if (folder / "control.sock").exists():
            break
        time.sleep(0.05)
    try:
        yield other
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
