"""Scenario files with a `[gpusync]` table (docs/locks.md is the manual)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from headway.engine.locks.budgets import DRAINS, POLICIES, BudgetSettings
from headway.engine.locks.clusters import Clusters
from headway.engine.locks.copies import CopySettings
from headway.engine.locks.quantities import parse_rate, parse_size
from headway.engine.locks.settings import PRESETS
from headway.engine.locks.system import (
    MIGRATIONS,
    SCHEDULERS,
    Bus,
    DeviceWork,
    LockSystem,
    LockTask,
)
from headway.engine.locks.unit_locks import ORDERS
from headway.engine.reading import BadInput, Problem, Report, Table, locate, parse_toml, shown
from headway.engine.settings import read_name
from headway.engine.units import DurationError, parse_duration
from headway.sim.gpusync.plan import GpuSyncPlan, TaskPlan, Variation
from headway.sim.scenario import MAX_BYTES, MAX_TASKS, Override, override

DEFAULT_DURATION_NS = 10_000_000_000
MAX_PROCESSORS = 4096
T = TypeVar("T")


def is_gpusync(text: str) -> bool:
    """Whether a file's text is a scenario with tokens and units; files with mistakes are not."""
    try:
        return isinstance(tomllib.loads(text).get("gpusync"), dict)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False


def parse_gpusync(
    text: str,
    file: str = "scenario",
    *,
    overrides: Sequence[Override] = (),
    seed: int | None = None,
) -> GpuSyncPlan:
    """Read a scenario; BadInput lists every mistake."""
    if len(text) > MAX_BYTES:
        found = f"{len(text)} characters"
        raise BadInput(file, [Problem(None, "", found, f"at most {MAX_BYTES}")])
    data = parse_toml(text, file)
    report = Report(locate(text))
    for path, value in overrides:
        try:
            override(data, path, value)
        except ValueError as error:
            raise BadInput(
                file, [Problem(None, "--set", str(error), "a key of the file")]
            ) from None
    return read_gpusync(data, file, report, seed=seed)


def parse_system(text: str, file: str = "locks") -> LockSystem:
    """The machine and the locks of a scenario, without its tasks; BadInput lists every mistake."""
    data = parse_toml(text, file)
    report = Report(locate(text))
    top = Table(data, (), report)
    for part in ("run", "task"):
        top.take(part)
    machine = top.table("machine") or Table({}, ("machine",), report)
    system = _read_system(machine, top.table("gpusync") or Table({}, ("gpusync",), report))
    top.close()
    report.raise_if_any(file)
    return system


def read_gpusync(
    data: Mapping[str, Any], file: str, report: Report | None = None, *, seed: int | None = None
) -> GpuSyncPlan:
    """Read a scenario from what `tomllib` made of it."""
    report = report or Report()
    top = Table(data, (), report)
    run = top.table("run") or Table({}, ("run",), report)
    duration_ns = run.duration("duration", DEFAULT_DURATION_NS, least=1)
    own_seed = run.integer("seed", 0)
    run.close()
    machine = top.table("machine") or Table({}, ("machine",), report)
    settings = top.table("gpusync") or Table({}, ("gpusync",), report)
    system = _read_system(machine, settings)
    tables = top.tables("task")
    if len(tables) > MAX_TASKS:
        raise BadInput(
            file, [Problem(None, "task", f"{len(tables)} tasks", f"at most {MAX_TASKS}")]
        )
    if not tables and not report.problems:
        report.add(("task",), "no task", "at least one [[task]]")
    names: dict[str, Any] = {}
    places = _Places(system.clusters)
    tasks = tuple(_read_task(table, names, places) for table in tables)
    top.close()
    report.raise_if_any(file)
    return GpuSyncPlan(system, tasks, duration_ns, own_seed if seed is None else seed)


