"""A cluster as tables: its GPUs, its claims, and what its tasks came to."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from headway.engine.units import format_ns
from headway.view.tables import counted, new_console, print_rows

GPUS = ("node", "gpu", "model", "reserved", "busy", "claims", "tasks", "daemon")
CLAIMS = ("claim", "node", "gpu", "state", "asks for")
TASKS = ("task", "node", "gpu", "prio", "reserve", "budget", "state", "jobs", "misses", "p99")


def print_view(view: dict[str, Any], console: Console | None = None) -> None:
    """Everything, and below it a line for each thing that is not as it should be."""
    console = console or new_console()
    gpus = [(node, gpu) for node in view["nodes"] for gpu in node.get("gpus", ())]
    head = f"{counted(len(view['nodes']), 'node')}, {counted(len(gpus), 'GPU')}, "
    console.print(head + counted(len(view["claims"]), "claim"), soft_wrap=True)
    print_rows(console, GPUS, [_gpu_row(n, g) for n, g in gpus], leave_out=("tasks", "model"))
    if view["claims"]:
        print_rows(console, CLAIMS, [_claim_row(c) for c in view["claims"]])
    tasks = [(node, gpu, task) for node, gpu in gpus for task in gpu["tasks"]]
    if tasks:
        narrow = ("jobs", "budget", "state", "reserve")
        print_rows(console, TASKS, [_task_row(*found) for found in tasks], leave_out=narrow)
    for line in problems(view):
        console.print(line, soft_wrap=True)


def problems(view: dict[str, Any]) -> list[str]:
    """What is not as it should be, a line each."""
    found = [stranger["problem"] for stranger in view["strangers"]]
    for node in view["nodes"]:
        if node["problem"]:
            found.append(node["problem"])
        found += [
            f"GPU {gpu['index']} of node {node['node']}: {gpu['problem']}"
            for gpu in node.get("gpus", ())
            if gpu["problem"]
        ]
    for claim in view["claims"]:
        if claim["why"]:
            found.append(f"{claim['name']} is {claim['state']}: {claim['why']}")
    return found


def _gpu_row(node: dict[str, Any], gpu: dict[str, Any]) -> list[str]:
    daemon = "down" if gpu["problem"] else str(gpu["daemon"])
    numbers = [f"{gpu['reserved']:.0%}", f"{gpu['busy']:.0%}", str(gpu["claims"])]
    cells = [node["node"], str(gpu["index"]), gpu["model"], *numbers]
    return [*cells, str(len(gpu["tasks"])), daemon]


def _claim_row(claim: dict[str, Any]) -> list[str]:
    where = ["." if claim[key] is None else str(claim[key]) for key in ("node", "gpu")]
    return [claim["name"], *where, claim["state"], claim["claim"]]


def _task_row(node: dict[str, Any], gpu: dict[str, Any], task: dict[str, Any]) -> list[str]:
    reserve = budget = "."
    if task["capacity_ns"] is not None:
        reserve = f"{format_ns(task['capacity_ns'])}/{format_ns(task['period_ns'])}"
        budget = format_ns(task["budget_ns"])
    p99 = "." if task["job_p99_ns"] is None else format_ns(task["job_p99_ns"])
    cells = [task["name"], node["node"], str(gpu["index"]), task["priority"], reserve, budget]
    return [*cells, task["state"], str(task["jobs"]), str(task["misses"]), p99]
