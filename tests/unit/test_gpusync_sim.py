"""Machines of CPUs, devices and a bus in virtual time: every instant is worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.locks.quantities import parse_rate, parse_size
from headway.engine.reading import BadInput
from headway.sim.analysing import analyse_machine
from headway.sim.gpusync.bus import Route, max_min
from headway.sim.gpusync.node import Node
from headway.sim.gpusync.plan import GpuSyncPlan
from headway.sim.gpusync.results import GpuSyncResult, TaskResult
from headway.sim.gpusync.run import run_plan
from headway.sim.gpusync.scenario import parse_gpusync, read_gpusync

US = 1_000
MS = 1_000_000


def plan(*tasks: dict[str, Any], **changes: Any) -> GpuSyncPlan:
    """One CPU and one GPU with helpers that cost nothing, unless `changes` say otherwise."""
    machine = {"interrupt": "0us", "worker": "0us", "link": "1GB/s", "hub": "1GB/s"}
    machine |= changes.pop("machine", {})
    file = {
        "run": {"duration": changes.pop("duration", "1s")},
        "machine": machine,
        "gpusync": changes,
        "task": list(tasks),
    }
    return read_gpusync(file, "scenario")


def run(*tasks: dict[str, Any], **changes: Any) -> GpuSyncResult:
    return run_plan(plan(*tasks, **changes))


def task(name: str, period: str = "1s", **keys: Any) -> dict[str, Any]:
    return {"name": name, "period": period, **keys}


def finishes(result: TaskResult) -> list[float]:
    """When the jobs ended, in milliseconds."""
    return [finish / MS for finish in result.finishes]


# -- CPUs and units --------------------------------------------------------------------------


def test_a_job_computes_copies_runs_kernels_and_computes() -> None:
    # 1 ms, 1 MB at 1 GB/s, 4 ms, 2 MB, 1 ms; each operation with 0.1 ms of helpers behind it.
    result = run(
        task("a", cpu="2ms", kernels=["4ms"], input="1MB", output="2MB"),
        machine={"interrupt": "60us", "worker": "40us"},
    )
    assert list(result.tasks["a"].finishes) == [9_300 * US]
    assert list(result.tasks["a"].unit_held_ns) == [4_100 * US]


def test_a_later_but_more_urgent_job_preempts() -> None:
    low = task("low", cpu="10ms")
    high = task("high", deadline="20ms", cpu="2ms", offset="3ms")
    result = run(low, high)
    assert finishes(result.tasks["high"]) == [5]
    assert finishes(result.tasks["low"]) == [12]


def test_under_rate_monotonic_the_period_counts_and_not_the_deadline() -> None:
    # At 12 the second job of `often` is due later than `seldom`, and goes first all the same.
    seldom = task("seldom", period="100ms", deadline="15ms", cpu="14ms")
    often = task("often", period="12ms", cpu="2ms")
    assert finishes(run(seldom, often, scheduler="rm", duration="30ms").tasks["seldom"]) == [18]
    assert finishes(run(seldom, often, scheduler="edf", duration="30ms").tasks["seldom"]) == [16]


def test_a_holder_of_the_engine_runs_with_the_priority_of_who_waits() -> None:
    # One CPU. `low` has the execution engine from 0 to 10; `high` asks for it at 9; `mid` computes
    # from 8 for 100 ms. When `low` is done it needs the CPU to give the engine back.
    low = task("low", kernels=["10ms"])
    mid = task("mid", cpu="100ms", deadline="500ms", offset="8ms")
    high = task("high", kernels=["5ms"], deadline="100ms", offset="9ms")
    result = run(low, mid, high, rho=2)
    assert finishes(result.tasks["high"]) == [15]
    assert finishes(result.tasks["mid"]) == [108]
    # What `low` had left, nothing, had to wait for the CPU after its engine was given back.
    assert finishes(result.tasks["low"])[0] >= 10


def test_two_jobs_with_tokens_overlap_a_copy_and_a_kernel() -> None:
    # rho = 2: b copies in while a computes; rho = 1: b waits for a's token.
    a = task("a", kernels=["5ms"], input="1MB")
    b = task("b", kernels=["5ms"], input="3MB")
    assert finishes(run(a, b, rho=2, machine={"cpus": 2}).tasks["b"]) == [11]
    assert finishes(run(a, b, rho=1, machine={"cpus": 2}).tasks["b"]) == [14]


def test_helper_threads_take_turns_on_a_device() -> None:
    # Both kernels are done at 5 on two devices, each with its own interrupt thread; on one CPU.
    a, b = task("a", kernels=["5ms"]), task("b", kernels=["5ms"])
    shape = {"gpus": 2, "interrupt": "1ms", "worker": "1ms"}
    result = run(a, b, machine=shape)
    assert finishes(result.tasks["a"]) == [7]
    assert finishes(result.tasks["b"]) == [9]


# -- the bus ---------------------------------------------------------------------------------


def test_copies_to_two_devices_share_the_hub() -> None:
    # 1 MB each at once over 1 GB/s: each at half of it. With a hub for both, at full speed.
    a, b = task("a", input="1MB"), task("b", input="1MB")
    shape = {"cpus": 2, "gpus": 2, "hub": "1GB/s"}
    assert finishes(run(a, b, machine=shape).tasks["b"]) == [2]
    assert finishes(run(a, b, machine={**shape, "hub": "2GB/s"}).tasks["b"]) == [1]


def test_a_transfer_slows_down_while_another_is_in_flight() -> None:
    # a has 2 MB from 0, b 1 MB from 1: a has done 1 MB at 1, both have 0.5 GB/s until 3.
    a, b = task("a", input="2MB"), task("b", input="1MB", offset="1ms")
    result = run(a, b, machine={"cpus": 2, "gpus": 2})
    assert finishes(result.tasks["a"]) == finishes(result.tasks["b"]) == [3]


def test_the_two_directions_do_not_disturb_each_other() -> None:
    a, b = task("a", input="2MB"), task("b", output="2MB")
    result = run(a, b, machine={"cpus": 2, "gpus": 2})
    assert finishes(result.tasks["a"]) == finishes(result.tasks["b"]) == [2]


def test_rates_are_fair_and_leave_nothing() -> None:
    routes: dict[int, Route] = {0: ("x",), 1: ("x", "y"), 2: ("y",), 3: ("z",)}
    assert max_min(routes, lambda part: {"x": 30, "y": 100, "z": 7}[str(part)]) == {
        0: 15,
        1: 15,
        2: 85,
        3: 7,
    }


@given(
    routes=st.lists(
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True),
        min_size=1,
        max_size=8,
    ),
    capacities=st.lists(st.integers(100, 10_000), min_size=5, max_size=5),
)
@settings(deadline=None)
def test_every_transfer_has_a_full_part_on_its_way_where_nobody_has_more(
    routes: list[list[str]], capacities: list[int]
) -> None:
    ways: dict[int, Route] = {n: tuple(route) for n, route in enumerate(routes)}
    room = dict(zip("abcde", capacities, strict=True))
    rates = max_min(ways, lambda part: room[str(part)])
    for part, capacity in room.items():
        assert sum(rates[n] for n, way in ways.items() if part in way) <= capacity
    for number, way in ways.items():
        full = [
            part
            for part in way
            if room[str(part)] - sum(rates[n] for n, w in ways.items() if part in w) < len(routes)
        ]
        assert any(
            all(rates[n] <= rates[number] + 1 for n, w in ways.items() if part in w)
            for part in full
        )


# -- migration -------------------------------------------------------------------------------


def mover(**keys: Any) -> dict[str, Any]:
    """Its home is device 0; its second job, at 100, finds that device's only token taken."""
    return task("mover", period="100ms", kernels=["5ms"], state="4MB", **keys)


