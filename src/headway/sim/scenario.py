"""Scenario files: what a person asks the simulator to run (docs/scenarios.md is the manual)."""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.engine.choice import TURNS_POLICY, read_policy
from headway.engine.priorities import PriorityRule
from headway.engine.reading import (
    BadInput,
    Problem,
    Report,
    Table,
    locate,
    one_of,
    parse_toml,
    shown,
)
from headway.engine.settings import (
    Pools,
    ReserveOptions,
    Settings,
    read_name,
    read_predict,
    read_priority,
    read_reserve,
    read_settings,
)
from headway.sim.cuda.reading import read_cuda_device
from headway.sim.cuda.run import CudaDevice
from headway.sim.programs import Program, programs
from headway.sim.programs.cuda import CudaProgram
from headway.sim.programs.frames import XClient
from headway.sim.programs.listed import Listing
from headway.sim.programs.serves import Server
from headway.sim.simulator import Device

MAX_TASKS = 10_000
MAX_BYTES = 32 * 1024 * 1024
CHARGE_FROM = ("dispatch", "start")
DEFAULT_DURATION_NS = 10_000_000_000
Override = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task of a scenario."""

    name: str
    policy: str
    priority: PriorityRule
    reserve: ReserveOptions
    program: Program
    predict: str | None = None
    """The cost model of its groups; None: the usual one."""


@dataclass(frozen=True, slots=True)
class EventPlan:
    """Something that happens at an instant: a change of focus, priority or reserve, a death."""

    at_ns: int
    task: str
    kind: str
    priority: PriorityRule | None
    reserve: ReserveOptions


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario that was read and found right. Programs hold state: run it once."""

    device: Device
    settings: Settings
    tasks: tuple[TaskPlan, ...]
    events: tuple[EventPlan, ...]
    duration_ns: int | None
    """None: until every group has completed."""
    cuda: CudaDevice | None = None
    """The device of CUDA programs, if that is what the tasks are."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with some keys set otherwise, to be compared with the others."""

    name: str
    overrides: tuple[Override, ...]


def parse_variants(text: str, file: str = "scenario") -> list[Variant]:
    """The variants that a scenario file describes, which `parse_scenario` checks too."""
    data = parse_toml(text, file)
    report = Report(locate(text))
    top = Table(data, (), report)
    variants = _read_variants(top)
    report.raise_if_any(file)
    return variants


def _read_variants(top: Table) -> list[Variant]:
    variants = []
    names: dict[str, Any] = {}
    for table in top.tables("variant"):
        name = read_name(table, names)
        changes = table.take("set")
        if changes is None:
            changes = {}
        if not isinstance(changes, dict) or not all("." in key for key in changes):
            table.bad("set", shown(changes), 'quoted keys, as in { "task.*.policy" = "fifo" }')
            changes = {}
        variants.append(Variant(name, tuple(changes.items())))
        table.close()
    return variants


def parse_scenario(
    text: str,
    file: str = "scenario",
    *,
    overrides: Sequence[Override] = (),
    seed: int | None = None,
) -> Scenario:
    """Read a scenario; BadInput lists every mistake."""
    if len(text) > MAX_BYTES:
        found = f"{len(text)} characters"
        raise BadInput(file, [Problem(None, "", found, f"at most {MAX_BYTES}")])
    written = text.count("[[task]]")
    if written > MAX_TASKS:
        raise BadInput(file, [_too_many(written)])
    data = parse_toml(text, file)
    report = Report(locate(text))
    for path, value in overrides:
        try:
            override(data, path, value)
        except ValueError as error:
            problem = Problem(None, "--set", str(error), "a key of the file")
            raise BadInput(file, [problem]) from None
    return read_scenario(data, file, report, seed=seed)


def _too_many(count: int) -> Problem:
    return Problem(None, "task", f"{count} tasks", f"at most {MAX_TASKS}")


