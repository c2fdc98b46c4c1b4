"""The desktop measurements' arithmetic and files, without a display."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import desktop, desktop_openarena, desktop_prediction
from headway.engine.events import Completed, Dispatched, Event, Submitted
from headway.view.plots import new_figure
from tests.integration import video

pytestmark = pytest.mark.tables


def group(index: int, predicted_ns: int, took_ns: int, *, leased: bool = False) -> list[Event]:
    at_ns = 10_000 * index
    end_ns = at_ns + took_ns
    return [
        Submitted(at_ns, "t", index, predicted_ns, None),
        Dispatched(at_ns, "t", index, 0, leased),
        Completed(end_ns, "t", index, 0, at_ns, at_ns, None, 0, False, None),
    ]


def test_an_error_is_relative_to_what_was_measured_and_positive_if_pessimistic() -> None:
    events = [*group(0, 150, 100), *group(1, 80, 160)]
    assert desktop_prediction.errors(events) == [0.5, -0.5]


def test_a_lease_is_no_group_that_was_predicted() -> None:
    assert desktop_prediction.errors([*group(0, 150, 100, leased=True), *group(1, 90, 100)]) == [
        -0.1
    ]


def test_the_first_half_is_for_learning() -> None:
    learning, learned = [9.0] * 30, [0.2, -0.1] * 15
    kept = desktop_prediction.snapshot(learning + learned)
    assert kept == sorted(learned)
    assert desktop_prediction.within(kept, 0.15) == 0.5


def test_a_trace_with_hardly_a_group_is_no_result() -> None:
    with pytest.raises(SystemExit, match="run for longer"):
        desktop_prediction.snapshot([0.0] * 19)


def test_the_games_table_compares_each_way_with_its_own_alone() -> None:
    rates = {
        ("nobody", "unmanaged"): 40.0,
        ("stopped widget", "HT"): 80.0,
        ("widget", "unmanaged"): 20.0,
        ("widget", "HT"): 60.0,
    }
    rows = {(row[0], row[1]): row[2:5] for row in desktop_openarena.table(rates).rows}
    assert rows["widget", "unmanaged"] == ["20.0", "0.50", "1.0"]
    # Not 3.0: twice as fast alone already, by splitting, is none of the manager's merit.
    assert rows["widget", "HT"] == ["60.0", "0.75", "1.5"]


def test_bombs_together_are_capped_at_a_tenth_however_many_they_are() -> None:
    for number in (1, 5):
        capped = [case.reserve for case in desktop_openarena.cases(number) if case.title == "PE"]
        assert capped == [("--policy", "prt", "--reserve", f"{2.5 / number:g}ms/25ms:pe")]


def test_a_picture_has_its_data_and_its_command_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="pictures need headway[plot]")
    monkeypatch.setattr("sys.argv", ["benchmarks/desktop_x.py", "--seconds", "3"])
    desktop.save_picture(new_figure(2, 2), tmp_path / "x.png", {"values": [1, 2]})
    beside = json.loads((tmp_path / "x.json").read_text())
    assert beside == {"command": "python -m benchmarks.desktop_x --seconds 3", "values": [1, 2]}
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_video_is_a_whole_number_of_frames_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "v.y4m"
    video.write(path)
    with path.open("rb") as file:
        head = file.readline()
        assert head.startswith(b"YUV4MPEG2 ")
        assert b"F24:1" in head
        size = video.WIDTH * video.HEIGHT * 3 // 2
        frames = []
        while file.readline() == b"FRAME\n":
            frames.append(hash(file.read(size)))
    assert len(frames) == video.FRAMES
    assert path.stat().st_size == len(head) + video.FRAMES * (size + len(b"FRAME\n"))
    assert frames[0] != frames[1]