def _read_system(machine: Table, settings: Table) -> LockSystem:
    report = machine.report
    cpus = machine.integer("cpus", 1, least=1, most=MAX_PROCESSORS)
    devices = machine.integer("gpus", 1, least=1, most=MAX_PROCESSORS)
    clusters = Clusters(
        cpus,
        machine.integer("cpus_each", cpus, least=1, most=MAX_PROCESSORS),
        devices,
        machine.integer("gpus_each", devices, least=1, most=MAX_PROCESSORS),
    )
    default = LockSystem(clusters)
    bus = Bus(
        _taken(machine, "link", parse_rate, default.bus.link),
        _taken(machine, "hub", parse_rate, default.bus.hub),
    )
    distances = _distances(machine)
    times = {
        f"{key}_ns": machine.duration(key, getattr(default, f"{key}_ns"))
        for key in ("interrupt", "worker", "launch")
    }
    copies = _read_copies(settings.table("copies") or Table({}, ("gpusync", "copies"), report))
    budgets = _read_budgets(settings.table("budget") or Table({}, ("gpusync", "budget"), report))
    system = LockSystem(
        clusters,
        settings.choice("scheduler", SCHEDULERS, default.scheduler),
        settings.integer("rho", default.rho, least=1, most=MAX_PROCESSORS),
        settings.choice("allocator", PRESETS, default.allocator),
        settings.integer("length", 1, least=1) if "length" in settings else None,
        settings.choice("units", ORDERS, default.unit_order),
        copies,
        settings.choice("migration", MIGRATIONS, default.migration),
        settings.boolean("affinity", default.affinity),
        distances,
        bus,
        budgets=budgets,
        slices=machine.integer("slices", 1, least=1, most=MAX_PROCESSORS),
        **times,
    )
    machine.close()
    settings.close()
    if not report.problems:
        for key, found, expected in system.mistakes():
            _blame(machine, settings, key, found, expected)
    return system


_OF_THE_MACHINE = {
    "cpus": "cpus", "cpus_each": "cpus_each", "devices": "gpus", "devices_each": "gpus_each",
    "distances": "distances", "link": "link", "hub": "hub", "slices": "slices",
}  # fmt: skip
_OF_A_TABLE = {
    "units": "copies", "reserved": "copies", "chunk": "copies", "policy": "budget",
    "drain": "budget", "catch_up": "budget",
}  # fmt: skip


def _blame(machine: Table, settings: Table, key: str, found: object, expected: str) -> None:
    """Report a mistake of the system at the key that people write."""
    if key in _OF_THE_MACHINE:
        machine.bad(_OF_THE_MACHINE[key], found, expected)
    elif key in _OF_A_TABLE:
        inner = Table({}, (*settings.path, _OF_A_TABLE[key]), settings.report)
        inner.bad(key, found, expected)
    else:
        settings.bad(key, found, expected)


def _read_copies(table: Table) -> CopySettings:
    default = CopySettings()
    copies = CopySettings(
        table.integer("units", default.units, least=1, most=2),
        table.boolean("reserved", default.reserved),
        table.boolean("outbound_pair", default.outbound_pair),
        _taken(table, "chunk", parse_size, default.chunk),
        table.boolean("keep", default.keep),
    )
    table.close()
    return copies


def _read_budgets(table: Table) -> BudgetSettings:
    policy = table.choice("policy", POLICIES, "none")
    drain = table.choice("drain", DRAINS, "bwi" if policy == "bwi" else "cpu+gpu")
    budgets = BudgetSettings(policy, drain, table.boolean("catch_up", False))
    table.close()
    return budgets


def _taken(table: Table, key: str, parse: Callable[[object], T], default: T) -> T:
    """A value that `parse` reads from text."""
    value = table.take(key)
    if value is None:
        return default
    try:
        return parse(value)
    except ValueError as error:
        table.bad(key, shown(value), str(error))
        return default


