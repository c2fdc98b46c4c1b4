"""libETP's models and the learned one: what they predict of groups whose costs are known."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.engine.cost_models import Conditions
from headway.engine.cost_models.adaptive import Adaptive
from headway.engine.cost_models.libetp import LibEtp
from headway.engine.events import Completed, Described, Dispatched, Event, Submitted
from headway.engine.rendering import Calibration, Program, Row, features_of
from headway.engine.rendering.calibration import from_json, to_json
from headway.engine.rendering.published import SCALE, Published, place_of, publish
from headway.live.devices import calibrations
from headway.trace.predictions import RECORDED, groups_of, judge

HERE = Conditions()
PROGRAM, OTHER = 0xDEF02C13D4F4270A, 0xABCDEF12345678FF
CALIBRATION = Calibration(
    "a GPU",
    10_000.0,
    {"color": 0.071, "color+depth": 0.1},
    Program(1.0, 2.0),
    {"5ef02c13d4f427": Program(3.0, 4.0)},
)


@dataclass(frozen=True)
class Work:
    features: Mapping[str, int]
    signature: str = ""
    exact_ns: int = 0


def group(*rows: tuple[int, int, int, int, int]) -> Work:
    return Work(features_of(Row(*row) for row in rows))


# -- libETP (section IV) ---------------------------------------------------------------------------


def test_a_groups_cost_is_the_sum_of_its_commands() -> None:
    model = LibEtp(CALIBRATION)
    work = group((1, 0, 2, 0, 100_000), (3, 0, 1, 0, 50_000), (PROGRAM, 7, 1, 300, 1000))
    clears, draw = 0.071 * 100_000 + 0.1 * 50_000, 3.0 * 300 + 4.0 * 1000 * 0.5
    assert model.predict(work, HERE).expected_ns == round(10_000 + clears + draw)


def test_a_program_that_was_not_calibrated_counts_as_a_simple_one() -> None:
    model = LibEtp(CALIBRATION)
    assert model.predict(group((OTHER, 1, 1, 10, 100)), HERE).expected_ns == 10_000 + 10 + 100


def test_without_a_buffer_a_clear_costs_nothing_and_without_features_nothing_is_known() -> None:
    model = LibEtp(CALIBRATION)
    assert model.predict(group((0, 0, 1, 0, 1_000_000)), HERE).expected_ns == 10_000
    assert not model.predict(Work({}), HERE).known


# -- the learned model (section VII) ---------------------------------------------------------------


def mesh_cost(number: int) -> float:
    """What a fragment of the box's area costs: another coverage for each mesh."""
    return (0.2, 0.9, 0.5)[number]


def scenes(seed: int, count: int, noise: float = 0.02) -> list[tuple[Work, int]]:
    """Frames of a turning scene: the projected areas change all the time."""
    generator, found = random.Random(seed), []
    for _ in range(count):
        areas = [generator.randrange(1000, 90_000) for _ in range(3)]
        rows = [(PROGRAM, mesh, 1, 500, area) for mesh, area in enumerate(areas)]
        cost = 20_000 + 90_000 * 0.1 + sum(mesh_cost(m) * a for m, a in enumerate(areas))
        work = group((3, 0, 1, 0, 90_000), *rows)
        found.append((work, round(cost * generator.gauss(1, noise))))
    return found


def learn(model: Adaptive, groups: list[tuple[Work, int]]) -> list[float]:
    """Relative errors, each before the group was seen."""
    errors = []
    for work, took_ns in groups:
        errors.append(model.predict(work, HERE).expected_ns / took_ns - 1)
        model.observe(work, HERE, took_ns)
    return errors


def test_each_meshs_coverage_is_learned_though_only_sums_are_seen() -> None:
    errors = learn(Adaptive(), scenes(1, 600))[300:]
    assert sum(map(abs, errors)) / len(errors) < 0.05, "2 % of it is noise"


def test_a_calibrated_model_begins_nearer_than_one_that_knows_nothing() -> None:
    start = CALIBRATION.start()
    first = [abs(learn(Adaptive(start=start), scenes(s, 3))[0]) for s in range(20)]
    assert max(first) < 9, "fragments cost a fifth of what they count as"
    assert learn(Adaptive(), scenes(1, 1))[0] == -1.0, "nothing is known before the first"


