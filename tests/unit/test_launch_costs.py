"""Costs of launches: kernels in known and new shapes, copies, shares, and what clients make up."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.cost_models import Conditions
from headway.engine.cost_models.launches import Launches
from headway.engine.events import Event, Measured, Recorder
from headway.engine.launching import Launch, shape_of
from headway.live.wire.layout import CLIENT_PAGE, LAUNCHED, LAUNCHES
from headway.live.wire.pages import Pages
from headway.trace.predictions import groups_of, judge
from headway.trace.records import NUMBERS, decoder, header, pack, values_of

KERNEL = 0x2F0C


@dataclass(frozen=True)
class Work:
    features: Mapping[str, int]
    signature: str = ""
    exact_ns: int = 0


def launch(items: int, *, buffers: int = 0, block: int = 64, shared: int = 0) -> Work:
    return Work(Launch(KERNEL, items, buffers, 0, block, shared, 1, 0).features)


def copy(way: str, size: int) -> Work:
    return Work(Launch(ord(way), size, 0, 0, 0, 0, 1, 0).features)


def under(share: int) -> Conditions:
    return Conditions(share_permille=share)


def teach(
    model: Launches,
    works: list[Work],
    cost_ns: Callable[[Work], float],
    *,
    share: int = 1000,
    noise: float = 0.02,
    times: int = 20,
) -> None:
    generator = random.Random(7)
    for _ in range(times):
        for work in works:
            took_ns = cost_ns(work) * exp(generator.gauss(0, noise))
            model.observe(work, under(share), round(took_ns))


def error(model: Launches, work: Work, cost_ns: float, share: int = 1000) -> float:
    return abs(model.predict(work, under(share)).expected_ns / cost_ns - 1)


def items_of(work: Work) -> int:
    return next(v for k, v in work.features.items() if k.endswith(".items"))


LAWS: dict[str, Callable[[Work], float]] = {
    "the same for each thread": lambda w: 8_000 + 3.0 * items_of(w),
    "a matrix product": lambda w: 5_000 + 0.02 * items_of(w) ** 1.5,
    "all pairs": lambda w: 4_000 + 1e-4 * items_of(w) ** 2,
    "nothing but the launch": lambda w: 6_000.0,
}


@pytest.mark.parametrize("law", LAWS)
def test_known_shapes_within_3_percent_and_new_ones_within_15(law: str) -> None:
    model, cost_ns = Launches(), LAWS[law]
    known = [launch(n) for n in (1024, 4096, 16384, 65536)]
    teach(model, known, cost_ns)
    assert all(error(model, work, cost_ns(work)) < 0.03 for work in known)
    new = [launch(n) for n in (1500, 2048, 9000, 40_000, 120_000)]
    assert all(error(model, work, cost_ns(work)) < 0.15 for work in new)
    assert not model.predict(new[0], under(1000)).known


def test_a_kernel_whose_threads_walk_over_a_buffer_goes_by_its_size() -> None:
    model = Launches()
    works = [launch(1024, buffers=size << 20) for size in (1, 2, 4, 8)]
    teach(model, works, lambda w: 5_000 + 0.1 * w.features["launch.2f0c.buffers"])
    size = 6 << 20
    assert error(model, launch(1024, buffers=size), 5_000 + 0.1 * size) < 0.05


def test_copies_go_by_their_bytes_each_way_by_itself() -> None:
    model = Launches()
    for way, each in (("h", 0.1), ("d", 0.25)):
        works = [copy(way, 1 << bits) for bits in (14, 18, 22)]
        teach(model, works, lambda w, each=each: 9_000 + each * next(iter(w.features.values())))  # type: ignore[misc]
    for way, each in (("h", 0.1), ("d", 0.25)):
        assert error(model, copy(way, 3 << 18), 9_000 + each * (3 << 18)) < 0.05


@pytest.mark.parametrize("loss", [1.0, 0.5, 0.0])
def test_what_a_share_does_is_learned_for_each_kernel(loss: float) -> None:
    model = Launches()
    works = [launch(1 << 16), launch(1 << 18)]

    def under_share(share: int) -> Callable[[Work], float]:
        return lambda w: 2.0 * items_of(w) * (1000 / share) ** loss

    for share in (1000, 500, 250):
        teach(model, works, under_share(share), share=share)
    new = launch(1 << 17)
    assert error(model, new, under_share(125)(new), share=125) < 0.15


def test_before_anything_is_known_of_it_a_cost_is_taken_to_be_inverse_to_the_share() -> None:
    model = Launches()
    teach(model, [launch(1 << 16)], LAWS["the same for each thread"])
    whole = model.predict(launch(1 << 16), under(1000)).expected_ns
    assert model.predict(launch(1 << 16), under(500)).expected_ns == pytest.approx(2 * whole, 0.02)


def test_the_first_launch_which_compiles_and_loads_teaches_little() -> None:
    model, work = Launches(), launch(4096)
    model.observe(work, under(1000), 80_000_000)
    for _ in range(5):
        model.observe(work, under(1000), 20_000)
    assert error(model, work, 20_000) < 0.03


def test_bounds_hold_for_98_of_100_also_of_new_shapes() -> None:
    model, generator = Launches(), random.Random(3)
    over = groups = 0
    for number in range(2000):
        items = 1000 + 37 * generator.randrange(40)
        took_ns = round((5_000 + 3 * items) * exp(generator.gauss(0, 0.05)))
        predicted = model.predict(launch(items), under(1000))
        model.observe(launch(items), under(1000), took_ns)
        if number >= 200 and predicted.expected_ns:
            groups += 1
            over += took_ns > predicted.bound_ns
    assert groups > 1700
    assert over / groups < 0.04


def test_work_that_is_no_launch_is_predicted_by_what_it_cost_lately() -> None:
    model = Launches()
    model.observe(Work({}, "turn"), under(1000), 5_000)
    assert model.predict(Work({}, "turn"), under(1000)).expected_ns == 5_000
    assert shape_of({"draw.1.2.3.vertices": 4}) is None


@pytest.mark.parametrize(
    "made_up",
    [
        Launch(0, 0, 0, 0, 0, 0, 0, 0),
        Launch(*[2**64 - 1] * 4, *[2**32 - 1] * 4),
        Launch(KERNEL, 0, 0, 1, 1, 0, 2**32 - 1, 0),
        Launch(KERNEL, 1, 0, 1 << 49, 64, 0, 1, 1),
    ],
)  # fmt: skip
def test_whatever_a_client_writes_does_no_harm(made_up: Launch) -> None:
    said: list[Event] = []
    engine = Engine(observers=[Recorder(said.append)])
    task, _ = engine.add_task("t", 0, predict="launches")
    for _ in range(40):
        engine.measured(task, made_up, 1)
        engine.measured(task, Launch(KERNEL, 4096, 0, 20_000, 64, 0, 1, 0), 2)
    last = [event for event in said if isinstance(event, Measured)][-1]
    assert last.predicted_ns == pytest.approx(20_000, rel=0.02)
    assert last.bound_ns >= last.predicted_ns


WORD, HALF = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(WORD, WORD, WORD, WORD, HALF, HALF, HALF, HALF), max_size=40))
def test_no_launches_are_too_strange(found: list[tuple[int, ...]]) -> None:
    engine = Engine()
    task, _ = engine.add_task("t", 0, predict="launches")
    for number, values in enumerate([*found, *found]):
        engine.measured(task, Launch(*values), number)
        work, conditions = Work(Launch(*values).features), Conditions()
        predicted = task.cost_model.predict(work, conditions)
        assert isinstance(task.cost_model, Launches), "a model that fails is replaced"
        assert 0 <= predicted.expected_ns <= predicted.bound_ns


def test_many_kernels_and_shapes_are_forgotten_not_kept() -> None:
    model, generator = Launches(), random.Random(5)
    for _ in range(3000):
        features = Launch(generator.getrandbits(64) | 256, 64, 0, 0, 64, 0, 1, 0).features
        model.observe(Work(features), under(1000), 1000)
        model.observe(launch(generator.getrandbits(40) + 1), under(1000), 1000)
    assert len(model._kernels) <= 128
    assert all(len(kernel.shapes) <= 48 for kernel in model._kernels.values())


# -- from the page to a trace ----------------------------------------------------------------------


def test_the_last_records_are_read_from_the_page() -> None:
    pages = Pages()
    try:
        for number in range(LAUNCHES + 3):
            at = pages._client + CLIENT_PAGE.at("launched", number % LAUNCHES)
            for place, name in enumerate(Launch._fields):
                LAUNCHED.word(at, name).value = 100 * number + place
        CLIENT_PAGE.word(pages._client, "launches").value = LAUNCHES + 3
        assert pages.launches == LAUNCHES + 3
        number = LAUNCHES + 2
        assert pages.launched(number) == tuple(100 * number + place for place in range(8))
        assert ctypes.sizeof(ctypes.c_uint64) * 4 + 16 == LAUNCHED.size
    finally:
        pages.close()


def test_measured_launches_are_recorded_and_judged_with_their_shares() -> None:
    said: list[Event] = []
    engine = Engine(observers=[Recorder(said.append)])
    task, _ = engine.add_task("t", 0, predict="launches")
    for number in range(60):
        share = (0, 500)[number % 2]
        took_ns = 30_000 * (1 + number % 2)
        engine.measured(task, Launch(KERNEL, 4096, 0, 3 * took_ns, 64, 0, 3, share), number)
    records = decoder(header())
    read = [records.decode(pack(NUMBERS[type(event)], values_of(event))) for event in said]
    verdicts = {v.model: v for v in judge(groups_of(read), {"launches": Launches()})}
    assert verdicts["launches"].task == "t, launches"
    assert verdicts["launches"].mean < 0.01