def _distances(table: Table) -> tuple[tuple[int, ...], ...] | None:
    value = table.take("distances")
    if value is None:
        return None
    rows: list[tuple[int, ...]] = []
    for row in value if isinstance(value, list) else [None]:
        if not isinstance(row, list) or not all(type(item) is int for item in row):
            table.bad("distances", shown(value), "a row of whole numbers for each GPU")
            return None
        rows.append(tuple(row))
    return tuple(rows)


class _Places:
    """Deals tasks that say nothing to the clusters in turn."""

    def __init__(self, clusters: Clusters) -> None:
        sound = not any(True for _ in clusters.mistakes())
        self.cpu_clusters = clusters.cpus // clusters.cpus_each if sound else 1
        whole = clusters.devices // clusters.devices_each if sound else 1
        self.each = max(1, whole // self.cpu_clusters)
        """Clusters of GPUs of each cluster of CPUs."""
        self._next_cpu = 0
        self._next_device = [0] * self.cpu_clusters

    def read(self, table: Table, *, uses_devices: bool) -> tuple[int, int]:
        """The CPU cluster of a task, and its cluster of GPUs among all."""
        if "cluster" in table:
            cpus = table.integer("cluster", 0, least=0, most=self.cpu_clusters - 1)
        else:
            table.take("cluster")
            cpus = self._next_cpu % self.cpu_clusters
            self._next_cpu += 1
        if "gpu_cluster" in table:
            inner = table.integer("gpu_cluster", 0, least=0, most=self.each - 1)
        else:
            table.take("gpu_cluster")
            inner = self._next_device[cpus] % self.each
            self._next_device[cpus] += uses_devices
        return cpus, cpus * self.each + inner


def _read_task(table: Table, names: dict[str, Any], places: _Places) -> TaskPlan:
    name = read_name(table, names)
    period_ns = table.duration("period", required=True, least=1)
    deadline_ns = table.duration("deadline", period_ns, least=1)
    does = [key for key in ("cpu", "kernels", "input", "output", "state") if key in table]
    cpu_ns = table.duration("cpu", 0)
    offset_ns = table.duration("offset", 0)
    budget_ns = table.duration("budget", least=1) if "budget" in table else None
    table.take("budget")
    kernels = _kernels(table)
    sizes = [_taken(table, key, parse_size, 0) for key in ("input", "output", "state")]
    work = DeviceWork(kernels, *sizes) if kernels or any(sizes) else None
    if not does:
        table.bad("", "nothing to do", "cpu, kernels or both")
    cpus, devices = places.read(table, uses_devices=work is not None)
    variation = _variation(table)
    table.close()
    task = LockTask(name, period_ns, deadline_ns, cpu_ns, work, cpus, devices, budget_ns)
    return TaskPlan(task, offset_ns, variation)


def _kernels(table: Table) -> tuple[int, ...]:
    value = table.take("kernels")
    if value is None:
        return ()
    lengths = []
    for place, item in enumerate(value if isinstance(value, list) else [value]):
        try:
            lengths.append(parse_duration(item))
        except DurationError as error:
            path = (*table.path, "kernels", *((place,) if isinstance(value, list) else ()))
            table.report.add(path, shown(item), str(error))
    return tuple(lengths)


def _variation(table: Table) -> Variation:
    aberrant = table.table("aberrant") or Table({}, (*table.path, "aberrant"), table.report)
    given = "every" in aberrant or "factor" in aberrant
    every_ns = aberrant.duration("every", 0, least=1, required=given)
    factor = aberrant.integer("factor", 10 if given else 1, least=1, most=1000)
    aberrant.close()
    return Variation(
        noise=table.number("noise", 0.0, least=0.0, most=0.3),
        shortest=table.number("shortest", 1.0, least=0.0, most=1.0),
        split=table.boolean("split", False),
        aberrant_factor=factor,
        aberrant_every_ns=every_ns if given else 0,
        jitter_ns=table.duration("jitter", 0),
        sporadic=table.number("sporadic", 0.0, least=0.0, most=100.0),
    )
