"""Kills at random instants: clients run freely, and one after the other is killed in the middle.

Unlike `kill_campaign`, which ends clients after a step, nobody here knows what a client is doing
when SIGKILL comes: connecting, reading its welcome, waiting, on the GPU, or leaving. After a few
kills two bystanders must each get the GPU; now and then the daemon is killed instead.

    python -m benchmarks.kill_instants [--kills 10000] [--seed S]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tests.integration.daemon_client import Client, DaemonProcess, Gone

CROWD = 6
CHECK_EVERY = 5
DAEMON_EVERY = 1000
STUCK_S = 5.0
LONGEST_S = 0.004
"""A client lives for up to so long: several groups, or not even until it is welcome."""


@dataclass
class Outcome:
    kills: int = 0
    stuck: int = 0
    restarts: int = 0
    left: int = 0
    """Clients that the daemon still lists after all have died."""
    waits_ms: list[float] = field(default_factory=list)

    def said(self) -> str:
        ordered = sorted(self.waits_ms)
        return (
            f"{self.kills} kills at random instants, {self.restarts} of the daemon; bystanders"
            f" waited {statistics.median(ordered):.1f} ms (median), {ordered[-1]:.1f} (worst);"
            f" {self.stuck} stuck, {self.left} of the dead still listed"
        )


def _live(path: Path, seed: int) -> NoReturn:
    """A client that does what clients do, for ever."""
    draws = random.Random(seed)
    try:
        while True:
            with contextlib.suppress(OSError, Gone), Client(path, f"victim{seed}") as client:
                while draws.random() < 0.9:
                    client.submit()
                    client.wait_grant()
                    client.set_busy(True)
                    if draws.random() < 0.3:
                        time.sleep(draws.random() * 0.001)
                    client.complete()
                    client.set_busy(False)
    finally:
        os._exit(0)


class Campaign:
    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.outcome = Outcome()
        self.folder = folder
        self.crowd: list[int] = []
        self._start()

    def _start(self) -> None:
        self.daemon = DaemonProcess(self.folder)
        token = self.daemon.ask(do="run", priority=9)["token"]
        self.bystanders = [self.daemon.client(f"bystander{i}", token) for i in range(2)]

    def _fork(self) -> None:
        seed = self.random.randrange(2**31)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _live(self.daemon.socket, seed)
        self.crowd.append(pid)

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.crowd.remove(pid)
        self.outcome.kills += 1

    def step(self) -> None:
        while len(self.crowd) < CROWD:
            self._fork()
        time.sleep(self.random.random() * LONGEST_S)
        self._kill(self.random.choice(self.crowd))
        if self.outcome.kills % DAEMON_EVERY == 0:
            self.daemon.kill()
            for client in self.bystanders:
                client.close()
            self._start()
            self.outcome.restarts += 1
        if self.outcome.kills % CHECK_EVERY == 0:
            self._check()

    def _check(self) -> None:
        for client in self.bystanders:
            try:
                self.outcome.waits_ms.append(client.one_group(STUCK_S) / 1e6)
            except TimeoutError:
                self.outcome.stuck += 1

    def end(self) -> None:
        for pid in list(self.crowd):
            self._kill(pid)
        end = time.monotonic() + STUCK_S
        while time.monotonic() < end and self._dead_listed():
            time.sleep(0.01)
        self.outcome.left = self._dead_listed()
        self._check()
        for client in self.bystanders:
            client.close()
        self.daemon.end()

    def _dead_listed(self) -> int:
        return sum(name.startswith("victim") for name in self.daemon.names())


def run_kills(folder: Path, seed: int, kills: int) -> Outcome:
    campaign = Campaign(folder, seed)
    try:
        while campaign.outcome.kills < kills:
            campaign.step()
    finally:
        campaign.end()
    return campaign.outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_kills(Path(folder) / "run", options.seed, options.kills)
    print(outcome.said())
    raise SystemExit(1 if outcome.stuck or outcome.left else 0)


if __name__ == "__main__":
    main()
