"""Many programs, each a process of its own: 300 that start at once, 2000 of which 64 ask, 4096 that
are idle; and the same beside a plain server in C.

    python -m benchmarks.daemon_scale [--idle 4096] [--many 2000]

Idle programs are connections of 64 processes. A program that asks does so 200 times, with pauses
of 20 to 100 ms, and says at once that its group is done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from tests.integration.daemon_client import Client, running_daemon

GROUPS, ASKERS = 200, 64
PAUSE_S = (0.02, 0.1)
SOURCE = Path(__file__).parent / "launch" / "grants.c"
LIMIT_S = 120


class Asks(Protocol):
    def one_group(self) -> int: ...


class Plain:
    """A program of the plain server."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))

    def one_group(self) -> int:
        since_ns = time.monotonic_ns()
        self.socket.send(b"a")
        self.socket.recv(16)
        granted_ns = time.monotonic_ns()
        self.socket.send(b"d")
        return granted_ns - since_ns


Connect = Callable[[], Asks]


@contextlib.contextmanager
def crowd(connect: Connect, count: int, askers: int, each: int = 1) -> Iterator[list[list[int]]]:
    """So many processes that start at once: what each waited for its first grant, since its start,
    and then for others, in ns; nothing of who was not served. They stay until the block ends."""
    begin_read, begin = os.pipe()
    end_read, end = os.pipe()
    told_read, told = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(begin)
            os.close(end)
            os.read(begin_read, 1)
            waits: list[int] = []
            kept: list[Asks] = []
            with contextlib.suppress(Exception):
                since_ns = time.monotonic_ns()
                kept = [connect() for _ in range(each)]
                kept[0].one_group()
                waits.append(time.monotonic_ns() - since_ns)
                for _ in range(GROUPS if number < askers else 0):
                    time.sleep(random.uniform(*PAUSE_S))
                    waits.append(kept[0].one_group())
            os.write(told, (json.dumps(waits) + "\n").encode())
            os.read(end_read, 1)
            os._exit(0)
        children.append(child)
    os.close(told)
    time.sleep(0.5)  # all of them wait for the beginning
    os.close(begin)
    try:
        found, data = list[list[int]](), b""
        while len(found) < count:
            data += os.read(told_read, 65536)
            *lines, data = data.split(b"\n")
            found += [json.loads(line) for line in lines]
        yield found
    finally:
        os.close(end)
        for child in children:
            os.waitpid(child, 0)
        for fd in (begin_read, end_read, told_read):
            os.close(fd)


@contextlib.contextmanager
def plain_server(folder: Path) -> Iterator[Path]:
    program, path = folder / "grants", folder / "grants.sock"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(SOURCE)]
    subprocess.run(command, check=True)
    with subprocess.Popen([program, path], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield path
        finally:
            server.kill()


def p(waits: list[int], part: float) -> float:
    return sorted(waits)[int(part * (len(waits) - 1))] / 1e6 if waits else float("nan")


def started(name: str, connect: Connect, count: int) -> float:
    with crowd(connect, count, 0) as found:
        first = [waits[0] for waits in found if waits]
    print(f"{name}: {count} processes at once, {len(first)} served; first grant p50 "
          f"{p(first, 0.5):.0f} ms, p99 {p(first, 0.99):.0f} ms", flush=True)  # fmt: skip
    return p(first, 0.5)


def asking(name: str, connect: Connect, count: int) -> float:
    with crowd(connect, count, ASKERS) as found:
        waits = [wait for one in found for wait in one[1:]]
        served = sum(map(bool, found))
    print(f"{name}: {count} processes, {served} served, {ASKERS} ask: grant p50 "
          f"{p(waits, 0.5):.2f} ms, p99 {p(waits, 0.99):.2f} ms, mean "
          f"{statistics.fmean(waits) / 1e6:.2f} ms", flush=True)  # fmt: skip
    return p(waits, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=int, default=4096)
    parser.add_argument("--many", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            plain_server(folder) as path,
            running_daemon(folder / "run", descriptors=65536) as daemon,
        ):
            ways: dict[str, Connect] = {
                "plain C": lambda: Plain(path),
                "Headway": lambda: Client(daemon.socket, "crowd"),
            }
            start = {way: started(way, connect, 300) for way, connect in ways.items()}
            wait = {way: asking(way, connect, given.many) for way, connect in ways.items()}
            print(f"Headway to plain C: start {start['Headway'] / start['plain C']:.1f}, "
                  f"grant {wait['Headway'] / wait['plain C']:.1f}")  # fmt: skip
            with crowd(ways["Headway"], 64, 0, given.idle // 64):
                time.sleep(1)
                used_s, since_s = daemon.cpu_s(), time.monotonic()
                time.sleep(5)
                share = (daemon.cpu_s() - used_s) / (time.monotonic() - since_s)
                print(f"Headway: {given.idle // 64 * 64} idle programs cost {share:.2%} of a CPU")


if __name__ == "__main__":
    main()