BLOCKER = task("blocker", kernels=["100ms"], offset="50ms")


def test_state_moves_to_the_device_with_a_free_token() -> None:
    # Without affinity the idle token wins: at 100 that is device 1's. 4 MB in two chunks first.
    shape = {"gpus": 2, "cpus": 2}
    copies = {"chunk": "2MB"}
    result = run(mover(), BLOCKER, affinity=False, machine=shape, copies=copies, duration="150ms")
    assert finishes(result.tasks["mover"]) == [5, 109]
    assert result.tasks["mover"].distances == [0, 1, 0, 0]


def test_through_the_host_state_is_copied_out_always_and_in_when_the_device_is_another() -> None:
    shape = {"gpus": 2, "cpus": 2}
    result = run(
        mover(), BLOCKER, affinity=False, machine=shape, migration="system", duration="150ms"
    )
    assert finishes(result.tasks["mover"]) == [9, 113]


def test_devices_without_a_common_hub_move_state_through_the_host() -> None:
    shape = {"gpus": 2, "cpus": 2, "distances": [[0, 3], [3, 0]]}
    file = plan(mover(), BLOCKER, affinity=False, machine=shape, duration="150ms")
    result = run_plan(file)
    # 4 MB out of the home at 1 GB/s, then in; 4 ms would do for peers.
    assert finishes(result.tasks["mover"]) == [5, 113]
    assert result.tasks["mover"].distances == [0, 0, 0, 1]
    verdict = analyse_machine(file).verdicts[0]
    assert verdict.parts["moves"] >= 8 * MS