def read_scenario(
    data: Mapping[str, Any], file: str, report: Report | None = None, *, seed: int | None = None
) -> Scenario:
    """Read a scenario from what `tomllib` made of it."""
    report = report or Report()
    top = Table(data, (), report)
    run = top.table("run")
    duration_ns = None
    base_seed = 0
    if run is not None:
        duration_ns = run.duration("duration", least=1) if "duration" in run else None
        base_seed = run.integer("seed", 0)
        run.close()
    base_seed = base_seed if seed is None else seed
    takes_turns = _takes_turns(data)
    device_table = top.table("device")
    cuda = read_cuda_device(device_table, top.table("manager"), base_seed) if takes_turns else None
    device = Device() if takes_turns else _read_device(device_table, base_seed)
    settings = read_settings(top)
    if not data:
        report.add((), "an empty file", "at least one [[task]]")
    tables = top.tables("task")
    if data and not tables and not report.problems:
        report.add((), "no task", "at least one [[task]]")
    if len(tables) > MAX_TASKS:
        raise BadInput(file, [_too_many(len(tables))])
    pools = Pools(report)
    tasks = _read_tasks(tables, pools, base_seed)
    _read_variants(top)
    known = {task.name for task in tasks}
    events = [_read_event(table, known, pools) for table in top.tables("event")]
    top.close()
    if takes_turns:
        _check_cuda(tasks, tables)
    report.raise_if_any(file)
    if duration_ns is None and any(task.program.endless for task in tasks):
        duration_ns = DEFAULT_DURATION_NS
    return Scenario(device, settings, tuple(tasks), tuple(events), duration_ns, cuda)


def _takes_turns(data: Mapping[str, Any]) -> bool:
    """Whether there are CUDA programs in a scenario."""
    tasks = data.get("task")
    return isinstance(tasks, list) and any(isinstance(t, dict) and "cuda" in t for t in tasks)


def _check_cuda(tasks: list[TaskPlan], tables: list[Table]) -> None:
    """CUDA programs share a device with their like."""
    for task, table in zip(tasks, tables, strict=True):
        if not isinstance(task.program, CudaProgram):
            found = f"{task.program.kind} beside tasks with cuda"
            table.bad("", found, "cuda for all tasks of a scenario, or for none")


def _read_device(table: Table | None, seed: int) -> Device:
    if table is None:
        return Device(seed=seed)
    device = Device(
        count=table.integer("count", 1, least=1, most=64),
        switch_ns=table.duration("switch", 0),
        decide_ns=table.duration("decide", 0),
        charges_overhead=table.choice("charge_from", CHARGE_FROM, "dispatch") == "dispatch",
        jitter=table.number("jitter", 0.0, least=0.0, most=0.99),
        seed=table.integer("seed", seed),
    )
    table.close()
    return device


def _read_tasks(tables: list[Table], pools: Pools, seed: int) -> list[TaskPlan]:
    names: dict[str, Any] = {}
    servers: dict[str, str] = {}
    tasks = []
    for table in tables:
        task = _read_task(table, names, seed)
        pools.check(task.reserve.spec, task.name, table.path)
        if task.program.server is not None:
            servers[task.name] = task.program.server
        tasks.append(task)
    by_name = {task.name: task for task in tasks}
    for table, task in zip(tables, tasks, strict=True):
        _check_server(table, task, by_name, servers)
    return tasks


def _read_task(table: Table, names: dict[str, Any], seed: int) -> TaskPlan:
    name = read_name(table, names)
    chosen = "policy" in table or "cuda" not in table
    policy = read_policy(table).text if chosen else TURNS_POLICY
    priority = read_priority(table)
    predict = read_predict(table)
    reserve = read_reserve(table, predict)
    server = table.string("server") or None
    program = _read_program(table, seed ^ zlib.crc32(name.encode()))
    program.server = server
    if isinstance(program, CudaProgram):
        program.read_goals(table)
    table.close()
    return TaskPlan(name, policy, priority, reserve, program, predict)


