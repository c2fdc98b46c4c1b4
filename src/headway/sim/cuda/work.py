"""What a simulated CUDA program does: its jobs, step by step, as a scenario file says it.

[task.cuda]
period = "10ms"                 # or poisson = "10ms"; without either it is greedy
work = [
  { kernel = "100us", count = 20 },
  { cpu = "1ms" },
  { sync = "all" },
]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.engine.reading import Table, shown
from headway.sim.cuda.commands import WHOLE

MOST_STEPS = 100_000
"""In one job."""
MOST_STREAMS = 32
"""A program's page has room for so many, and the interposer treats the rest as one."""
DIRECTIONS = ("device", "host", "itself")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MOST_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class Kernels:
    """Launches kernels of one kind in a row, or one graph of them."""

    cost_ns: int
    """What each takes with the whole device for itself."""
    count: int = 1
    blocks: int | None = None
    """None: as many as fill the device once."""
    per_sm: int = 1
    stream: int = 0
    cpu_ns: int = 0
    """What the program computes before each."""
    spread: float = 0.0
    """Costs vary evenly by this part up and down, which no prediction knows."""
    interleave: float = 0.0
    """By which part a block takes longer for each other block on its multiprocessor, on a device
    that has several there."""
    graph: bool = False
    """All of them are one launch, which is not divided."""


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies bytes to the device, to the host, or from place to place on the device."""

    size: int
    to: str
    stream: int = 0
    waits: bool = False
    """The program waits for the copy, as for one into pageable memory."""


@dataclass(frozen=True, slots=True)
class Computing:
    """The program computes on its CPU."""

    cost_ns: int
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Synchronising:
    """The program waits for a stream, or for all."""

    stream: int | None = None


Step = Kernels | Copying | Computing | Synchronising


@dataclass(frozen=True, slots=True)
class CudaPlan:
    """One program."""

    steps: tuple[Step, ...]
    period_ns: int | None = None
    """From one job to the next; None: the next begins as soon as the last is done."""
    poisson: bool = False
    """Intervals are exponentially distributed with this mean."""
    burst: int = 1
    """So many jobs come at once, each as soon as the last is done, and then none for as long."""
    rest_ns: int | None = None
    """From the end of a job to the begin of the next, in the mean, exponentially distributed: a
    closed loop, as somebody has it who thinks about each answer."""
    offset_ns: int = 0
    deadline_ns: int | None = None
    jobs: int | None = None
    """Then the program ends."""
    sync_every: int = 1
    """Jobs at whose end the program waits for its work: each, or every so-manieth."""
    tells: bool = False
    """The program says itself what its jobs are (`headway.job()`)."""
    share: int = WHOLE
    """Thousandths of the multiprocessors that its kernels may occupy, where programs run side by
    side."""
    client_priority: int = 0
    """As CUDA_MPS_CLIENT_PRIORITY: the smaller goes first, there."""
    goal_ns: int | None = None
    """How long a job may take, as Headway was told: the deadline, or else the stated period."""
    slowdown: float | None = None
    """By which part of what a job takes alone it may take longer, as Headway was told."""
    seed: int = 0


def read_cuda(table: Table, seed: int) -> CudaPlan:
    """Read `[task.cuda]`."""
    intervals = [key for key in ("period", "poisson", "rest") if key in table]
    if len(intervals) > 1:
        table.bad(intervals[1], f"{intervals[0]} as well", "one of period, poisson and rest")
    times_ns = {key: table.duration(key, least=1) for key in intervals}
    period_ns = times_ns.get("poisson", times_ns.get("period"))
    mistakes = len(table.report.problems)
    steps = tuple(_read_steps(table))
    found = mistakes == len(table.report.problems)
    if found and not any(isinstance(step, Kernels | Copying) for step in steps):
        table.bad("work", "nothing for the GPU", "a kernel, graph or copy")
    return CudaPlan(
        steps,
        period_ns,
        poisson="poisson" in intervals,
        burst=table.integer("burst", 1, least=1, most=10**6),
        rest_ns=times_ns.get("rest"),
        offset_ns=table.duration("offset", 0),
        deadline_ns=table.duration("deadline", least=1) if "deadline" in table else None,
        jobs=table.integer("jobs", 1, least=1, most=10**9) if "jobs" in table else None,
        sync_every=table.integer("sync_every", 1, least=1, most=10**6),
        tells=table.boolean("tells", default=False),
        share=10 * table.integer("share", 100, least=1, most=100),
        client_priority=table.integer("client_priority", 0, least=0, most=1),
        seed=table.integer("seed", seed),
    )


def _read_steps(table: Table) -> list[Step]:
    steps: list[Step] = []
    for item in table.tables("work"):
        again = item.integer("repeat", 1, least=1, most=MOST_STEPS)
        inner = _read_steps(item) if "work" in item else list(_read_step(item))
        item.close()
        if again * len(inner) + len(steps) > MOST_STEPS:
            item.bad("repeat", f"{again * len(inner)} steps", f"at most {MOST_STEPS} in a job")
            return steps
        steps.extend(inner * again)
    return steps


KINDS = ("kernel", "graph", "copy", "cpu", "sync")


def _read_step(item: Table) -> Iterator[Step]:
    kinds = [kind for kind in KINDS if kind in item]
    if kinds[:1] in (["kernel"], ["graph"]) and "cpu" in kinds:
        kinds.remove("cpu")  # what is computed before each kernel
    if len(kinds) != 1:
        found = " and ".join(kinds) or "nothing to do"
        item.bad("", found, "one of kernel, graph, copy, cpu, sync or work")
        for kind in kinds:
            item.take(kind)
        return
    kind = kinds[0]
    if kind in ("kernel", "graph"):
        yield _read_kernels(item, kind)
    elif kind == "copy":
        yield Copying(
            _read_bytes(item, "copy"),
            item.choice("to", DIRECTIONS, "device"),
            _read_stream(item),
            item.boolean("waits", default=False),
        )
    elif kind == "cpu":
        yield Computing(
            item.duration("cpu", least=1), item.number("spread", 0.0, least=0.0, most=0.99)
        )
    elif item.peek("sync") == "all":
        item.take("sync")
        yield Synchronising()
    else:
        yield Synchronising(item.integer("sync", 0, least=0, most=MOST_STREAMS - 1))


def _read_kernels(item: Table, kind: str) -> Kernels:
    blocks = item.integer("blocks", 1, least=1, most=10**9) if "blocks" in item else None
    return Kernels(
        item.duration(kind, least=1),
        item.integer("count", 1, least=1, most=MOST_STEPS),
        blocks,
        item.integer("per_sm", 1, least=1, most=64),
        _read_stream(item),
        item.duration("cpu", 0),
        item.number("spread", 0.0, least=0.0, most=0.99),
        item.number("interleave", 0.0, least=0.0, most=1.0),
        graph=kind == "graph",
    )


def _read_stream(item: Table) -> int:
    return item.integer("stream", 0, least=0, most=MOST_STREAMS - 1)


def _read_bytes(item: Table, key: str) -> int:
    """A number of bytes, as in "64MiB"."""
    value = item.take(key)
    if isinstance(value, str):
        number = value.rstrip("KMGiB")
        unit = value[len(number) :]
        if number.isascii() and number.isdigit() and unit in UNITS:
            size = int(number) * UNITS[unit]
            if 1 <= size <= MOST_BYTES:
                return size
    item.bad(key, shown(value), 'a size such as "64MiB"')
    return 1
