"""Bounds of one GPU under priorities and reserves against simulations of random scenarios."""

from __future__ import annotations

import random
from typing import Any

from headway.engine.events import Observer
from headway.engine.model import Task
from headway.sim.analysing import analyse_scenario
from headway.sim.outcome import simulate
from headway.sim.programs.frames import NS_PER_S
from headway.sim.scenario import read_scenario
from headway.sim.study.bound_check import Seen

MS = 1_000_000
Row = dict[str, Any]


def _ms(length_ns: int) -> str:
    return f"{length_ns}ns"


class _Shown(Observer):
    """The longest time from the instant at which a frame was due to begin until it was shown."""

    def __init__(self) -> None:
        self.worst: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self.fps: dict[str, int] = {}

    def shown(self, task: Task, now_ns: int) -> None:
        fps = self.fps.get(task.name)
        if fps is None:
            return
        frame = self._frames.get(task.name, 0)
        self._frames[task.name] = frame + 1
        late_ns = now_ns - frame * NS_PER_S // fps
        self.worst[task.name] = max(self.worst.get(task.name, 0), late_ns)


def _periodic(rng: random.Random, name: str, load: float) -> Row:
    period = rng.choice([5, 8, 10, 16, 20, 33, 40])
    cost_ns = max(10_000, int(period * MS * load * rng.uniform(0.3, 1.5)))
    row: Row = {"period": f"{period}ms", "cost": _ms(cost_ns)}
    row["offset"] = _ms(rng.choice([0, 0, rng.randrange(period * MS)]))
    if rng.random() < 0.2:
        row["deadline"] = f"{rng.randint(max(1, period // 2), period)}ms"
    task: Row = {"name": name, "policy": rng.choice(["prt", "prt", "prt", "ht"]), "periodic": row}
    if rng.random() < 0.5:
        refill = rng.choice([period, period, max(1, period // 2), 5, 10])
        share = rng.choice([1.0, 1.0, 1.3, 2.0]) * cost_ns / (period * MS)
        capacity_ns = min(refill * MS, max(1000, int(refill * MS * share)))
        task["reserve"] = {
            "policy": rng.choice(["pe", "ae"]),
            "capacity": _ms(capacity_ns),
            "period": f"{refill}ms",
        }
    return task


def _greedy(rng: random.Random, name: str) -> Row:
    cost_ns = rng.randint(100_000, 4 * MS)
    kind = rng.choice(["greedy", "bomb"])
    task: Row = {"name": name, "policy": rng.choice(["prt", "prt", "ht"])}
    task[kind] = {"cost": _ms(cost_ns), "depth": rng.choice([1, 3])}
    if rng.random() < 0.7:
        refill = rng.choice([5, 10, 20])
        capacity_ns = int(refill * MS * rng.uniform(0.05, 0.3))
        policy = rng.choice(["pe", "ae"])
        task["reserve"] = {"policy": policy, "capacity": _ms(capacity_ns), "period": f"{refill}ms"}
    return task


def draw_scenario(rng: random.Random) -> Row:
    """Periodic tasks and greedy ones, by fixed priorities, RM and EDF."""
    count = rng.randint(1, 6)
    style = rng.choice(["fixed", "fixed", "rm", "edf", "mixed"])
    tasks = [_periodic(rng, f"p{n}", rng.uniform(0.1, 0.9) / count) for n in range(count)]
    tasks += [_greedy(rng, f"g{n}") for n in range(rng.choice([0, 0, 1, 2]))]
    for task in tasks:
        level = rng.randint(0, 4)
        chosen = rng.choice(["fixed", "rm", "edf"]) if style == "mixed" else style
        if "periodic" not in task:
            task["priority"] = rng.choice([-1, -1, level])
        elif chosen == "fixed":
            task["priority"] = level
        else:
            task["priority"] = f"{chosen}@{rng.choice([0, 0, 0, level])}"
        if style == "edf":
            task["policy"] = "prt"
            if rng.random() < 0.7:
                task.pop("reserve", None)
    rng.shuffle(tasks)
    device: Row = {}
    if rng.random() < 0.3:
        device = {"switch": _ms(rng.randrange(200_000)), "decide": _ms(rng.randrange(50_000))}
    return {"run": {"duration": "700ms"}, "device": device, "task": tasks}


def draw_served(rng: random.Random) -> Row:
    """Programs with frames, a window server, and others beside them."""
    pix, rix = rng.random() < 0.8, rng.random() < 0.4
    server: Row = {
        "name": "x",
        "priority": rng.randint(0, 4),
        "serves": {
            "order": rng.choice(["fifo", "priority"]),
            "blit": _ms(rng.randint(50_000, 800_000)),
            "groups": rng.randint(1, 3),
            "pix": pix,
            "rix": rix,
        },
    }
    if rix or rng.random() < 0.3:
        policy = rng.choice(["pe", "ae"])
        server["reserve"] = {
            "policy": policy,
            "capacity": "1ms",
            "period": f"{rng.randint(2, 8)}ms",
        }
    tasks = [server]
    for number in range(rng.randint(1, 3)):
        row: Row = {
            "fps": rng.choice([5, 10, 20, 30]),
            "cost": _ms(rng.randint(100_000, 1_500_000)),
            "cpu": _ms(rng.randint(0, 500_000)),
        }
        kind = rng.choice(["widget", "xclient", "widget"])
        if kind == "widget":
            row["groups"] = rng.randint(1, 3)
        task: Row = {"name": f"c{number}", "priority": rng.randint(0, 5), "server": "x", kind: row}
        if kind == "widget" and rng.random() < 0.4:
            policy = rng.choice(["pe", "ae"])
            task["reserve"] = {"policy": policy, "capacity": "2ms", "period": "5ms"}
        tasks.append(task)
    for number in range(rng.randint(0, 2)):
        other = _periodic(rng, f"p{number}", 0.1)
        tasks.append({**other, "policy": "prt", "priority": rng.randint(0, 5)})
    if rng.random() < 0.5:
        tasks.append({**_greedy(rng, "g"), "policy": "prt", "priority": rng.choice([-1, 2])})
    return {"run": {"duration": "1500ms"}, "task": tasks}


def check_groups(seed: int, *, served: bool = False) -> list[Seen]:
    """One random scenario: simulated response times against those of the analysis."""
    rng = random.Random(f"{'served' if served else 'groups'} {seed}")
    file = draw_served(rng) if served else draw_scenario(rng)
    verdicts = {v.task: v for v in analyse_scenario(read_scenario(file, "random")).verdicts}
    if all(verdict.bound_ns is None for verdict in verdicts.values()):
        return []
    watcher = _Shown()
    for task in file["task"]:
        for kind in ("widget", "xclient"):
            if kind in task:
                watcher.fps[task["name"]] = task[kind]["fps"]
    outcome = simulate(read_scenario(file, "random"), observers=[watcher])
    found = []
    for entry in outcome.statistics.tasks.values():
        name = entry.task.name
        bound_ns = verdicts[name].bound_ns if name in verdicts else None
        if bound_ns is not None:
            worst_ns = watcher.worst.get(name, 0) if name in watcher.fps else entry.responses.max
            found.append(Seen(seed, "served" if served else "groups", name, bound_ns, worst_ns))
    return found
