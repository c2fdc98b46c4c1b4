"""Random ends of random clients at random steps: does anybody ever get stuck?

A pool of client processes is driven through random steps; at random moments one is killed, stopped,
continued or told to exit, and now and then the daemon is. After each action two bystanders must get
the GPU one after the other; the table says how long the first had to wait.

    python -m benchmarks.kill_campaign [--actions 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.daemon_client import Actor, DaemonProcess

POOL = 6
STUCK_S = 5.0
GOAL_MS = 100.0
STEPS = ("connect", "submit", "wait_grant", "busy", "complete", "busy", "idle", "release")
"""What a victim does, over and over (connecting once). `busy` is said with and without a lease."""
FATES = {"kill -9": 40, "exit": 25, "stop": 30, "daemon": 5}


@dataclass
class Outcome:
    """What happened."""

    times_ms: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    stuck: int = 0
    restarts: int = 0

    @property
    def worst_ms(self) -> float:
        return max((max(times) for times in self.times_ms.values()), default=0.0)

    def table(self) -> str:
        lines = [f"{'fate':<10}{'step':<12}{'times':>6}{'median ms':>11}{'worst ms':>10}"]
        for (fate, step), times in sorted(self.times_ms.items()):
            middle, worst = statistics.median(times), max(times)
            lines.append(f"{fate:<10}{step:<12}{len(times):>6}{middle:>11.1f}{worst:>10.1f}")
        count = sum(map(len, self.times_ms.values()))
        late = sum(ms > GOAL_MS for times in self.times_ms.values() for ms in times)
        lines.append(
            f"{count} actions, {self.stuck} stuck, {late} above {GOAL_MS:.0f} ms,"
            f" worst {self.worst_ms:.1f} ms, the daemon ended {self.restarts} times"
        )
        return "\n".join(lines)


class Victim:
    """A client process, and how far it is."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.actor = Actor(daemon)
        self.step = 0
        self.stopped = False

    @property
    def last(self) -> str:
        """What it did last."""
        return STEPS[self.step - 1] if self.step else "start"

    def advance(self) -> None:
        self.actor.do(STEPS[self.step])
        self.step += 1
        if self.step == len(STEPS):
            self.step = 1


class Campaign:
    """A daemon, a pool of victims, and two bystanders of a higher priority."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.outcome = Outcome()
        self.victims: list[Victim] = []
        self._start(folder)

    def _start(self, folder: Path) -> None:
        self.daemon = DaemonProcess(folder)
        token = self.daemon.ask(do="run", priority=9)["token"]
        self.bystanders = [self.daemon.client(f"bystander{i}", token) for i in range(2)]

    def close(self) -> None:
        for victim in self.victims:
            victim.actor.__exit__(None, None, None)
        for client in self.bystanders:
            client.close()
        self.daemon.end()
        self.victims = []

    def act(self) -> None:
        """One victim goes on for some steps and meets its fate; then the bystanders ask."""
        while len(self.victims) < POOL:
            self.victims.append(Victim(self.daemon))
        victim = self.random.choice(self.victims)
        if victim.stopped:
            victim.actor.signal(signal.SIGCONT)
            victim.stopped = False
        for _ in range(self.random.randrange(2 * len(STEPS))):
            victim.advance()
        if victim.step:  # it waits for another one, perhaps for one that waits for it
            server = self.random.choice(self.victims)
            victim.actor.do(f"enter {server.actor.pid}")
        fate = self.random.choices(list(FATES), list(FATES.values()))[0]
        since_ns = time.monotonic_ns()
        if fate == "stop":
            victim.actor.signal(signal.SIGSTOP)
            victim.stopped = True
        elif fate == "daemon":
            self.daemon.kill()
            folder = self.daemon.folder
            self.close()
            self._start(folder)
            self.outcome.restarts += 1
            since_ns = time.monotonic_ns()  # starting Python is not what is measured
        else:
            if fate == "exit":
                victim.actor.exit()
                since_ns = time.monotonic_ns()  # how long it takes to go is its own affair
            victim.actor.__exit__(None, None, None)
            self.victims.remove(victim)
        self._check(fate, victim.last, since_ns)

    def _check(self, fate: str, step: str, since_ns: int) -> None:
        """Each of the two gets the GPU, one after the other."""
        for number, client in enumerate(self.bystanders):
            try:
                client.submit()
                granted_ns = client.wait_grant(STUCK_S)
                client.complete()
            except TimeoutError:
                self.outcome.stuck += 1
                continue
            if number == 0:
                self.outcome.times_ms[fate, step].append((granted_ns - since_ns) / 1e6)


def run_campaign(folder: Path, seed: int, actions: int) -> Outcome:
    """Do so many actions, always the same for one seed."""
    campaign = Campaign(folder, seed)
    try:
        for _ in range(actions):
            campaign.act()
        served = {entry["task"].split(".")[0] for entry in campaign.daemon.status()["channels"]}
        assert {"bystander0", "bystander1"} <= served
    finally:
        campaign.close()
    return campaign.outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_campaign(Path(folder) / "run", options.seed, options.actions)
    print(outcome.table())
    raise SystemExit(1 if outcome.stuck else 0)


if __name__ == "__main__":
    main()
