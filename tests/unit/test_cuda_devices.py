"""Simulated devices: who gets the hardware when, against schedules worked out by hand.

Times are microseconds. Launching, seeing and gaps cost nothing here unless a test says so.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.profile import shipped_profile
from headway.sim.cuda.clock import Clock
from headway.sim.cuda.commands import Context, Row, Transfer
from headway.sim.cuda.devices import Device
from headway.sim.cuda.kinds import DEVICES

US = 1000
IDEAL = replace(
    shipped_profile(), slice_ns=2000 * US, switch_ns=100 * US, multiprocessors=100, gap_ns=0
)


class Bench:
    """A device, and what was done on it when."""

    def __init__(self, kind: str, **changes: Any) -> None:
        self.clock = Clock()
        self.device: Device = DEVICES[kind](self.clock, replace(IDEAL, **changes))
        self.contexts: dict[str, Context] = {}
        self.ended_us: dict[str, float] = {}

    def context(self, name: str, **how: Any) -> Context:
        context = self.contexts[name] = Context(name, self.device, **how)
        self.device.add(context)
        return context

    def row(
        self,
        name: str,
        block_us: float,
        *,
        at_us: float = 0,
        kernels: int = 1,
        blocks: int = 100,
        per_sm: int = 1,
        stream: int = 0,
        gap_us: float = 0,
        interleave: int = 0,
        label: str = "",
    ) -> None:
        """Kernels of a context, from some time on; `ended_us` tells when the last is done."""
        context = self.contexts.get(name) or self.context(name)
        lane = context.lane(stream)
        block_ns = int(block_us * US)
        waves = ceil(blocks / (per_sm * self.device.profile.multiprocessors))
        row = Row(
            lane,
            kernels,
            block_ns,
            blocks,
            per_sm,
            gap_ns=int(gap_us * US),
            nominal_ns=block_ns * waves,
            interleave=interleave,
        )

        def put() -> None:
            lane.put(row)
            lane.when_idle(lambda: self.ended_us.update({label or name: self.clock.now_ns / US}))

        self.clock.at(int(at_us * US), put)

    def run(self, until_us: float = 1_000_000) -> dict[str, float]:
        self.clock.run(int(until_us * US))
        return self.ended_us


# -- one process at a time ---------------------------------------------------------------------


def test_two_processes_share_by_slices_with_a_switch_in_between() -> None:
    """Both have 3 ms of work at 0: a 0 to 2, b 2.1 to 4.1, a 4.2 to 5.2, b 5.3 to 6.3."""
    bench = Bench("time-sliced")
    bench.row("a", 100, kernels=30)
    bench.row("b", 100, kernels=30)
    assert bench.run() == {"a": 5200, "b": 6300}
    assert bench.device.switches == 3


def test_a_process_with_nothing_to_do_gives_the_device_away_at_once() -> None:
    bench = Bench("time-sliced")
    bench.row("a", 500)
    bench.row("b", 700, at_us=100)
    assert bench.run() == {"a": 500, "b": 1300}


def test_a_kernel_longer_than_a_slice_is_taken_off_at_once_for_somebody_who_comes() -> None:
    """Of its 10 ms a has done 3 when b comes, so its slice is over; then it goes on from there."""
    bench = Bench("time-sliced")
    bench.row("a", 10_000)
    bench.row("b", 500, at_us=3000)
    assert bench.run() == {"b": 3600, "a": 10_700}


def test_a_kernel_that_has_just_begun_keeps_the_device_for_its_slice() -> None:
    """The third kernel of 1.5 ms begins at 3 ms, after the first slice: there the second begins."""
    bench = Bench("time-sliced")
    bench.row("a", 1500, kernels=10)
    bench.row("b", 100, at_us=3200)
    assert bench.run(6000)["b"] == 5000 + 100 + 100


def test_a_process_that_waits_at_a_closed_gate_does_not_keep_the_device() -> None:
    from headway.sim.cuda.commands import Gate

    bench = Bench("time-sliced")
    context = bench.context("a")
    context.open = False
    context.lane(0).put(Gate(5 * US, passed=lambda: None))
    bench.row("a", 100)
    bench.row("b", 100, at_us=10)
    bench.clock.at(400 * US, lambda: context.set_open(True))
    assert bench.run() == {"b": 110, "a": 605}


# -- side by side -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [8, 16, 25, 50, 75, 99, 100])
def test_a_kernel_takes_as_many_waves_as_its_share_makes_of_its_blocks(share: int) -> None:
    """CudaMon, Figure 3: a staircase."""
    bench = Bench("side-by-side")
    bench.context("a", share=10 * share)
    bench.row("a", 100, blocks=1056, per_sm=4)
    assert bench.run() == {"a": 100 * ceil(1056 / (4 * share))}


def test_kernels_of_two_processes_alternate_where_each_fills_the_device() -> None:
    """As measured: an important job of 20 x 0.1 ms takes 3.9 ms beside kernels of 0.1 ms."""
    bench = Bench("side-by-side")
    bench.row("low", 100, kernels=100)
    bench.row("high", 100, kernels=20, at_us=50)
    assert bench.run()["high"] == 100 + 20 * 200 - 100


def test_shares_keep_two_processes_out_of_each_others_way() -> None:
    bench = Bench("side-by-side")
    bench.context("a", share=500)
    bench.context("b", share=500)
    bench.row("a", 100, blocks=100)
    bench.row("b", 100, blocks=100)
    assert bench.run() == {"a": 200, "b": 200}


def test_a_share_can_be_changed_while_its_process_runs() -> None:
    """Of eight kernels of 100 us the second runs when it gets half: those after it take 200."""
    bench = Bench("side-by-side")
    context = bench.context("a")
    bench.row("a", 100, kernels=8)
    bench.clock.at(150 * US, lambda: bench.device.set_share(context, 500))
    assert bench.run() == {"a": 200 + 6 * 200}


def test_what_a_kernel_leaves_free_is_for_those_behind_it() -> None:
    bench = Bench("side-by-side")
    bench.row("a", 100, blocks=60)
    bench.row("b", 100, blocks=60)  # 40 of it beside a, 20 after that
    assert bench.run() == {"a": 100, "b": 200}


def test_blocks_of_a_client_with_priority_go_first() -> None:
    """Two of the five waves of low are on the device before high comes."""
    bench = Bench("side-by-side")
    bench.context("low", priority=1)
    bench.row("low", 100, blocks=500)
    bench.row("high", 100, at_us=150)
    assert bench.run() == {"high": 300, "low": 600}


def test_streams_of_one_process_run_side_by_side_too() -> None:
    bench = Bench("time-sliced")
    bench.row("a", 100, blocks=50, label="first")
    bench.row("a", 100, blocks=50, stream=1, label="second")
    assert bench.run() == {"first": 100, "second": 100}


def test_one_group_at_a_time_runs_kernels_whole_and_in_the_order_they_came() -> None:
    bench = Bench("one-group")
    bench.row("a", 300, blocks=10)
    bench.row("b", 200, blocks=10, at_us=100)
    bench.row("c", 100, blocks=10, at_us=50)
    assert bench.run() == {"a": 300, "c": 400, "b": 600}


# -- several blocks on a multiprocessor ----------------------------------------------------------


@pytest.mark.parametrize(("blocks", "took_us"), [(1, 100), (100, 100), (101, 110), (300, 120)])
def test_each_further_block_on_a_multiprocessor_slows_those_that_are_there(
    blocks: int, took_us: float
) -> None:
    bench = Bench("interleaved")
    bench.row("a", 100, blocks=blocks, per_sm=16, interleave=100)
    assert bench.run() == {"a": took_us}


def test_two_kernels_slow_each_other_down_for_as_long_as_both_are_there() -> None:
    """Each fills the device. a is over at 105.5 us, when b has done 55 of its 100."""
    bench = Bench("interleaved")
    bench.row("a", 100, per_sm=16, interleave=100)
    bench.row("b", 100, per_sm=16, interleave=100, at_us=45)
    done = bench.run()
    assert done["a"] == pytest.approx(45 + 55 * 1.1, abs=0.01)
    assert done["b"] == pytest.approx(45 + 60.5 + 45, abs=0.01)


def test_blocks_go_to_the_emptiest_multiprocessors_and_stay_off_others_with_a_share() -> None:
    """60 blocks are alone on 60 of 100: with 40 there is room for the other beside them."""
    for share, high_us, low_us in ((1000, 110, 110), (400, 100, 110), (200, 100, 120)):
        bench = Bench("interleaved")
        bench.context("low", share=share)
        bench.row("high", 100, blocks=60, per_sm=16, interleave=100)
        bench.row("low", 100, blocks=60, per_sm=16, interleave=100)
        assert bench.run() == {"high": high_us, "low": low_us}


def test_a_multiprocessor_holds_so_many_blocks_and_the_others_wait() -> None:
    bench = Bench("interleaved")
    bench.row("a", 100, blocks=500, per_sm=2)
    assert bench.run() == {"a": 300}


# -- copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DEVICES)
def test_a_copy_takes_no_time_from_kernels(kind: str) -> None:
    bench = Bench(kind)
    bench.row("a", 1000)
    lane = bench.context("b").lane(0)
    bench.clock.at(0, lambda: lane.put(Transfer(lane, True, 800 * US)))
    bench.run()
    assert bench.ended_us["a"] == 1000
    assert bench.contexts["b"].copied_ns == 800 * US
    assert bench.contexts["b"].gpu_ns == 0


def test_copies_in_one_direction_wait_for_each_other_and_those_in_the_other_do_not() -> None:
    bench = Bench("side-by-side")
    ended: dict[str, float] = {}
    for name, to_device in (("first", True), ("second", True), ("back", False)):
        lane = bench.context(name).lane(0)
        lane.put(Transfer(lane, to_device, 500 * US))
        lane.when_idle(lambda name=name: ended.update({name: bench.clock.now_ns / US}))  # type: ignore[misc]
    bench.run()
    assert ended == {"first": 500, "second": 1000, "back": 500}


# -- whatever is asked of them -------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 3000),  # us of a block
        st.integers(1, 12),  # kernels
        st.integers(1, 250),  # blocks
        st.integers(0, 8000),  # when
        st.integers(0, 2),  # stream
        st.integers(0, 5),  # gap
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(DEVICES)), ROWS)
def test_no_work_is_lost_none_is_done_twice_and_none_takes_less_time_than_it_needs(
    kind: str, rows: list[tuple[str, int, int, int, int, int, int]]
) -> None:
    bench = Bench(kind)
    for name, block_us, kernels, blocks, at_us, stream, gap_us in rows:
        bench.row(
            name,
            block_us,
            kernels=kernels,
            blocks=blocks,
            at_us=at_us,
            stream=stream,
            gap_us=gap_us,
        )
    bench.run()
    assert all(context.is_idle for context in bench.contexts.values())
    wanted = dict.fromkeys(bench.contexts, 0)
    lanes: dict[tuple[str, int], int] = {}
    for name, block_us, kernels, blocks, at_us, stream, gap_us in rows:
        cost_us = kernels * block_us * ceil(blocks / 100)
        wanted[name] += cost_us
        took_us = cost_us + (kernels - 1) * gap_us
        lanes[name, stream] = max(lanes.get((name, stream), 0), at_us) + took_us
    assert {n: c.gpu_ns // US for n, c in bench.contexts.items()} == wanted
    for (name, _), soonest_us in lanes.items():
        assert bench.clock.now_ns / US >= soonest_us or bench.ended_us[name] >= soonest_us
    if kind == "one-group":  # the device is never idle while somebody has work
        alone_us = sum(wanted.values())
        assert max(bench.ended_us.values()) >= alone_us