def test_the_interrupt_thread_of_the_home_serves_state_that_leaves_it() -> None:
    shape = {"gpus": 2, "distances": [[0, 3], [3, 0]], "interrupt": "1us"}
    hog = task("hog", cpu="300ms", offset="100ms")
    result = run(
        mover(), BLOCKER, hog, affinity=False, scheduler="rm", machine=shape, duration="150ms"
    )
    assert 113 < finishes(result.tasks["mover"])[1] < 113.1


def test_with_affinity_a_job_waits_at_home_if_moving_looks_no_better() -> None:
    # Two others have both devices, until 120 and 111; mover's home is the second's.
    shape = {"gpus": 2, "cpus": 2}
    others = [
        task("first", kernels=["70ms"], offset="50ms"),
        task("second", kernels=["60ms"], offset="51ms"),
    ]
    result = run(mover(), *others, machine=shape, allocator="length", length=2, duration="150ms")
    assert result.tasks["mover"].distances == [1, 0, 0, 0]
    assert finishes(result.tasks["mover"]) == [5, 116]


# -- budgets ---------------------------------------------------------------------------------


def overrunning(**keys: Any) -> dict[str, Any]:
    """Needs 10 ms of 4."""
    return task("over", period="20ms", cpu="10ms", budget="4ms", **keys)


def test_early_releasing_gives_up_the_next_jobs() -> None:
    budget = {"policy": "early"}
    result = run(overrunning(), budget=budget, duration="100ms").tasks["over"]
    assert list(result.releases) == [0, 60 * MS]
    assert result.overruns == 4
    catching = {"policy": "early", "catch_up": True}
    result = run(overrunning(), budget=catching, duration="25ms").tasks["over"]
    assert finishes(result)[:2] == [10, 20]


def test_postponing_the_deadline_lets_others_go_first() -> None:
    # `over` is due at 20; after 4 ms it is due at 40, behind `other`, due at 30.
    other = task("other", period="30ms", cpu="5ms")
    result = run(overrunning(), other, budget={"policy": "early"}, duration="30ms")
    assert finishes(result.tasks["other"]) == [9]
    assert run(overrunning(), other, duration="30ms").tasks["other"].finishes[0] == 15 * MS


def test_a_signal_ends_a_job_that_computes_at_once() -> None:
    result = run(overrunning(), budget={"policy": "signal"}, duration="50ms").tasks["over"]
    assert finishes(result) == [4, 24, 44]
    assert result.aborted == 3


def test_a_signal_waits_for_the_operation_in_flight_and_frees_the_token() -> None:
    over = task("over", period="100ms", kernels=["6ms", "6ms", "6ms"], budget="8ms")
    other = task("other", period="100ms", kernels=["1ms"], offset="1ms")
    result = run(over, other, budget={"policy": "signal"}, duration="90ms", machine={"cpus": 2})
    assert finishes(result.tasks["over"]) == [12]
    assert finishes(result.tasks["other"]) == [13]


