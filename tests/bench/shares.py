"""Programs with a share of the multiprocessors: how they are started as under MPS, and their pages,
read and written from outside while everything runs."""

from __future__ import annotations

import time
from pathlib import Path

from headway.live.wire.layout import CLIENT_PAGE, DAEMON_PAGE, PAGE
from headway.live.wire.records import Record
from tests.integration import cuda
from tests.integration.daemon_client import wait_until


def beside_others(folder: Path) -> dict[str, object]:
    """An environment in which a program seems to run under MPS: only there shares mean anything."""
    pipes = folder / "pipes"
    pipes.mkdir(exist_ok=True)
    (pipes / "control").touch()
    return {"CUDA_MPS_PIPE_DIRECTORY": pipes, "SOFTCUDA_GPU": ""}


def with_share(
    managed: cuda.Managed, program: str, share: str, folder: Path, *words: object, **env: object
) -> cuda.Program:
    """A program that was told this share, and that it is not more than others stand."""
    environment = {**beside_others(folder), **env}
    return managed.start_directly(program, *words, env=environment, share=share)


def wait_until_told(managed: cuda.Managed, program: cuda.Program, permille: int) -> None:
    wait_until(
        lambda: managed.entry(program)["share_told"] == permille, f"told {permille} thousandths"
    )


def parts(log: Path, program: cuda.Program) -> list[str]:
    """Its kernels on the GPU, in order: `spin_us@32` on 32 multiprocessors."""
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 4]
    kernels = [kind for pid, _, kind, _, _ in lines if int(pid) == program.pid]
    return [kind for kind in kernels if kind.startswith(("spin", "nccl"))]


class Word:
    """A word of a page, in the memory of the process that writes it."""

    def __init__(self, pid: int, page: Record, file: str, name: str) -> None:
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        (found,) = {line.partition("-")[0] for line in maps if f"/memfd:{file}" in line}
        self._at = int(found, 16)
        self._page, self._name = page, name
        self._memory = Path(f"/proc/{pid}/mem").open("r+b", buffering=0)  # noqa: SIM115

    def read(self) -> int:
        self._memory.seek(self._at)
        return self._page.read(self._memory.read(PAGE), self._name)

    def write(self, value: int) -> None:
        place = bytearray(PAGE)
        self._page.write(place, self._name, value)
        at = self._page.at(self._name)
        self._memory.seek(self._at + at)
        self._memory.write(place[at : at + 4])

    def close(self) -> None:
        self._memory.close()


class Changer:
    """Changes the share that the daemon tells the only program, and sees when that keeps to it."""

    def __init__(self, managed: cuda.Managed, program: cuda.Program) -> None:
        self._told = Word(managed.daemon.pid, DAEMON_PAGE, "headway-daemon", "share")
        self._kept = Word(program.pid, CLIENT_PAGE, "headway-client", "share")

    def change(self, permille: int, kept: int, patience_s: float = 5.0) -> int:
        """Tell another share; the ns until the first group went under it."""
        begun_ns = time.monotonic_ns()
        self._told.write(permille)
        while self._kept.read() != kept:
            assert time.monotonic_ns() - begun_ns < patience_s * 1e9, f"{permille} is not kept"
        return time.monotonic_ns() - begun_ns

    def close(self) -> None:
        self._told.close()
        self._kept.close()
