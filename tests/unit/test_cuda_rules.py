"""Rules that CUDA programs keep in the simulator, whatever they do."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import Recorder
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import read_scenario
from headway.trace.checker import Checker

US, MS = 1000, 1_000_000
WINDOW_US = 200
KINDS = ("time-sliced", "side-by-side", "interleaved", "one-group")


def written(us: int) -> str:
    return f"{us}us"


kernels = st.fixed_dictionaries(
    {"kernel": st.integers(1, 1500).map(written), "count": st.integers(1, 30)},
    optional={
        "blocks": st.integers(1, 300),
        "per_sm": st.integers(1, 4),
        "stream": st.integers(0, 2),
        "cpu": st.integers(0, 100).map(written),
        "spread": st.just(0.5),
    },
)
steps = st.one_of(
    kernels,
    kernels,
    st.fixed_dictionaries({"graph": st.integers(1, 50).map(written), "count": st.integers(1, 40)}),
    st.fixed_dictionaries(
        {
            "copy": st.integers(1, 32).map(lambda mib: f"{mib}MiB"),
            "to": st.sampled_from(["device", "host", "itself"]),
            "waits": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"cpu": st.integers(1, 3000).map(written)}),
    st.fixed_dictionaries({"sync": st.sampled_from(["all", 0, 1])}),
)


@st.composite
def works(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [draw(kernels), *draw(st.lists(steps, max_size=5))]


@st.composite
def tasks(draw: st.DrawFn, name: str) -> dict[str, Any]:
    cuda: dict[str, Any] = {
        "work": draw(works()),
        "jobs": draw(st.integers(1, 6)),
        "offset": written(draw(st.integers(0, 20_000))),
        "seed": draw(st.integers(0, 3)),
        "sync_every": draw(st.sampled_from([1, 1, 1, 2])),
        "tells": draw(st.booleans()),
    }
    arrivals = draw(st.sampled_from(["period", "poisson", None]))
    if arrivals is not None:
        cuda[arrivals] = written(draw(st.integers(500, 20_000)))
    task: dict[str, Any] = {
        "name": name,
        "priority": draw(st.integers(0, 2)),
        "policy": draw(st.sampled_from(["overlap", "overlap", "prt", "ht", "fifo"])),
        "cuda": cuda,
    }
    if draw(st.integers(0, 3)) == 0:
        period = draw(st.integers(10, 50))
        capacity = draw(st.integers(2, period))
        task["reserve"] = {"policy": "pe", "capacity": f"{capacity}ms", "period": f"{period}ms"}
    return task


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    names = "abcd"[: draw(st.integers(1, 4))]
    return {
        "device": {"kind": draw(st.sampled_from(KINDS))},
        "manager": {"polls": draw(st.booleans())}
        | draw(st.sampled_from([{}, {}, {"tick": "1ms"}])),
        "run": {"duration": "60s"},
        "task": [draw(tasks(name)) for name in names],
    }


def simulated(scenario: dict[str, Any]) -> tuple[Outcome, Checker]:
    checker = Checker()
    return simulate(read_scenario(scenario, "test"), observers=[Recorder(checker.feed)]), checker


@settings(deadline=None, max_examples=25)
@given(scenarios())
def test_everybody_finishes_no_rule_is_broken_and_time_is_charged_once(
    scenario: dict[str, Any],
) -> None:
    outcome, checker = simulated(scenario)
    assert checker.violations == []
    for task in scenario["task"]:
        assert len(outcome.jobs[task["name"]]) == task["cuda"]["jobs"], task["name"]
    statistics = outcome.statistics
    charged_ns = sum(task.gpu_ns for task in statistics.tasks)
    assert charged_ns <= statistics.end_ns


@settings(deadline=None, max_examples=25)
@given(scenarios())
def test_managed_or_not_the_same_work_is_done(scenario: dict[str, Any]) -> None:
    managed, _ = simulated(scenario)
    alone, _ = simulated({**scenario, "manager": {"kind": "none"}})
    for name, entry in managed.statistics.by_name().items():
        assert entry.gpu_ns == alone.statistics.by_name()[name].gpu_ns
        assert len(managed.jobs[name]) == len(alone.jobs[name])


@st.composite
def importants(draw: st.DrawFn) -> dict[str, Any]:
    """Somebody whose jobs are some kernels on one stream, regular or not."""
    arrivals = draw(st.sampled_from(["period", "poisson"]))
    step = {
        "kernel": written(draw(st.integers(5, 500))),
        "count": draw(st.integers(1, 10)),
    }
    cuda = {
        "work": [step],
        arrivals: written(draw(st.integers(3_000, 20_000))),
        "offset": written(draw(st.integers(0, 20_000))),
        "seed": draw(st.integers(0, 9)),
    }
    return {"name": "high", "priority": 9, "policy": "overlap", "cuda": cuda}


def longest_us(task: dict[str, Any]) -> int:
    """What can be on the GPU of a program when its turn ends: of each stream a window, and what was
    the last thing to join it."""
    streams: dict[int, int] = {}
    for step in task["cuda"]["work"]:
        cost_us = 0
        if "kernel" in step:
            cost_us = int(step["kernel"].removesuffix("us")) * (3 if "spread" in step else 2) // 2
        if "graph" in step:
            cost_us = (int(step["graph"].removesuffix("us")) + 3) * step["count"]
        stream = step.get("stream", 0)
        streams[stream] = max(streams.get(stream, 0), cost_us)
    return sum(WINDOW_US * 5 // 4 + cost_us for cost_us in streams.values())


@settings(deadline=None, max_examples=25)
@given(importants(), scenarios(), st.sampled_from(KINDS))
def test_the_most_important_waits_for_a_window_and_one_group_of_each_stream_at_most(
    high: dict[str, Any], others: dict[str, Any], kind: str
) -> None:
    """And for switches, on a device that has them. Whatever its arrivals are, and from the first
    job on: nothing of that is learned."""
    top = {"device": {"kind": kind}, "run": {"duration": "80ms"}}
    low = others["task"]
    for task in low:
        task["cuda"].pop("jobs", None)
        task["policy"] = "overlap"
    alone, _ = simulated({**top, "task": [high]})
    both, checker = simulated({**top, "task": [high, *low]})
    assert checker.violations == []
    if not both.jobs["high"]:
        return
    worst_ns = max(job.response_ns for job in alone.jobs["high"])
    switches_us = 2 * 140 * (1 + len(low)) if kind == "time-sliced" else 0
    wait_us = sum(longest_us(task) for task in low) + switches_us + 60
    assert max(job.response_ns for job in both.jobs["high"]) <= worst_ns + wait_us * US
