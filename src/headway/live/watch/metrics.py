"""What the daemon counts, for Prometheus. Imported only when somebody asked for it.

Each metric is declared once, with its description, in `METRICS`; its values come from what `headway
status` is told, so both always say the same. The text is made piece by piece: between two pieces
the daemon does what it is there for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from headway.live.server.report import describe_channel, describe_daemon

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

MAX_TASKS = 100
"""Programs that have lines of their own, those that came first; the rest are only counted."""
A_PIECE = 8
"""Programs that are looked at in one go."""

Facts = dict[str, Any]
Values = Iterator[tuple[str, dict[str, str], float]]
"""What is added to the name, labels, value."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: its name ends in its unit, or in `_total` if it counts."""

    name: str
    kind: str
    help: str
    values: Callable[[Facts], Values]

    def text(self, status: Facts) -> bytes:
        metric = Metric(self.name.removesuffix("_total"), self.help, self.kind)
        for suffix, labels, value in self.values(status):
            metric.add_sample(self.name + suffix, labels, value)
        return generate_latest(_One(metric))


class _One:
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


# -- where values come from ----------------------------------------------------------------------


def _once(value: Callable[[Facts], float], **labels: str) -> Callable[[Facts], Values]:
    """Of the daemon itself."""
    return lambda status: iter([("", labels, value(status))])


def _gpus(key: str) -> Callable[[Facts], Values]:
    """Of each GPU."""
    return lambda status: (("", {"gpu": str(g["gpu"])}, g[key]) for g in status["gpus"])


def _version(status: Facts) -> Values:
    yield "", {"version": status["version"]}, 1


def _task(entry: Facts) -> dict[str, str]:
    """A program's name and process apart, so that a query can follow the name from one process to
    the next; `channel` tells those of one process apart."""
    numbers = {key: str(entry[key]) for key in ("pid", "channel", "gpu")}
    return {"task": entry["name"], **numbers}


def _tasks(value: Callable[[Facts], float]) -> Callable[[Facts], Values]:
    """Of each task."""

    def values(status: Facts) -> Values:
        for entry in status["channels"]:
            yield "", _task(entry), value(entry)

    return values


def _waits(status: Facts) -> Values:
    for entry in status["channels"]:
        task = _task(entry)
        for quantile, key in (("0.5", "wait_p50_ns"), ("0.99", "wait_p99_ns")):
            lately_ns = entry[key]
            value = float("nan") if lately_ns is None else lately_ns / 1e9
            yield "", {**task, "quantile": quantile}, value
        yield "_sum", task, entry["waited_ns"] / 1e9
        yield "_count", task, entry["groups"]


def _reserves(key: str) -> Callable[[Facts], Values]:
    """Of each reserve, once however many share it."""

    def values(status: Facts) -> Values:
        found = {e["reserve"]: e[key] for e in status["channels"] if e["reserve"] is not None}
        for name, duration_ns in found.items():
            yield "", {"reserve": name}, duration_ns / 1e9

    return values


