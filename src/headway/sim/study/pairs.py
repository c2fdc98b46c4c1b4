"""Random CUDA programs that share a device: what each way of sharing makes of them.

An important program (sometimes two) with jobs of random make and arrivals, beside one to ten others
that have work all the time or think in between. Nobody chose them, so no rule can fit them. Each
group is simulated in every way, and judged by what Headway promises of any programs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import read_scenario
from headway.sim.study.ways import PEERS, SLICED, WAYS, scenario_of

WARM_UP_S = 1.0
NOT_SLOWER, FASTER, MORE = 1.05, 0.95, 0.03
LEAST_JOBS = 20
"""Fewer say nothing of the worst in a hundred."""
STARVED = 0.1
"""Of what others get without a manager."""

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Programs that share a device."""

    name: str
    """What they are, in words."""
    tasks: tuple[Table, ...]
    """As a scenario has them; the most important first."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a way made of a group."""

    jobs: int
    p50_ns: int
    p99_ns: int
    """Of the most important program."""
    rates: dict[str, float]
    """Jobs a second of the others."""


def _time(us: float) -> str:
    return f"{max(1, int(us))}us"


class _Maker:
    """Makes up programs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def between(self, low: float, high: float) -> float:
        """Any order of magnitude is as likely as another."""
        return float(low * (high / low) ** self.random.random())

    def kernel(self, us: float, count: int = 1, **more: Any) -> Table:
        """Of one wave that fills the device, of a part of it, or of many blocks."""
        step: Table = {"kernel": _time(us), "count": count, **more}
        shape = self.random.random()
        if 0.35 <= shape < 0.6:
            step["blocks"] = self.random.randint(4, 132)
        elif shape >= 0.6:
            step |= {"per_sm": self.random.choice([1, 2, 4, 8])}
            step["blocks"] = self.random.randint(132, 1056)
        return step

    def part(self) -> float:
        """How much of a job that computes in between is GPU work."""
        return self.random.uniform(0.05, 0.9)


Making = Callable[[_Maker, float], tuple[list[Table], float]]
"""Given how much GPU time a job has, in us, its steps, and about how long it takes."""


def _graph(make: _Maker, us: float) -> tuple[list[Table], float]:
    count = make.random.randint(10, 200)
    return [{"graph": _time(us / count), "count": count}], us


def _row(make: _Maker, us: float) -> tuple[list[Table], float]:
    count = make.random.randint(1, 60)
    return [make.kernel(us / count, count)], us


def _eager(make: _Maker, us: float) -> tuple[list[Table], float]:
    count, cpu_us = make.random.randint(20, 300), us / make.part()
    return [make.kernel(us / count, count, cpu=_time(cpu_us / count))], cpu_us


def _reads(make: _Maker, us: float) -> tuple[list[Table], float]:
    """Waits for the GPU and computes, many times in a job."""
    times, count = make.random.randint(2, 40), make.random.randint(1, 10)
    cpu_us = us / make.part() - us
    spread = make.random.choice([0.0, 0.3, 0.8])
    thinks = {"cpu": _time(cpu_us / times), "spread": spread}
    steps = [make.kernel(us / count / times, count), {"sync": "all"}, thinks]
    return [{"repeat": times, "work": steps}], us + cpu_us


def _streams(make: _Maker, us: float) -> tuple[list[Table], float]:
    count = make.random.randint(2, 5)
    return [make.kernel(us / count / 4, 4, stream=number) for number in range(count)], us


def _copies(make: _Maker, us: float) -> tuple[list[Table], float]:
    size = int(make.between(1, 64))
    there = {"copy": f"{size}MiB", "to": "device", "waits": make.random.random() < 0.5}
    back = {"copy": f"{max(1, size // 4)}MiB", "to": "host", "waits": True}
    return [there, make.kernel(us / 8, 8), back], us + 24 * size


def _mixed(make: _Maker, us: float) -> tuple[list[Table], float]:
    sizes = [make.between(us / 100, us / 3) for _ in range(make.random.randint(3, 12))]
    return [make.kernel(size) for size in sizes], sum(sizes)


IMPORTANT: dict[str, Making] = {
    "a graph": _graph,
    "a row": _row,
    "eager": _eager,
    "reads back": _reads,
    "streams": _streams,
    "copies": _copies,
    "mixed kernels": _mixed,
}


def _training(make: _Maker) -> Table:
    steps = [
        make.kernel(make.between(5, 800), make.random.randint(1, 8))
        for _ in range(make.random.randint(10, 30))
    ]
    if make.random.random() < 0.5:
        steps = [step | {"cpu": _time(make.between(3, 30))} for step in steps]
    return {"work": steps, "sync_every": make.random.choice([1, 10])}


def _waits(make: _Maker) -> Table:
    steps = [make.kernel(make.between(10, 400), make.random.randint(1, 5)), {"sync": "all"}]
    return {"work": [{"repeat": 10, "work": steps}]}


def _moves(make: _Maker) -> Table:
    to = make.random.choice(["device", "host", "itself"])
    copy = {"copy": f"{int(make.between(4, 512))}MiB", "to": to}
    return {"work": [copy | {"waits": make.random.random() < 0.5}, make.kernel(200, 4)]}


def _thinks(make: _Maker) -> Table:
    steps = [make.kernel(make.between(50, 800), make.random.randint(1, 20))]
    return {"work": steps, "rest": _time(make.between(100, 20_000))}


OTHERS: dict[str, Callable[[_Maker], Table]] = {
    "training": _training,
    "products": lambda m: {"work": [m.kernel(m.between(100, 2500), 8)], "sync_every": 4},
    "waits": _waits,
    "copying": _moves,
    "long kernels": lambda m: {"work": [{"kernel": _time(m.between(1500, 12_000)), "count": 2}]},
    "mixed": lambda m: {
        "work": [m.kernel(m.between(5, 6000)) for _ in range(m.random.randint(3, 12))]
    },
    "thinking": _thinks,
    "streaming": lambda m: {
        "work": [m.kernel(m.between(20, 800), 8, stream=n) for n in range(m.random.randint(2, 4))]
    },
}


def make_group(seed: int) -> Group:
    """The group of this number: always the same one."""
    make = _Maker(seed)
    names, tasks = [], []
    for number in range(1 + (make.random.random() < 0.1)):
        kind, making = make.random.choice(list(IMPORTANT.items()))
        steps, takes_us = making(make, make.between(300, 12_000))
        apart = _time(min(takes_us / make.random.uniform(0.05, 0.6), 120_000))
        arrivals = make.random.choice(["period", "period", "poisson", "poisson", "rest", "burst"])
        cuda: Table = {"work": steps, "seed": 10 * seed + number, "offset": f"{5 * number}ms"}
        if arrivals == "burst":
            cuda |= {"period": apart, "burst": make.random.randint(2, 6)}
        else:
            cuda[arrivals] = apart
        tasks.append({"name": f"important-{number}", "priority": 9 - number, "cuda": cuda})
        names.append(f"{kind} ({arrivals})")
    for number in range(make.random.choice([1, 1, 1, 1, 1, 2, 3, 4, 10])):
        kind, other = make.random.choice(list(OTHERS.items()))
        cuda = other(make) | {"seed": 10 * seed + 5 + number, "offset": _time(100 * number)}
        tasks.append({"name": f"other-{number}", "priority": 1, "cuda": cuda})
        names.append(kind)
    return Group(" + ".join(names), tuple(tasks))


def play(group: Group, way: str, seconds: float) -> Result:
    """Simulate it; what happens until the programs are known does not count."""
    outcome = simulate(read_scenario(scenario_of(list(group.tasks), way, WARM_UP_S + seconds), way))
    since_ns = int(WARM_UP_S * 1e9)
    jobs = outcome.jobs[group.tasks[0]["name"]]
    times = sorted(job.response_ns for job in jobs if job.begun_ns >= since_ns) or [0]
    others = [task["name"] for task in group.tasks if task["name"].startswith("other")]
    return Result(
        len(times),
        times[len(times) // 2],
        times[min(len(times) - 1, 99 * len(times) // 100)],
        {name: _rate(outcome, name, since_ns, seconds) for name in others},
    )


def _rate(outcome: Outcome, name: str, since_ns: int, seconds: float) -> float:
    return sum(job.ended_ns >= since_ns for job in outcome.jobs[name]) / seconds


def throughput(result: Result, plain: Result) -> float:
    """What the others get of what they get in another way, in the mean."""
    return mean(rate / max(plain.rates[name], 1e-9) for name, rate in result.rates.items())


def broken(found: dict[str, Result]) -> list[str]:
    """What Headway promises of any programs and did not keep here."""
    wrong = []
    for ours, peers in PEERS.items():
        mine, plain = found[ours], found[peers[0]]
        if min(found[way].jobs for way in (ours, *peers)) < LEAST_JOBS:
            continue
        times = mine.p99_ns / plain.p99_ns
        if times > NOT_SLOWER:
            wrong.append(f"p99 under {ours} is {times:.2f} of {peers[0]}'s")
        for peer in peers:
            more = throughput(found[peer], found[SLICED]) - throughput(mine, found[SLICED])
            if found[peer].p99_ns < FASTER * mine.p99_ns and more > MORE:
                wrong.append(f"{peer} is better than {ours} on both")
        done = [name for name, rate in plain.rates.items() if rate * 2 >= LEAST_JOBS]
        starved = [name for name in done if mine.rates[name] < STARVED * plain.rates[name]]
        wrong += [f"{name} starves under {ours}" for name in starved]
    return wrong


def study(seed: int, seconds: float) -> tuple[Group, dict[str, Result], list[str]]:
    """A group in all ways."""
    group = make_group(seed)
    found = {way: play(group, way, seconds) for way in WAYS}
    return group, found, broken(found)