def test_time_blocked_on_a_token_is_not_paid_for() -> None:
    # b waits 20 ms for a's token and uses 5 of its 6.
    a, b = task("a", kernels=["20ms"]), task("b", kernels=["5ms"], budget="6ms")
    result = run(a, b, budget={"policy": "early"})
    assert result.tasks["b"].overruns == 0


def test_under_bandwidth_inheritance_the_strongest_pay_though_they_are_blocked() -> None:
    # One CPU: b, due first, is blocked by a from 1 on and pays. At 7 its 6 ms are gone and it is
    # due after a, which pays from then on.
    a = task("a", kernels=["20ms"])
    b = task("b", kernels=["5ms"], budget="6ms", deadline="50ms", offset="1ms")
    result = run(a, b, budget={"policy": "bwi"})
    assert result.tasks["b"].overruns == 1
    assert result.tasks["a"].overruns == 0


# -- whole runs ------------------------------------------------------------------------------


def random_plan(seed: int) -> GpuSyncPlan:
    rng = random.Random(seed)
    tasks = []
    for number in range(rng.randint(2, 9)):
        period = rng.choice([10, 15, 20, 40])
        keys: dict[str, Any] = {"cpu": f"{rng.randint(1, 20)}00us", "noise": 0.05}
        if rng.random() < 0.7:
            keys |= {
                "kernels": [f"{rng.randint(1, 20)}00us" for _ in range(rng.randint(1, 2))],
                "input": f"{rng.randint(0, 3000)}KB",
                "output": f"{rng.randint(0, 3000)}KB",
                "state": f"{rng.choice([0, 100, 5000])}KB",
            }
        if rng.random() < 0.3:
            keys["aberrant"] = {"every": "100ms", "factor": 5}
        tasks.append(task(f"t{number}", period=f"{period}ms", **keys))
    rho = rng.randint(1, 3)
    scheduler = rng.choice(["edf", "rm"])
    policies = ["none", "signal", "early", "bwi"] if scheduler == "edf" else ["none", "signal"]
    policy = rng.choice(policies)
    copies = {"units": rng.choice([1, 2]), "chunk": "1MB", "keep": rng.random() < 0.5}
    if copies["units"] == 2:
        copies["reserved"] = rng.random() < 0.5
    return plan(
        *tasks,
        machine={"cpus": 4, "cpus_each": 2, "gpus": 4, "gpus_each": rng.choice([1, 2]),
                 "link": "3GB/s", "hub": "4GB/s", "interrupt": "5us", "worker": "5us"},
        scheduler=scheduler,
        rho=rho,
        allocator=rng.choice(["r2dglp-wc", "kfmlp", "priority", "r2dglp"]),
        units=rng.choice(["fifo", "priority"]),
        migration=rng.choice(["peer", "system"]),
        affinity=rng.random() < 0.7,
        budget={"policy": policy},
        copies=copies,
        duration="300ms",
    )  # fmt: skip


def test_nothing_gets_lost_in_random_runs() -> None:
    for seed in range(40):
        chosen = random_plan(seed)
        for number in (0, 1):
            tasks = [entry for entry in chosen.tasks if entry.task.cpus == number]
            node = Node(chosen.system, number, tasks, seed)
            node.run(chosen.duration_ns)
            waiting = {run.job for run in node.runs if run.pending}
            for cluster in node.clusters.values():
                jobs = list(cluster.locks.tokens.jobs())
                assert set(jobs) <= waiting
                for unit in cluster.locks.units.units.values():
                    owners = {unit.owner} - {None}
                    assert owners <= waiting
                assert cluster.locks.units.claims == sum(job.claim is not None for job in jobs)
            for result in node.results:
                assert len(result) > 0 or result.unfinished
                assert all(f >= r for r, f in zip(result.releases, result.finishes, strict=True))
                assert list(result.finishes) == sorted(result.finishes)


def test_runs_repeat_and_nodes_may_be_simulated_in_parallel() -> None:
    chosen = random_plan(7)
    one, two = run_plan(chosen), run_plan(chosen, workers=2)
    assert one == two
    assert one.events > 100


