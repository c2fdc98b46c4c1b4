"""What the last seconds were like: by hand, and against a second computation from the events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine import events
from headway.engine.core import Engine
from headway.engine.events import Event, Recorder
from headway.engine.jobs import Job
from headway.engine.model import Group, Lease, Task
from headway.engine.policies.prt import Prt
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.live.watch import stats as stats_module
from headway.live.watch.stats import MAX_FPS, Stats
from headway.live.watch.window import (
    MAX_CAUSES,
    SLOT_NS,
    SLOTS,
    Cause,
    Slot,
    Window,
    bucket_of,
    bucket_top,
)
from headway.sim.outcome import simulate
from headway.sim.scenario import parse_scenario, read_scenario
from tests.integration.command import ROOT
from tests.strategies import scenarios

MS = 1_000_000
S = 1_000_000_000


class Bench:
    """An engine that is watched, and tasks that are told what to do."""

    def __init__(self, holdoff_ns: int = 0) -> None:
        self.stats = Stats()
        self.engine = Engine(observers=[self.stats], named=[Prt(holdoff_ns)])
        self._online: dict[Task, Group] = {}

    def task(self, name: str, level: int = 0, reserve: ReserveSpec | None = None) -> Task:
        task, _ = self.engine.add_task(name, 0, priority=Fixed(level), reserve=reserve)
        return task

    def submit(self, task: Task, at_ns: int, kind: type[Group] = Group, **details: Any) -> None:
        self.engine.advance(at_ns)
        self.engine.submit(kind(task, 0, **details), at_ns)
        self.pump(at_ns)

    def pump(self, at_ns: int) -> None:
        self.engine.advance(at_ns)
        while (group := self.engine.dispatch(at_ns)) is not None:
            self._online[group.task] = group

    def complete(self, task: Task, at_ns: int) -> None:
        group = self._online.pop(task)
        self.engine.complete(group, group.dispatched_ns, at_ns)
        self.pump(at_ns)

    def causes(self, task: Task, at_ns: int) -> dict[tuple[str, str], int]:
        self.stats.update(at_ns)
        return dict(self.stats.causes(task))


# -- windows -------------------------------------------------------------------------------------


@given(st.integers(0, 2**70))
def test_a_bucket_is_at_most_a_sixteenth_too_wide_and_they_are_in_order(value: int) -> None:
    top = bucket_top(bucket_of(value))
    assert value <= top <= value + value // 16
    assert bucket_of(top) == bucket_of(value)
    assert bucket_of(top + 1) == bucket_of(value) + 1


@given(st.lists(st.integers(0, 100 * MS), min_size=1, max_size=200), st.data())
def test_percentiles_of_waits_are_the_nearest_rank_within_a_bucket(
    waits: list[int], data: st.DataObject
) -> None:
    window = Window()
    for wait in waits:
        window.slot(data.draw(st.integers(3, 8))).add_wait(wait)
    ordered = sorted(waits)
    found = window.waits_at(8, 0.5, 0.99, 1.0)
    assert found is not None
    for fraction, value in zip((50, 99, 100), found, strict=True):
        exact = ordered[max(0, -(-fraction * len(ordered) // 100) - 1)]
        assert exact <= value <= exact + exact // 16
    assert found[2] == ordered[-1]


def test_gpu_time_counts_in_the_second_in_which_it_was_used() -> None:
    window = Window()
    window.spend(int(1.25 * S), int(3.5 * S))
    assert [window.gpu_ns(number, 1) for number in range(5)] == [
        0, 0.75 * S, 1 * S, 0.5 * S, 0,
    ]  # fmt: skip
    window.spend(0, 100 * S)  # nothing older than the window
    assert window.gpu_ns(100, SLOTS) == (SLOTS - 1) * S


# -- waits by hand -------------------------------------------------------------------------------


def test_waiting_is_for_whoever_is_on_the_gpu() -> None:
    bench = Bench()
    one, two, three = (bench.task(name) for name in ("one", "two", "three"))
    bench.submit(one, 0)
    bench.submit(two, 1 * MS)
    bench.submit(three, 2 * MS)
    bench.complete(one, 5 * MS)
    bench.complete(two, 9 * MS)
    assert bench.causes(one, 9 * MS) == {}
    assert bench.causes(two, 9 * MS) == {("gpu", "one"): 4 * MS}
    assert bench.causes(three, 9 * MS) == {("gpu", "one"): 3 * MS, ("gpu", "two"): 4 * MS}


def test_a_wait_that_goes_on_is_told_too() -> None:
    bench = Bench()
    one, two = bench.task("one"), bench.task("two")
    bench.submit(one, 0)
    bench.submit(two, 0)
    assert bench.causes(two, 3 * MS) == {("gpu", "one"): 3 * MS}
    assert bench.causes(two, 4 * MS) == {("gpu", "one"): 4 * MS}
    bench.complete(one, 5 * MS)
    assert bench.causes(two, 6 * MS) == {("gpu", "one"): 5 * MS}


def test_hold_off_is_told_from_use() -> None:
    bench = Bench(holdoff_ns=2 * MS)
    high, low = bench.task("high", 5), bench.task("low", 1)
    bench.submit(high, 0)
    bench.submit(low, 1 * MS)
    bench.complete(high, 4 * MS)
    bench.pump(6 * MS)  # nobody came: the hold-off is over
    assert bench.causes(low, 6 * MS) == {("gpu", "high"): 3 * MS, ("holdoff", "high"): 2 * MS}


def test_an_empty_budget_is_told_from_a_busy_gpu() -> None:
    bench = Bench()
    poor = bench.task("poor", 0, ReserveSpec("pe", 1 * MS, 10 * MS))
    rich = bench.task("rich", 5)
    bench.submit(poor, 0)
    bench.complete(poor, 2 * MS)  # one ms of debt: two periods until there is some
    bench.submit(poor, 3 * MS)
    bench.submit(rich, 15 * MS)
    bench.pump(20 * MS)
    bench.complete(rich, 26 * MS)
    assert bench.causes(poor, 26 * MS) == {("budget", ""): 17 * MS, ("gpu", "rich"): 6 * MS}


def test_a_member_that_another_one_overtakes_in_its_pool_waits_for_both() -> None:
    bench = Bench()
    pool = ReserveSpec("pe", 2 * MS, 10 * MS, shared="pool")
    first, second = bench.task("first", 1, pool), bench.task("second", 1, pool)
    bench.submit(first, 0)
    bench.submit(second, 1 * MS)
    bench.complete(first, 3 * MS)  # and nothing is left for the second
    bench.pump(10 * MS)
    assert bench.causes(second, 12 * MS) == {("gpu", "first"): 2 * MS, ("budget", ""): 7 * MS}


def test_a_charge_of_a_group_that_goes_on_leaves_the_others_of_its_pool_without_budget() -> None:
    bench = Bench()
    pool = ReserveSpec("pe", 4 * MS, 20 * MS, "pool")
    holder, mate = bench.task("holder", 1, pool), bench.task("mate", 0, pool)
    bench.submit(holder, 0)
    bench.submit(mate, 0)
    (group,) = bench.engine.gpus[0].online
    bench.engine.charge(group, 7 * MS, 10 * MS, 10 * MS)
    bench.pump(19 * MS)
    assert bench.causes(mate, 19 * MS) == {("gpu", "holder"): 10 * MS, ("budget", ""): 9 * MS}
    bench.pump(20 * MS)
    bench.complete(holder, 25 * MS)
    bench.pump(60 * MS)
    assert bench.causes(mate, 60 * MS)["gpu", "holder"] == 15 * MS
    assert bench.stats.tasks[holder].gpu_ns == 25 * MS


def test_who_withdraws_waited_until_then() -> None:
    bench = Bench()
    one, two = bench.task("one"), bench.task("two")
    bench.submit(one, 0)
    bench.submit(two, 1 * MS)
    bench.engine.withdraw(two, 3 * MS)
    assert bench.causes(two, 9 * MS) == {("gpu", "one"): 2 * MS}
    assert bench.stats.waits(two) is None  # it never got what it asked for


def test_the_window_slides_and_long_waits_count_in_every_second() -> None:
    bench = Bench()
    one, two = bench.task("one"), bench.task("two")
    bench.submit(one, 0)
    bench.submit(two, S // 2)
    assert bench.causes(two, 3 * S) == {("gpu", "one"): 2.5 * S}
    assert bench.causes(two, 20 * S + S // 2) == {("gpu", "one"): 5.5 * S}
    bench.complete(one, 21 * S)
    bench.complete(two, 21 * S + 1)
    assert bench.causes(two, 40 * S) == {}
    assert bench.stats.waits(two) is None
    assert bench.stats.share(one, 40 * S) == 0
    assert bench.stats.busy(40 * S) == 0


def test_what_waits_are_for_takes_bounded_memory_and_nothing_is_lost() -> None:
    bench = Bench()
    victim = bench.task("victim", -1)
    others = [bench.task(f"t{number}") for number in range(3 * MAX_CAUSES)]
    bench.submit(others[0], 0)
    bench.submit(victim, 0)
    for turn in range(1, len(others)):
        bench.submit(others[turn], turn * 5 * MS)
        bench.complete(others[turn - 1], turn * 5 * MS)
    end_ns = len(others) * 5 * MS
    causes = bench.causes(victim, end_ns)
    assert len(causes) <= MAX_CAUSES + 1  # the others
    assert sum(causes.values()) == end_ns
    assert causes["others", ""] > 0


def test_a_wait_over_very_many_changes_is_laid_over_the_last_of_them() -> None:
    bench = Bench()
    victim, one, two = bench.task("victim", -1), bench.task("one"), bench.task("two")
    bench.submit(one, 0)
    bench.submit(victim, 0)
    for turn in range(1, 100):
        now, before = (one, two)[turn % 2], (two, one)[turn % 2]
        bench.submit(now, turn * 1000)
        bench.complete(before, turn * 1000)
    causes = bench.causes(victim, 100_000)
    assert sum(causes.values()) == 100_000
    assert causes["gpu", "one"] == causes["gpu", "two"] == 6000
    assert causes["others", ""] == 88_000


@pytest.mark.parametrize("turns", [400, 40_000])
def test_of_a_long_wait_over_very_many_changes_most_is_told_about_right(turns: int) -> None:
    """Three quarters of it one has the GPU, the rest of it two; half a second in all."""
    bench = Bench()
    victim, one, two = bench.task("victim", -1), bench.task("one"), bench.task("two")
    turn_ns = 500 * MS // turns
    bench.submit(one, 0)
    bench.submit(victim, 0)
    for turn in range(1, turns):
        now, before = (two, one) if turn % 4 == 3 else (one, two if turn % 4 == 0 else one)
        if now is not before:
            bench.submit(now, turn * turn_ns)
            bench.complete(before, turn * turn_ns)
    causes = bench.causes(victim, 500 * MS)
    assert sum(causes.values()) == 500 * MS
    known_ns = 500 * MS - causes.get(("others", ""), 0)
    assert known_ns > 500 * MS * min(turns, 16_384) // turns * 3 // 4, "as far as changes are kept"
    assert 0.5 * known_ns < causes["gpu", "one"] < 0.95 * known_ns


def test_a_grant_costs_no_more_after_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    add_cause = Slot.add_cause

    def counted(slot: Slot, cause: Cause, duration_ns: int) -> None:
        nonlocal looks
        looks += 1
        add_cause(slot, cause, duration_ns)

    monkeypatch.setattr(Slot, "add_cause", counted)
    bench = Bench()
    victim = bench.task("victim", -1)
    others = [bench.task(f"t{number}") for number in range(500)]
    bench.submit(others[0], 0)
    bench.submit(victim, 0)
    for turn in range(1, 500):
        bench.submit(others[turn], turn * MS)
        bench.complete(others[turn - 1], turn * MS)
    looks = 0
    bench.complete(others[-1], 500 * MS)
    assert 0 < looks <= 50


def test_a_new_engine_starts_from_nothing() -> None:
    bench = Bench()
    bench.submit(bench.task("one"), 0)
    Engine(observers=[bench.stats])
    assert bench.stats.tasks == {}
    assert bench.stats.busy(S) == 0


# -- GPU time, leases, frames --------------------------------------------------------------------


def test_a_group_that_still_runs_counts_as_far_as_it_got() -> None:
    bench = Bench()
    one = bench.task("one")
    bench.submit(one, 0)
    bench.complete(one, S // 4)
    bench.submit(one, S // 2)
    assert bench.stats.share(one, S // 2) == 0.5
    assert bench.stats.share(one, 3 * S // 4, running_ns=S // 4) == pytest.approx(2 / 3)
    assert bench.stats.share(one, 3 * S // 4, running_ns=900 * S) == 1


def test_a_lease_counts_while_it_lasts_and_once_only() -> None:
    bench = Bench()
    holder, other = bench.task("holder"), bench.task("other")
    bench.submit(holder, 0, kind=Lease)
    assert bench.stats.waits(holder) is None  # nobody waited: it is no group
    for tenth in range(1, 10):
        bench.stats.sampled(holder, 0, tenth * 50 * MS, tenth * 100 * MS)
    assert bench.stats.share(holder, 900 * MS) == 0.5
    bench.submit(other, 920 * MS)
    group = bench._online.pop(holder)
    bench.engine.complete(group, 1000 * MS - 500 * MS, 1000 * MS)  # 500 ms in all, 450 counted
    bench.pump(1000 * MS)
    assert bench.stats.tasks[holder].gpu_ns == 500 * MS
    assert bench.causes(other, 1000 * MS) == {("gpu", "holder"): 80 * MS}
    bench.stats.sampled(holder, 0, 900 * MS, 1100 * MS)  # late words about a lease that is over
    assert bench.stats.tasks[holder].gpu_ns == 500 * MS


def test_a_lease_is_not_used_faster_than_time_goes_by() -> None:
    bench = Bench()
    holder = bench.task("holder")
    bench.submit(holder, 0, kind=Lease)
    bench.stats.sampled(holder, 0, 0, 3000 * MS)
    bench.stats.sampled(holder, 0, 2000 * MS, 3100 * MS)
    assert bench.stats.tasks[holder].gpu_ns == 100 * MS


def test_frames_per_second_follow_the_counter_of_the_page() -> None:
    bench = Bench()
    task = bench.task("task")
    assert bench.stats.tasks[task].fps is None
    for tenth in range(1, 41):
        bench.stats.sampled(task, tenth * 6, 0, tenth * 100 * MS)
    assert bench.stats.tasks[task].fps == pytest.approx(60)
    for tenth in range(41, 81):
        bench.stats.sampled(task, 240, 0, tenth * 100 * MS)
    assert bench.stats.tasks[task].fps == 0
    assert bench.stats.tasks[task].frames == 240


@pytest.mark.parametrize("counters", [(2**64 - 1, 0, 2**64 - 1), (5, 3, 2), (2**64 - 1,) * 3])
def test_a_page_may_say_anything(counters: tuple[int, ...]) -> None:
    bench = Bench()
    task = bench.task("liar")
    for place, counter in enumerate(counters):
        bench.stats.sampled(task, counter, 2**64, (place + 1) * 100 * MS)
    fps = bench.stats.tasks[task].fps
    assert fps is None or 0 <= fps <= MAX_FPS * 1.01
    assert bench.stats.tasks[task].frames <= MAX_FPS
    assert bench.stats.tasks[task].gpu_ns == 0  # it has no lease


def test_jobs_that_missed_are_counted_and_groups_are_no_jobs() -> None:
    bench = Bench()
    task = bench.task("task")
    bench.submit(task, 0, deadline_ns=2 * MS)
    bench.complete(task, 5 * MS)
    entry = bench.stats.tasks[task]
    assert (entry.jobs, entry.misses) == (0, 0)
    for number, took_ns in enumerate((2 * MS, 5 * MS)):
        job = Job(task, number, 0, took_ns, 2 * MS, missed=took_ns > 2 * MS)
        bench.stats.job_ended(job, 5 * MS)
    assert (entry.jobs, entry.misses) == (2, 1)
    assert entry.responses.at(0.5, 0.99) == [2 * MS, 5 * MS]


# -- against the events of simulated runs ---------------------------------------------------------


class Second:
    """The same, worked out from the records alone: at every instant, who waits and for what."""

    def __init__(self, stream: list[Event]) -> None:
        self.causes: dict[str, Counter[tuple[str, str]]] = {}
        self.waits: dict[str, list[int]] = {}
        self.gpu_ns: Counter[str] = Counter()
        self.online: list[str] = []
        self.last = ""
        self.waiting: dict[str, events.Submitted] = {}
        self.reserve_of: dict[str, str | None] = {}
        self.budgets: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        now_ns = 0
        for event in stream:
            if event.ns > now_ns:
                self.blame(event.ns - now_ns)
                now_ns = event.ns
            self.take(event)

    def blame(self, lasted_ns: int) -> None:
        for task, group in self.waiting.items():
            if self.is_out_of_budget(task, group):
                cause = ("budget", "")
            elif self.online:
                cause = ("gpu", self.online[0])
            else:
                cause = ("holdoff", self.last) if self.last else ("free", "")
            self.causes.setdefault(task, Counter())[cause] += lasted_ns

    def is_out_of_budget(self, task: str, group: events.Submitted) -> bool:
        reserve = self.reserve_of.get(task)
        if reserve is None:
            return False
        if self.kinds[reserve] == "pe":
            return self.budgets[reserve] <= 0
        return self.budgets[reserve] < group.predicted_ns

    def take(self, event: Event) -> None:
        if isinstance(event, events.ReserveSet):
            self.kinds[event.reserve] = event.policy
            self.budgets[event.reserve] = event.budget_ns
        elif isinstance(event, events.Joined):
            self.reserve_of[event.task] = event.reserve
        elif isinstance(event, events.Replenished):
            self.budgets[event.reserve] = event.budget_ns
        elif isinstance(event, events.Submitted):
            self.waiting[event.task] = event
        elif isinstance(event, events.Dispatched):
            since = self.waiting.pop(event.task)
            self.waits.setdefault(event.task, []).append(event.ns - since.ns)
            self.online.append(event.task)
            self.last = event.task
        elif isinstance(event, events.Completed):
            self.online.remove(event.task)
            self.gpu_ns[event.task] += event.ns - event.started_ns
            if event.reserve is not None:
                self.budgets[event.reserve] = event.budget_ns


def compare(stats: Stats, stream: list[Event]) -> Iterator[str]:
    """Names of the tasks that were compared. All of the run must be in the window."""
    second = Second(stream)
    end_ns = stream[-1].ns
    assert end_ns < (SLOTS - 1) * SLOT_NS
    stats.update(end_ns)
    for task in stats.tasks:
        name = task.name
        mine = {cause: ns for cause, ns in stats.causes(task).items() if ns}
        assert mine == second.causes.get(name, Counter()), name
        share = stats.share(task, end_ns, slots=SLOTS)
        assert share == pytest.approx(min(1, second.gpu_ns[name] / end_ns) if end_ns else 0)
        waits, found = sorted(second.waits.get(name, [])), stats.waits(task)
        if found is not None:
            assert found.max_ns == waits[-1]
            middle = waits[-(-len(waits) // 2) - 1]
            assert middle <= found.p50_ns <= middle + middle // 16
        assert stats.tasks[task].wait_ns == sum(waits)
        yield name


@pytest.fixture
def _every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the wait, lay it over all changes."""
    monkeypatch.setattr(stats_module, "_STEPS", 1000)


@pytest.mark.usefixtures("_every_change")
@pytest.mark.parametrize("holdoff", ["0ms", "2ms"])
@given(data=scenarios())
@settings(max_examples=100, deadline=None)
def test_random_runs_agree_with_their_events(holdoff: str, data: dict[str, Any]) -> None:
    setting = {"policy": {name: {"holdoff": holdoff} for name in ("prt", "ht")}}
    stats, stream = Stats(), list[Event]()
    simulate(read_scenario({**setting, **data}, "test"), observers=[stats, Recorder(stream.append)])
    assert len(list(compare(stats, stream))) == len(data["task"])


@pytest.mark.usefixtures("_every_change")
@pytest.mark.parametrize("file", ["bombs", "fair"])
def test_the_examples_agree_with_their_events(file: str) -> None:
    path = ROOT / "examples" / f"{file}.toml"
    changes = [("run.duration", "3s")]
    scenario = parse_scenario(path.read_text(), str(path), overrides=changes)
    stats, stream = Stats(), list[Event]()
    simulate(scenario, observers=[stats, Recorder(stream.append)])
    assert len(list(compare(stats, stream))) >= 2
