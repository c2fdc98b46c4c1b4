"""How long from asking to being granted, how many grants a second, and what an idle daemon costs.

One driver process plays all clients in a closed loop: whoever is granted completes and asks again
at once. With one client that is the round trip; with many what the daemon can hand out. Leases
are there and not used.

    python -m benchmarks.daemon_latency [--groups 20000]
"""

from __future__ import annotations

import argparse
import contextlib
import select
import tempfile
import time
from pathlib import Path

from headway.live.wire.protocol import MESSAGE_SIZE
from tests.integration.daemon_client import Client, DaemonProcess, running_daemon


def closed_loop(daemon: DaemonProcess, clients: int, groups: int) -> tuple[list[int], float]:
    """Waits of all groups in ns, sorted, and grants a second."""
    waits: list[int] = []
    with contextlib.ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        by_fd: dict[int, Client] = {}
        since_ns: dict[int, int] = {}
        for number in range(clients):
            client = stack.enter_context(daemon.client(f"client{number}"))
            by_fd[client.socket.fileno()] = client
            poll.register(client.socket.fileno(), select.EPOLLIN)
        began = time.monotonic()
        for fd, client in by_fd.items():
            since_ns[fd] = time.monotonic_ns()
            client.submit()
        while len(waits) < groups:
            for fd, _ in poll.poll(10):
                client = by_fd[fd]
                client.socket.recv(MESSAGE_SIZE)
                waits.append(time.monotonic_ns() - since_ns[fd])
                client.complete()
                since_ns[fd] = time.monotonic_ns()
                client.submit()
        rate = len(waits) / (time.monotonic() - began)
    return sorted(waits), rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=20_000)
    options = parser.parse_args()
    print(f"{'clients':>8}{'p50 us':>10}{'p99 us':>10}{'grants/s':>10}{'daemon us':>11}")
    with (
        tempfile.TemporaryDirectory() as folder,
        running_daemon(Path(folder) / "run") as daemon,
    ):
        for clients in (1, 8, 64):
            used_s = daemon.cpu_s()
            waits, rate = closed_loop(daemon, clients, options.groups)
            each_us = (daemon.cpu_s() - used_s) / len(waits) * 1e6
            p50, p99 = (waits[int(len(waits) * q)] / 1e3 for q in (0.5, 0.99))
            print(f"{clients:>8}{p50:>10.0f}{p99:>10.0f}{rate:>10.0f}{each_us:>11.1f}")
        for clients in (0, 1, 64):
            with contextlib.ExitStack() as stack:
                for _ in range(clients):
                    stack.enter_context(daemon.client("idle"))
                used_s, since = daemon.cpu_s(), time.monotonic()
                time.sleep(3)
                share = (daemon.cpu_s() - used_s) / (time.monotonic() - since)
            print(f"idle, {clients} clients: {share:.2%} of a CPU")


if __name__ == "__main__":
    main()