def test_nodes_in_parallel_tell_how_far_they_are_and_can_be_stopped() -> None:
    tasks = [task(f"t{n}", period="20us", cpu="1us", cluster=n) for n in range(2)]
    shape = {"cpus": 2, "cpus_each": 1, "gpus": 2, "gpus_each": 1}
    chosen = plan(*tasks, machine=shape, duration="2s")
    told: list[int] = []

    def stop(now_ns: int) -> bool:
        told.append(now_ns)
        return now_ns == 0

    result = run_plan(chosen, workers=2, progress=stop)
    assert not result.complete
    assert told[-1] > 0
    assert told == sorted(told)
    assert max(told) < chosen.duration_ns


def test_a_stopped_run_says_so() -> None:
    chosen = plan(task("a", period="10us", cpu="1us"), duration="1s")
    assert not run_plan(chosen, progress=lambda now_ns: False).complete
    assert run_plan(plan(task("a", cpu="1us")), progress=lambda now_ns: False).complete


def test_growing_response_times_are_told() -> None:
    # 12 ms of kernels every 10 ms.
    result = run(task("a", period="10ms", kernels=["12ms"]), task("b", period="10ms", cpu="1ms"))
    assert result.unschedulable == ["a"]


# -- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[gpusync]\nrho = 0", ":2: gpusync.rho: found 0, expected a whole number from 1 to 4096"),
        (
            "[machine]\ncpus = 12\ncpus_each = 5\n[gpusync]",
            ":3: machine.cpus_each: found 5, expected a divisor of 12, the number of cpus",
        ),
        (
            '[gpusync]\nallocator = "length"',
            ":1: gpusync.length: found nothing, expected a queue length with the allocator length",
        ),
        (
            "[gpusync]\nlength = 2",
            ":2: gpusync.length: found 2, expected none with the allocator r2dglp-wc",
        ),
        (
            '[machine]\nlink = "1B/s"\n[gpusync]\ncopies = { reserved = true }',
            ":2: machine.link: found 1B/s, expected 1B/s and more for each copy that may be in "
            "flight",
        ),
        (
            "[machine]\ngpus = 2\ndistances = [[0, 1], [2, 0]]\n[gpusync]",
            ":3: machine.distances: found 1 at distances[0][1], expected the same as [1][0], 0 "
            "between a GPU and itself and more between two",
        ),
        (
            "[gpusync]\ncopies = { units = 1, reserved = true }",
            ":2: gpusync.copies.reserved: found a reserved copy engine of one, expected two copy "
            "engines",
        ),
        (
            '[gpusync]\nscheduler = "rm"\nbudget = { policy = "bwi" }',
            ":3: gpusync.budget.policy: found bwi, expected another, or the scheduler edf, which "
            "bwi is for",
        ),
        (
            '[gpusync]\n[[task]]\nname = "a"\nperiod = "1ms"\nkernels = ["x"]\ninput = "1"',
            ":5: task[0].kernels[0]: found 'x', expected a duration with its unit, such as \"5ms\" "
            "(ns, us, ms or s)",
        ),
        (
            '[gpusync]\n[[task]]\nname = "a"\nperiod = "1ms"\ncpu = "1ms"\ncluster = 1',
            ":6: task[0].cluster: found 1, expected a whole number from 0 to 0",
        ),
        (
            '[gpusync]\n[[task]]\nname = "a"\nperiod = "1ms"',
            ":2: task[0]: found nothing to do, expected cpu, kernels or both",
        ),
        ("[gpusync]", ": task: found no task, expected at least one [[task]]"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_key(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_gpusync(text, "file")
    assert str(caught.value).splitlines()[0] == f"file{problem}"


def test_amounts_are_read_exactly() -> None:
    assert parse_size("512KiB") == 524_288
    assert parse_size("1.5MB") == 1_500_000
    assert parse_rate("6GB/s") == 6_000_000_000
    for wrong in ("5", "1.0000001KB", "-1MB", "1TB", 5, None):
        with pytest.raises(ValueError, match="bytes with their unit"):
            parse_size(wrong)
    with pytest.raises(ValueError, match="bytes a second"):
        parse_rate("6GB")
