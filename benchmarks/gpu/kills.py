"""Somebody dies or leaves, and what becomes of the others: the holder, a waiter, the daemon.

The programs compare every result with what it should be and say when they had each. Recovery is the
time from the death until each survivor has its next result.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import LATE_S, Daemon, Failed, Stage, finish

JOB = (200, 5)
"""Kernels of 0.2 ms, five to a job."""
RUN_S = 3.0
RESTART_S = 3.0
"""So much longer, for a new daemon to start and to be found."""
GOAL_S = 1.0
"""Far above what it takes, far below what a person takes for a hang."""


class Scene:
    """A daemon and checked programs, an important one and a plain one."""

    def __init__(self, stage: Stage, daemon: Daemon, fate: Fate) -> None:
        self.daemon = daemon
        self.stage = daemon.stage
        self.run_s = RUN_S + fate.longer_s
        begin = time.time() + stages.START_S
        self.programs: dict[str, subprocess.Popen[str]] = {}
        ways = {"vip": ("9", self.run_s), "plain": ("1", *fate.plain(self.run_s))}
        for name, (priority, *how) in ways.items():
            command = [*stages.run_as(name, "--priority", str(priority))]
            command += stage.program("checked", *JOB, *how)
            self.programs[name] = self.stage.start(command, {"START_AT": str(begin)})
        time.sleep(max(0.0, begin - time.time()) + 0.5)

    def states(self) -> list[tuple[str, str]]:
        """Of every program that is managed."""
        channels = self.stage.status()["channels"]
        return [(channel["task"].partition(".")[0], channel["state"]) for channel in channels]

    def wait_for(self, ready: Callable[[list[tuple[str, str]]], bool], what: str) -> None:
        while not ready(self.states()):
            if any(process.poll() is not None for process in self.programs.values()):
                raise Failed(f"a program ended before {what}")

    def kill(self, name: str, state: str) -> float:
        """When it was killed, in this state as far as could be seen."""
        self.wait_for(lambda states: (name, state) in states, f"{name} was {state}")
        victim = self.programs.pop(name)
        at_s = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        return at_s

    def finish(self) -> dict[str, dict[str, Any]]:
        answers = finish(list(self.programs.values()), self.run_s + LATE_S)
        return dict(zip(self.programs, answers, strict=True))

    def end(self) -> None:
        for process in self.programs.values():
            if process.poll() is None:
                process.kill()
                process.communicate()


Death = Callable[[Scene], tuple[float, str]]
"""When it happened, and what else there is to say."""


@dataclass(frozen=True)
class Fate:
    """What happens, to whom and where."""

    death: Death
    longer_s: float = 0.0
    """So much longer than others it takes."""
    leaves: bool = False
    """Whether the plain program ends early, with work on its way to the GPU."""
    mps: bool = False

    def plain(self, run_s: float) -> tuple[object, ...]:
        return (run_s / 2, "leave") if self.leaves else (run_s,)


def holder(scene: Scene) -> tuple[float, str]:
    return scene.kill("vip", "leased"), ""


def waiter(scene: Scene) -> tuple[float, str]:
    return scene.kill("plain", "waiting"), ""


def daemon(scene: Scene) -> tuple[float, str]:
    at_s = time.monotonic()
    scene.daemon.kill()
    return at_s, "went on unmanaged"


def restart(scene: Scene) -> tuple[float, str]:
    at_s = time.monotonic()
    scene.daemon.kill()
    scene.daemon.start()
    up_s = time.monotonic()
    scene.wait_for(lambda states: len(states) == len(scene.programs), "all were managed again")
    managed_s = time.monotonic()
    note = f"a new daemon after {up_s - at_s:.2f} s, all managed {managed_s - up_s:.2f} s later"
    return at_s, note


def leaver(scene: Scene) -> tuple[float, str]:
    """Its work waits at a closed gate, most probably: the important one pauses for moments only."""
    (said,) = finish([scene.programs.pop("plain")], scene.run_s + LATE_S)
    at_s = said["left_us"] / 1e6
    return at_s, f"it was gone {1000 * (time.monotonic() - at_s):.0f} ms after its last word"


DEATHS = {
    "kill -9 the holder": Fate(holder),
    "kill -9 a waiter": Fate(waiter),
    "exit with work on its way": Fate(leaver, leaves=True),
    "kill -9 the daemon": Fate(daemon),
    "kill -9 and restart the daemon": Fate(restart, longer_s=RESTART_S),
    "MPS: kill -9 the holder": Fate(holder, mps=True),
    "MPS: kill -9 a waiter": Fate(waiter, mps=True),
    "MPS: exit with work on its way": Fate(leaver, leaves=True, mps=True),
}


def happen(stage: Stage, fate: Fate) -> dict[str, Any]:
    """One death under load, and how the others fared."""
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(stages.mps(stage)) if fate.mps else stage
        scene = Scene(stage, stack.enter_context(stages.run_daemon(at)), fate)
        try:
            at_s, note = fate.death(scene)
            survivors = scene.finish()
        finally:
            scene.end()
    after = {
        name: [done / 1e6 - at_s for done in said["done_us"] if done / 1e6 >= at_s]
        for name, said in survivors.items()
    }
    if not all(after.values()):
        raise Failed(f"no result after the death: {[n for n, times in after.items() if not times]}")
    return {
        "recovery_s": max(min(times) for times in after.values()),
        "longest_s": max(b - a for times in after.values() for a, b in pairwise([0.0, *times])),
        "jobs": sum(said["jobs"] for said in survivors.values()),
        "after": {name: len(times) for name, times in after.items()},
        "wrong": sum(said["wrong"] for said in survivors.values()),
        "note": note,
    }


def measure(stage: Stage, quick: bool) -> Outcome:
    outcome = Outcome(data={})
    rows: list[Sequence[str]] = []
    for title, fate in DEATHS.items():
        found = happen(stage, fate)
        outcome.data[title] = found
        after = ", ".join(f"{name} {count}" for name, count in found["after"].items())
        times = [f"{1000 * found[key]:.1f}" for key in ("recovery_s", "longest_s")]
        rows.append([title, *times, after, str(found["wrong"]), found["note"]])
        print(*rows[-1], sep="  ", flush=True)
        outcome.goals.append(Goal(f"{title}: recovery, s", found["recovery_s"], GOAL_S))
        outcome.goals.append(Goal(f"{title}: wrong results", found["wrong"], 0))
    head = ["", "recovery, ms", "longest wait from then on, ms", "results after", "wrong", ""]
    outcome.tables.append(Table("", head, rows))
    return outcome