def _read_program(table: Table, seed: int) -> Program:
    """What the task does: its `groups`, or exactly one generator."""
    known = programs()
    given = [key for key in (*known, Listing.kind) if key in table]
    for key in (*known, Listing.kind):
        if key not in given:
            table.take(key)
    if len(given) != 1:
        found = " and ".join(given) if given else "nothing to do"
        table.bad("", found, "one of " + one_of([*known, Listing.kind]))
        for key in given:
            table.take(key)
        return Listing([])
    if given == [Listing.kind]:
        return Listing.read(table, seed)
    inner = table.table(given[0])
    if inner is None:
        return Listing([])
    program = known[given[0]].read(inner, seed)
    inner.close()
    return program


def _check_server(
    table: Table, task: TaskPlan, by_name: Mapping[str, TaskPlan], servers: Mapping[str, str]
) -> None:
    server = task.program.server
    if isinstance(task.program, Server) and task.program.rix and task.reserve.spec is None:
        table.bad("serves", "rix without a reserve", "a reserve for the server, which it extends")
    if isinstance(task.program, XClient) and server is None:
        table.bad("server", "nothing", "the name of the task that draws for it")
    if server is None:
        return
    if not task.program.draws_frames:
        table.bad("server", shown(server), f"no server for {task.program.kind!r}: it has no frames")
    elif server not in by_name:
        table.bad("server", shown(server), one_of(n for n, t in by_name.items() if _serves(t)))
    elif not _serves(by_name[server]):
        chain = [task.name]
        while chain[-1] in servers and servers[chain[-1]] not in chain:
            chain.append(servers[chain[-1]])
        if servers.get(chain[-1]) != task.name:
            table.bad("server", shown(server), f"a task with `serves`, which {server!r} has not")
        elif task.name == next(name for name in by_name if name in chain):  # once for each cycle
            loop = " -> ".join([*chain, task.name])
            table.bad("server", f"the cycle {loop}", "servers that do not wait for each other")


def _serves(task: TaskPlan) -> bool:
    return isinstance(task.program, Server)


def _read_event(table: Table, names: set[str], pools: Pools) -> EventPlan:
    """`at` and one of: focus = task, kill = task, or task with a new priority and reserve."""
    at_ns = table.duration("at", required=True)
    kinds = [kind for kind in ("focus", "kill", "task") if kind in table]
    if len(kinds) != 1:
        table.bad("", " and ".join(kinds) or "nothing to do", "one of focus, kill or task")
    named = {kind: table.string(kind) for kind in ("focus", "kill", "task")}
    kind = kinds[0] if kinds else "focus"
    name = named[kind]
    if kinds and name and name not in names:
        table.bad(kind, shown(name), "the name of a task")
    priority = read_priority(table) if "priority" in table else None
    reserve = read_reserve(table)
    pools.check(reserve.spec, name, table.path)
    if kind != "task" and (priority or reserve != ReserveOptions()):
        table.bad("", f"a new priority or reserve with {kind}", 'task = "NAME" for that')
    table.close()
    return EventPlan(at_ns, name, kind, priority, reserve)


def parse_override(text: str) -> Override:
    """Read `--set task.video.priority=5`; a value that is not TOML is taken as text."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip() or not all(path.strip().split(".")):
        raise ValueError(f"found {shown(text)}, expected KEY=VALUE such as task.video.priority=5")
    try:
        return path.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return path.strip(), value.strip()


def override(data: dict[str, Any], path: str, value: Any) -> None:
    """Set one key; tasks are found by name, and a `*` stands for every task."""
    parts = path.split(".")
    targets: list[Any] = [data]
    if parts[0] == "task" and len(parts) >= 3:
        tasks = [t for t in data.get("task", []) if isinstance(t, dict)]
        targets = [t for t in tasks if parts[1] in ("*", t.get("name"))]
        if not targets:
            names = one_of(str(t.get("name")) for t in tasks) if tasks else "a task of the file"
            raise ValueError(f"--set {path}: found no task {parts[1]!r}, expected {names}")
        parts = parts[2:]
    for target in targets:
        for part in parts[:-1]:
            inner = target.setdefault(part, {}) if isinstance(target, dict) else None
            if not isinstance(inner, dict):
                raise ValueError(f"--set {path}: found a value at {part!r}, expected a table")
            target = inner
        target[parts[-1]] = value