METRICS = (
    Declared("headway_build_info", "gauge", "The version of the daemon; always 1.", _version),
    Declared(
        "headway_uptime_seconds", "gauge", "Time since the daemon started.",
        _once(lambda s: s["uptime_s"]),
    ),
    Declared(
        "headway_grants_total", "counter", "Groups that were let onto the GPU one by one.",
        _once(lambda s: s["grants"]),
    ),
    Declared(
        "headway_leases_total", "counter", "Leases that were given: passing without asking.",
        _once(lambda s: s["leases"]),
    ),
    Declared(
        "headway_refused_total", "counter",
        "Connections that were turned away or broke the protocol.", _once(lambda s: s["refused"]),
    ),
    Declared(
        "headway_engine_restarts_total", "counter",
        "Times the engine was in doubt and was replaced.", _once(lambda s: s["restarts"]),
    ),
    Declared(
        "headway_demotions_total", "counter",
        "Times a process was put behind others, or sent away, because it kept the GPU too long.",
        _once(lambda s: s["demotions"]),
    ),
    Declared(
        "headway_away_processes", "gauge",
        "Processes that are unmanaged because they kept the GPU too long.",
        _once(lambda s: len(s["away"])),
    ),
    Declared(
        "headway_gpu_busy_ratio", "gauge", "Part of the last second or two each GPU was in use.",
        _gpus("busy"),
    ),
    Declared(
        "headway_queue_groups", "gauge", "Groups that are ready and wait for each GPU.",
        _gpus("queue"),
    ),
    Declared(
        "headway_served_tasks", "gauge", "Tasks that are served.", _once(lambda s: s["served"]),
    ),
    Declared(
        "headway_unlisted_tasks", "gauge",
        f"Tasks that are served and have no lines here, because there are more than {MAX_TASKS}.",
        _once(lambda s: s["served"] - len(s["channels"])),
    ),
    Declared(
        "headway_task_gpu_seconds_total", "counter", "GPU time a task has used.",
        _tasks(lambda e: e["gpu_ns"] / 1e9),
    ),
    Declared(
        "headway_task_gpu_share_ratio", "gauge",
        "Part of the GPU a task had in the last second or two.", _tasks(lambda e: e["share"]),
    ),
    Declared(
        "headway_task_wait_seconds", "summary",
        "Time from asking to being let onto the GPU; quantiles are over the last five seconds."
        " Groups that pass under a lease do not ask.", _waits,
    ),
    Declared(
        "headway_task_waiting_seconds", "gauge", "How long a task has waited; 0: it does not wait.",
        _tasks(lambda e: (e["waiting_ns"] or 0) / 1e9),
    ),
    Declared(
        "headway_task_frames_total", "counter", "Frames a task has shown, as it says.",
        _tasks(lambda e: e["frames_seen"]),
    ),
    Declared(
        "headway_task_deadline_misses_total", "counter", "Jobs done after their deadline.",
        _tasks(lambda e: e["misses"]),
    ),
    Declared(
        "headway_task_overdue_total", "counter",
        "Times a task lost the GPU because it kept it too long while others waited.",
        _tasks(lambda e: e["overdue"]),
    ),
    Declared(
        "headway_task_standing_level", "gauge",
        "0: served as its priority says; 1: after its equals; 2: after everybody.",
        _tasks(lambda e: e["standing"]),
    ),
    Declared(
        "headway_task_unknown_functions_total", "counter",
        "Functions for GPU work that a task has found and that pass by, because they are unknown.",
        _tasks(lambda e: e["unknown"]),
    ),
    Declared(
        "headway_task_priority_level", "gauge", "Priority in force, inheritance included.",
        _tasks(lambda e: e["effective"]),
    ),
    Declared(
        "headway_reserve_budget_seconds", "gauge",
        "What is left of a reserve's capacity; below zero is debt.", _reserves("budget_ns"),
    ),
    Declared(
        "headway_reserve_capacity_seconds", "gauge", "GPU time a reserve gets every period.",
        _reserves("capacity_ns"),
    ),
    Declared(
        "headway_reserve_period_seconds", "gauge", "Period of a reserve.", _reserves("period_ns"),
    ),
)  # fmt: skip


def pieces(daemon: Daemon) -> Iterator[bytes]:
    """The whole text in short steps; some are empty."""
    entries: list[Facts] = []
    served = [c for c in daemon.channels.values() if c.task is not None]
    chosen = iter(served[:MAX_TASKS])
    while part := list(islice(chosen, A_PIECE)):
        now_ns = time.monotonic_ns()
        entries += [describe_channel(daemon, c, now_ns) for c in part if c.task is not None]
        yield b""
    status = describe_daemon(daemon, entries, time.monotonic_ns())
    status["served"] = len(served)
    for metric in METRICS:
        yield metric.text(status)
