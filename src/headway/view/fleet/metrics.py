"""What a cluster counts, for Prometheus: each metric declared once, with the names of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import Metric

View = dict[str, Any]
Values = Iterator[tuple[dict[str, str], float]]


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: its name ends in its unit, or in `_total` if it counts."""

    name: str
    kind: str
    help: str
    values: Callable[[View], Values]


class Fleet:
    """What prometheus_client collects: the cluster as it is now."""

    def __init__(self, look: Callable[[], View]) -> None:
        self._look = look

    def collect(self) -> Iterator[Metric]:
        view = self._look()
        for declared in METRICS:
            metric = Metric(declared.name.removesuffix("_total"), declared.help, declared.kind)
            for labels, value in declared.values(view):
                metric.add_sample(declared.name, labels, value)
            yield metric

    def describe(self) -> list[Metric]:
        """Nobody is asked at the start."""
        return []


def _gpus(value: Callable[[View], float]) -> Callable[[View], Values]:
    def values(view: View) -> Values:
        for node in view["nodes"]:
            for gpu in node.get("gpus", ()):
                labels = {"node": node["node"], "gpu": str(gpu["index"]), "model": gpu["model"]}
                yield labels, value(gpu)

    return values


def _tasks(value: Callable[[View], float | None]) -> Callable[[View], Values]:
    def values(view: View) -> Values:
        for node in view["nodes"]:
            for gpu in node.get("gpus", ()):
                where = {"node": node["node"], "gpu": str(gpu["index"])}
                for task in gpu["tasks"]:
                    found = value(task)
                    if found is not None:
                        yield {**where, "task": task["name"], "pid": str(task["pid"])}, found

    return values


def _nodes(view: View) -> Values:
    for node in view["nodes"]:
        yield {"node": node["node"]}, float(not node["problem"])
    for stranger in view["strangers"]:
        yield {"node": stranger["node"]}, 0.0


def _claims(view: View) -> Values:
    states = ("running", "placed", "pending", "restarting", "moving", "behind")
    for state in states:
        yield {"state": state}, sum(claim["state"] == state for claim in view["claims"])


def _seconds(key: str) -> Callable[[View], float | None]:
    return lambda task: None if task[key] is None else task[key] / 1e9


METRICS = (
    Declared(
        "headway_fleet_node_up", "gauge",
        "1 if the node's agent answers the placer and runs the same version of Headway.", _nodes,
    ),
    Declared(
        "headway_fleet_claims", "gauge", "Claims by what has become of them.", _claims,
    ),
    Declared(
        "headway_fleet_placed_total", "counter", "Claims that got a GPU since the placer began.",
        lambda view: iter([({}, view["placed"])]),
    ),
    Declared(
        "headway_fleet_gpu_up", "gauge", "1 if the GPU's daemon answers.",
        _gpus(lambda gpu: float(not gpu["problem"])),
    ),
    Declared(
        "headway_fleet_gpu_reserved_ratio", "gauge", "Part of the GPU's time that is promised.",
        _gpus(lambda gpu: gpu["reserved"]),
    ),
    Declared(
        "headway_fleet_gpu_busy_ratio", "gauge",
        "Part of the last second or two the GPU was in use.", _gpus(lambda gpu: gpu["busy"]),
    ),
    Declared(
        "headway_fleet_task_gpu_seconds_total", "counter", "GPU time a task has used.",
        _tasks(_seconds("gpu_ns")),
    ),
    Declared(
        "headway_fleet_task_budget_seconds", "gauge",
        "What is left of a task's reserve; below zero is debt.", _tasks(_seconds("budget_ns")),
    ),
    Declared(
        "headway_fleet_task_jobs_total", "counter", "Jobs a task has done.",
        _tasks(lambda task: task["jobs"]),
    ),
    Declared(
        "headway_fleet_task_deadline_misses_total", "counter", "Jobs done after their deadline.",
        _tasks(lambda task: task["misses"]),
    ),
    Declared(
        "headway_fleet_task_job_p99_seconds", "gauge",
        "99 % of a task's last jobs took no longer.", _tasks(_seconds("job_p99_ns")),
    ),
)  # fmt: skip
