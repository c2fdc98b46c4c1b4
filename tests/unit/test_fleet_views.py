"""A cluster as a person sees it: one trace of many daemons, tables and metrics."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from headway.fleet.asking import GpuTrace
from headway.fleet.recording import clock_difference_ns
from headway.view.fleet.merging import merge
from headway.view.fleet.metrics import METRICS, Fleet
from headway.view.fleet.tables import print_view, problems
from headway.view.tables import new_console
from tests.bench.perfetto import ask_perfetto
from tests.unit.test_traces import MS, RUN, save

SLICES = "select count(*) as n, min(ts) as first, max(ts) as last from slice"
ROOTS = """select distinct root.name as name from track t join track root on t.parent_id = root.id
           where root.parent_id is null order by 1"""


def test_traces_of_many_daemons_are_one_file_by_one_clock(tmp_path: Path) -> None:
    """The second daemon's clock is three seconds behind, and its run is drawn when it was."""
    data = save(tmp_path / "one.pftrace", RUN).read_bytes()
    ((alone,),) = ask_perfetto(tmp_path / "one.pftrace", SLICES)
    found = [
        GpuTrace("one", 0, 0, 1000, data),
        GpuTrace("two", 1, 3000 * MS, 1000, data),
    ]
    target = tmp_path / "all.pftrace"
    assert merge(str(target), found) == target.stat().st_size
    ((both,), roots) = ask_perfetto(target, SLICES, ROOTS)
    assert both["n"] == 2 * alone["n"]
    assert both["first"] == alone["first"]
    assert both["last"] == alone["last"] + 3000 * MS
    assert [root["name"] for root in roots] == ["one, GPU 0", "two, GPU 1"]


def test_clocks_are_told_apart_by_the_quickest_answer() -> None:
    from time import monotonic_ns

    difference_ns, within_ns = clock_difference_ns(lambda: monotonic_ns() - 5_000_000_000)
    assert abs(difference_ns - 5_000_000_000) <= within_ns


TASK: dict[str, Any] = {
    "name": "detector", "pid": 7, "priority": "9", "state": "idle", "reserve": "r",
    "capacity_ns": 6 * MS, "period_ns": 10 * MS, "budget_ns": -MS, "gpu_ns": 3_000 * MS,
    "share": 0.5, "jobs": 12, "misses": 2, "job_p50_ns": None, "job_p99_ns": 8 * MS, "note": "",
}  # fmt: skip
VIEW: dict[str, Any] = {
    "nodes": [
        {
            "node": "one", "problem": "",
            "gpus": [
                {"index": 0, "model": "NVIDIA-H200", "problem": "", "daemon": 5, "busy": 0.25,
                 "reserved": 0.6, "claims": 1, "tasks": [TASK]},
                {"index": 1, "model": "NVIDIA-H200", "problem": "its daemon is down: no", "busy": 0,
                 "daemon": 0, "reserved": 0, "claims": 0, "tasks": []},
            ],
        }
    ],
    "strangers": [{"node": "old", "problem": "node old runs Headway 0.0.9"}],
    "claims": [
        {"name": "detector", "node": "one", "gpu": 0, "state": "running", "claim": "priority 9",
         "why": ""},
        {"name": "late", "node": None, "gpu": None, "state": "pending", "claim": "priority 9",
         "why": "it asks for 60 % of a GPU"},
    ],
    "placed": 4,
}  # fmt: skip


def test_what_is_wrong_stands_below_the_tables() -> None:
    out = io.StringIO()
    print_view(VIEW, new_console(file=out, width=120))
    text = out.getvalue()
    assert text.startswith("1 node, 2 GPUs, 2 claims")
    rows = [line.split() for line in text.splitlines()]
    assert ["detector", "one", "0", "9", "6ms/10ms", "-1ms", "idle", "12", "2", "8ms"] in rows
    assert problems(VIEW) == [
        "node old runs Headway 0.0.9",
        "GPU 1 of node one: its daemon is down: no",
        "late is pending: it asks for 60 % of a GPU",
    ]
    assert text.splitlines()[-3:] == problems(VIEW)


def test_metrics_have_the_names_of_nodes() -> None:
    registry = CollectorRegistry()
    registry.register(Fleet(lambda: VIEW))
    text = generate_latest(registry).decode()
    where = 'gpu="0",node="one"'
    for line in (
        'headway_fleet_node_up{node="old"} 0.0',
        'headway_fleet_gpu_reserved_ratio{gpu="0",model="NVIDIA-H200",node="one"} 0.6',
        f'headway_fleet_task_budget_seconds{{{where},pid="7",task="detector"}} -0.001',
        f'headway_fleet_task_deadline_misses_total{{{where},pid="7",task="detector"}} 2.0',
        'headway_fleet_claims{state="pending"} 1.0',
        "headway_fleet_placed_total 4.0",
    ):
        assert line in text, line


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_ends_in_its_unit(metric: Any) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")