def test_the_bound_is_the_wanted_quantile() -> None:
    model, over, judged = Adaptive(), 0, 0
    for number, (work, took_ns) in enumerate(scenes(5, 4000, noise=0.1)):
        predicted = model.predict(work, HERE)
        if number >= 500:
            judged += 1
            over += took_ns > predicted.bound_ns
        model.observe(work, HERE, took_ns)
    assert 0.005 < over / judged < 0.04, "2 % was wanted"


def test_what_features_do_not_explain_is_predicted_by_what_was_seen_lately() -> None:
    """A shader that costs what a texture says, not what its area is."""
    generator = random.Random(2)
    groups = []
    for number in range(800):
        area = generator.choice((10, 100, 1000, 50_000))
        groups.append((group((PROGRAM, 1, 1, 3, area)), 400_000 + 1000 * (number // 100)))
    errors = learn(Adaptive(), groups)[400:]
    assert sum(map(abs, errors)) / len(errors) < 0.03


def test_a_device_that_becomes_slower_is_followed() -> None:
    model = Adaptive()
    learn(model, scenes(1, 400))
    slow = [(work, 2 * took_ns) for work, took_ns in scenes(2, 400)]
    errors = learn(model, slow)[200:]
    assert sum(map(abs, errors)) / len(errors) < 0.1


def test_a_single_delay_teaches_little() -> None:
    model = Adaptive()
    learn(model, scenes(1, 400))
    work, took_ns = scenes(9, 1)[0]
    model.observe(work, HERE, 50 * took_ns)
    assert model.predict(work, HERE).expected_ns < 1.5 * took_ns


def changing(seed: int, scenes: int) -> list[tuple[Work, int]]:
    """Scenes of 10 to 40 frames: some models of one of three meshes, by one of two programs."""
    generator, found = random.Random(seed), []
    for _ in range(scenes):
        models, mesh = generator.randrange(1, 13), generator.randrange(3)
        program = generator.choice((PROGRAM, OTHER))
        each = 60.0 if program == PROGRAM else 150.0
        for _ in range(generator.randrange(10, 40)):
            vertices, area = models * 15_000, models * generator.randrange(4000, 12_000)
            cost = 10_000 + 480_000 * 0.1 + each * vertices + mesh_cost(mesh) * area
            rows = ((3, 0, 1, 0, 480_000), (program, mesh, models, vertices, area))
            found.append((group(*rows), round(cost * generator.gauss(1, 0.02))))
    return found


def test_a_programs_first_scenes_are_not_taken_for_the_price_of_its_clears() -> None:
    """What draws cost is unknown at first; each frame has a clear, whose cost was calibrated."""
    errors = [
        abs(e)
        for seed in range(8)
        for e in learn(Adaptive(start=CALIBRATION.start()), changing(seed, 12))
    ]
    assert sum(errors) / len(errors) < 0.15
    assert sorted(errors)[len(errors) * 9 // 10] < 0.15


def test_bounds_hold_while_scenes_change() -> None:
    over = groups = 0
    for seed in range(8):
        model = Adaptive(start=CALIBRATION.start())
        for number, (work, took_ns) in enumerate(changing(seed, 40)):
            predicted = model.predict(work, HERE)
            model.observe(work, HERE, took_ns)
            if number > 300:
                groups += 1
                over += took_ns > 1.05 * predicted.bound_ns
    assert over / groups < 0.02


def test_clears_of_a_part_have_a_coefficient_of_their_own() -> None:
    """Some devices draw these, which takes ten times as long for each pixel."""
    whole, part = group((1, 0, 1, 0, 500_000)), group((9, 0, 1, 0, 100_000))
    model = Adaptive(start=CALIBRATION.start())
    first = model.predict(part, HERE).expected_ns
    assert first == pytest.approx(10_000 + 0.071 * 100_000, rel=0.01), "as other clears, at first"
    assert LibEtp(CALIBRATION).predict(part, HERE).expected_ns == first
    learn(model, [(whole, 45_500), (part, 81_000)] * 60)
    assert model.predict(whole, HERE).expected_ns == pytest.approx(45_500, rel=0.05)
    assert model.predict(part, HERE).expected_ns == pytest.approx(81_000, rel=0.05)


def test_strange_amounts_and_costs_do_no_harm() -> None:
    model = Adaptive()
    for amount in (0, 1, 1 << 63, (1 << 64) - 1):
        work = Work({"draw.a.0.0.fragments": amount, "no name": 3, "": 1})
        for took_ns in (0, -5, 1, 1 << 60):
            model.observe(work, HERE, took_ns)
            predicted = model.predict(work, HERE)
            assert 0 <= predicted.expected_ns <= predicted.bound_ns


# -- what the interposer is told -------------------------------------------------------------------


def test_published_costs_stand_where_the_interposer_looks() -> None:
    generator = random.Random(4)
    rows = [Row(generator.getrandbits(64) | 1 << 63, n, 1, 2, 3) for n in range(40)]
    places: list[Published | None] = [None] * 64
    constant, table = publish(LibEtp(CALIBRATION), rows[:1], places)
    assert constant == 10_000 * SCALE
    for _ in range(3):
        for row in rows:
            publish(LibEtp(CALIBRATION), [row], places)
            first = place_of(row.kind, row.mesh, 64)
            found = [table[(first + i) % 64] for i in range(4)]
            entry = next(each for each in found if each and each.mesh == row.mesh)
            assert (entry.each, entry.vertex, entry.fragment) == (0, SCALE, SCALE)


# -- calibrations ----------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "headway" / "gl-calibration.json"


def test_devices_are_kept_apart_and_programs_stay_known(state: Path) -> None:
    assert calibrations.load() == {}
    calibrations.store(CALIBRATION)
    calibrations.store(Calibration("llvmpipe", 5.0, {}, Program(1, 1), {}))
    calibrations.store(Calibration("a GPU", 7.0, {}, Program(1, 1), {"x": Program(8, 9)}))
    known = calibrations.load()
    assert known["a GPU"].flush_ns == 7.0
    assert set(known["a GPU"].programs) == {"5ef02c13d4f427", "x"}
    assert known["llvmpipe"].flush_ns == 5.0
    by_kind = [calibrations.calibrated(software=kind)[0] for kind in (True, False)]
    work = group((0, 0, 1, 0, 1))
    assert [model.predict(work, HERE).expected_ns for model in by_kind] == [5, 7]


@pytest.mark.parametrize("text", ["", "[]", '{"devices": {"x": {"flush_ns": -1}}}', "\0" * 9])
def test_a_broken_file_is_told_and_counts_as_none(state: Path, text: str) -> None:
    state.parent.mkdir()
    state.write_text(text)
    with pytest.raises(calibrations.CalibrationError, match="run headway calibrate gl"):
        calibrations.load()
    assert len(calibrations.calibrated()) == 2
    calibrations.store(CALIBRATION)
    assert calibrations.load() == {"a GPU": CALIBRATION}


def test_a_calibration_survives_its_file() -> None:
    assert from_json(json.loads(json.dumps(to_json(CALIBRATION)))) == CALIBRATION


# -- judged on a recording -------------------------------------------------------------------------


def recording(count: int = 300) -> list[Event]:
    events: list[Event] = []
    now_ns = 0
    for index, (work, took_ns) in enumerate(scenes(8, count)):
        events.append(Submitted(now_ns, "t", index, 2 * took_ns, None))
        events.append(Described(now_ns, "t", index, "same", tuple(work.features.items())))
        events.append(Dispatched(now_ns, "t", index, 0))
        done_ns = now_ns + took_ns
        events.append(
            Completed(done_ns, "t", index, 0, now_ns, now_ns, None, 0, frame=True, deadline_ns=None)
        )
        now_ns = done_ns
    return events


def test_models_are_judged_by_what_was_known_before_each_group() -> None:
    groups = groups_of(recording())
    assert len(groups["t"]) == 300
    models = {"adaptive": Adaptive(), "libetp": LibEtp(CALIBRATION)}
    verdicts = {verdict.model: verdict for verdict in judge(groups, models)}
    assert set(verdicts) == {RECORDED, "adaptive", "libetp"}
    assert verdicts[RECORDED].mean == pytest.approx(1.0)
    assert verdicts[RECORDED].groups == 240
    assert verdicts["adaptive"].mean < 0.06 < verdicts["libetp"].mean
    assert verdicts["adaptive"].over < 0.03


def test_groups_without_features_are_judged_by_the_recorded_prediction_alone() -> None:
    events = [event for event in recording(60) if not isinstance(event, Described)]
    verdicts = judge(groups_of(events), {"adaptive": Adaptive()})
    assert [verdict.model for verdict in verdicts] == [RECORDED]
