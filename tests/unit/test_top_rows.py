"""What `headway top` makes of what the daemon says, without a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headway.view import nvml
from headway.view.top import text
from headway.view.top.columns import (
    BY_TITLE,
    COLUMNS,
    arrange,
    cells,
    column_at,
    neighbour,
    ordered,
    titles,
)
from headway.view.top.dialogs import KEYS
from headway.view.top.folding import fold
from headway.view.top.plain import as_json, table
from headway.view.top.rows import REMEMBERED, Past, Row, matching
from headway.view.top.summary import about, header
from headway.view.top.text import ASCII, UNICODE, Glyphs, Line
from tests.top_status import background, channel, reserved, status

NASTY = [
    "[bold red]markup[/]",
    "[@click=app.quit]click[/]",
    "\x1b[31mred\x1b[0m\r\nnew line\ttab",
    "日本語のプログラム名",
    "e\u0301" + "\u0300" * 40,
    "\u202eright to left",
    "🚀" * 30,
    "x" * 500,
    "",
]


def plain(line: Line) -> str:
    return "".join(part for part, _ in line)


def row(entry: dict[str, Any]) -> Row:
    return Past().read(status(entry)).rows[0]


def shown(title: str, entry: dict[str, Any], width: int = 0, glyphs: Glyphs = UNICODE) -> str:
    column = BY_TITLE[title]
    return plain(column.cell(row(entry), width or column.most, glyphs)).strip()


# -- reading -------------------------------------------------------------------------------------


def test_what_the_daemon_does_not_say_is_shown_as_unknown() -> None:
    old = {"task": "old.7", "pid": 7, "policy": "prt", "priority": "3", "state": "idle"}
    for title in ("BUDGET", "RESERVE", "Q", "FPS", "GPU%", "P50", "P99", "MISS", "GROUPS", "USER"):
        assert shown(title, old) == "-", title
    assert "GPU" in plain(header(Past().read({}), 80, UNICODE)[0])


@pytest.mark.parametrize(
    "wrong", [None, "5", [], {}, True, float("nan"), float("inf")], ids=lambda value: repr(value)
)
def test_a_field_of_another_kind_is_unknown_and_breaks_nothing(wrong: object) -> None:
    good = channel("a")
    for key in good:
        board = Past().read(status({**good, key: wrong}, gpu=wrong, uptime_s=wrong))
        assert len(plain(cells(board.rows[0], arrange(200), UNICODE))) >= 150
        assert board.gpu_busy is None
    assert Past().read({"channels": wrong}).rows == ()


def test_a_program_is_named_without_its_pid() -> None:
    assert row(channel("gears", 12)).program == "gears"
    assert row({**channel("gears", 12), "task": "gears.12.3"}).program == "gears.3"
    assert row({**channel("a.b", 12), "task": "a.b"}).program == "a.b"


# -- priorities ----------------------------------------------------------------------------------


def test_an_inherited_priority_is_shown_beside_the_own_one() -> None:
    entry = channel("xserver", priority="1", base=1, effective=9, inherited_from=["editor.5"])
    assert shown("PRIO", entry) == "1→9"
    assert shown("PRIO", entry, glyphs=ASCII) == "1>9"
    assert "inherits 9 from editor.5" in about(row(entry))
    assert shown("PRIO", channel("a", priority="1", base=1, effective=1)) == "1"


def test_a_better_place_at_the_same_level_is_inherited_too() -> None:
    entry = channel("xserver", priority="*", base=0, effective=0, inherited_from=["front.5"])
    assert shown("PRIO", entry) == "*→"
    assert "priority *, inherits from front.5" in about(row(entry))


def test_the_own_level_is_read_from_the_rule_where_it_is_not_said() -> None:
    assert not row(channel("a", priority="rm@5", effective=5)).inherits
    assert row(channel("a", priority="rm@5", effective=6)).inherits
    assert shown("PRIO", channel("a", priority="*", effective=0)) == "*"


def test_background_is_marked_and_can_inherit_too() -> None:
    entry = background("stranger")
    assert shown("PRIO", {**entry, "effective": -1_000_001}) == "bg"
    assert shown("PRIO", {**entry, "effective": 4}) == "bg→4"
    board = Past().read(status(entry, channel("a"), channel("b")))
    assert board.mix() == "2 prt, 1 bg"
    given_one = {**entry, "priority": "5", "effective": 5}
    assert shown("PRIO", given_one) == "5"
    assert "Background" in about(row(given_one))


def test_the_foreground_task_is_marked() -> None:
    assert shown("TASK", channel("editor", foreground=True)) == "> editor"
    board = Past().read(status(channel("a"), foreground="editor.5", display=":0"))
    assert "editor.5 on :0" in plain(header(board, 120, UNICODE)[1])
    window = {"window": 9, "pid": 5, "by": "_NET_WM_PID", "tasks": ["editor.5", "editor.5.2"]}
    board = Past().read(status(foreground=window, display=":0"))
    assert "editor.5, editor.5.2 on :0" in plain(header(board, 120, UNICODE)[1])
    board = Past().read(status(foreground={**window, "tasks": []}))
    assert "Foreground pid 5" in plain(header(board, 120, UNICODE)[1])


# -- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value_ns", "expected"),
    [
        (None, "-"), (0, "0"), (999, "999ns"), (1_500, "1.5us"), (12_345, "12us"),
        (9_960_000, "10ms"), (999_400, "999us"), (2_500_000, "2.5ms"), (123_000_000, "123ms"),
        (1_300_000_000, "1.3s"), (120_000_000_000, "120s"),
    ],
)  # fmt: skip
def test_durations_are_short(value_ns: int | None, expected: str) -> None:
    assert text.duration(value_ns) == expected


def test_rates_shares_counts_and_clocks_are_short() -> None:
    assert [text.rate(v) for v in (None, 0.0, 59.94, 144.2, 12_345.0)] == [
        "-", "0.0", "59.9", "144", "12k",
    ]  # fmt: skip
    assert [text.percent(v) for v in (None, 0.0, 0.423, 1.0)] == ["-", "0.0", "42.3", "100"]
    assert [text.count(v) for v in (None, 0, 9999, 10_000, 25_000_000)] == [
        "-", "0", "9999", "10k", "25M",
    ]  # fmt: skip
    assert text.clock(3723.9) == "01:02:03"
    assert text.clock(90_061) == "1d 01:01:01"


def test_the_budget_bar_is_as_long_as_the_budget_and_shows_both_numbers() -> None:
    full = shown("BUDGET", channel("a", **reserved(5_000_000, 5_000_000, 20_000_000)), 22)
    half = shown("BUDGET", channel("a", **reserved(2_500_000, 5_000_000, 20_000_000)), 22)
    debt = shown("BUDGET", channel("a", **reserved(-1_200_000, 5_000_000, 20_000_000)), 22)
    assert full == "[|||||||||||||5.0/5ms]"  # htop's way: the number covers the end of the bar
    assert half == "[||||||||||   2.5/5ms]"
    assert debt == "[            -1.2/5ms]"
    assert len(full) == len(half) == len(debt) == 22
    assert shown("RESERVE", channel("a", **reserved(1, 2_500_000, 25_000_000))) == "2.5ms/25ms"


def test_an_empty_budget_that_is_almost_zero_has_no_minus_sign() -> None:
    assert text.budget_label(-10, 5_000_000) == "0.0/5ms"


# -- the past ------------------------------------------------------------------------------------


def test_a_sparkline_has_full_height_at_the_largest_and_none_at_zero() -> None:
    assert text.sparkline([0, 30, 60], 5, UNICODE) == "  ▁▄▇"
    assert text.sparkline([0, 0], 2, UNICODE) == "▁▁"
    assert text.sparkline([1, 1000], 2, UNICODE) == "▂▇"  # a little is not nothing
    assert text.sparkline([1, 2, 3], 0, UNICODE) == ""
    assert text.sparkline([0, 60], 3, ASCII) == " _#"


def test_a_share_of_the_multiprocessors_shows_where_it_is_not_all() -> None:
    told = [channel("a", share_told=250), channel("b", share_told=1000), channel("c")]
    rows = Past().read(status(*told)).rows
    assert [row.multiprocessors for row in rows] == [0.25, None, None]


def test_the_trend_is_of_frames_and_of_the_share_where_there_are_none() -> None:
    past = Past()
    for fps, share in ((10.0, 0.9), (20.0, 0.1)):
        board = past.read(
            status(channel("gears", fps=fps, share=share), channel("bomb", fps=0.0, share=share))
        )
    gears, bomb = board.rows
    assert gears.past == (10.0, 20.0)
    assert bomb.past == (0.9, 0.1)


def test_the_past_is_bounded_and_forgets_the_dead() -> None:
    past = Past()
    for _ in range(REMEMBERED + 50):
        board = past.read(status(channel("a", fps=1.0)))
    assert len(board.rows[0].past) == REMEMBERED
    past.read(status())
    assert len(past.read(status(channel("a", fps=1.0))).rows[0].past) == 1


# -- order and choice ----------------------------------------------------------------------------


def names(rows: list[Row]) -> list[str]:
    return [row.program for row in rows]


def test_numbers_sort_from_the_largest_text_from_a_and_unknown_comes_last() -> None:
    rows = (
        Past()
        .read(
            status(
                channel("b", fps=10.0), channel("a", fps=30.0), channel("d"), channel("c", fps=10.0)
            )
        )
        .rows
    )
    assert names(ordered(rows, BY_TITLE["FPS"])) == ["a", "b", "c", "d"]
    assert names(ordered(rows, BY_TITLE["FPS"], inverted=True)) == ["b", "c", "a", "d"]
    assert names(ordered(rows, BY_TITLE["TASK"])) == ["a", "b", "c", "d"]
    assert names(ordered(rows, BY_TITLE["TASK"], inverted=True)) == ["d", "c", "b", "a"]


def test_every_column_can_sort_what_the_daemon_may_say() -> None:
    rows = (
        Past()
        .read(
            status(
                channel("a", fps=1.0, wait_p50_ns=5, misses=2, queued=1, share=0.5),
                channel("b", **reserved(1, 2, 3)),
                background("c"),
            )
        )
        .rows
    )
    for column in COLUMNS:
        assert sorted(names(ordered(rows, column))) == ["a", "b", "c"]


def test_a_filter_takes_any_case_pids_and_alternatives() -> None:
    rows = Past().read(status(channel("Gears", 1), channel("bomb", 2), channel("video", 3))).rows
    assert names(matching(rows, "gEAR")) == ["Gears"]
    assert names(matching(rows, "gears|VID")) == ["Gears", "video"]
    assert names(matching(rows, ".2")) == ["bomb"]
    assert names(matching(rows, "")) == ["Gears", "bomb", "video"]
    assert names(matching(rows, "|")) == ["Gears", "bomb", "video"]


# -- widths --------------------------------------------------------------------------------------


def test_at_80_columns_there_is_what_matters_and_at_200_everything() -> None:
    narrow = [column.title for column, _ in arrange(80)]
    for title in ("TASK", "POL", "PRIO", "BUDGET", "FPS", "GPU%", "P50", "P99", "MISS", "STATE"):
        assert title in narrow
    assert "TREND" in narrow
    assert [column for column, _ in arrange(200)] == list(COLUMNS)


def test_columns_to_the_right_come_into_view_when_others_are_skipped() -> None:
    assert "GROUPS" not in [column.title for column, _ in arrange(80)]
    skipped = [column.title for column, _ in arrange(80, 6)]
    assert skipped[0] == "TASK"
    assert "GROUPS" in skipped
    assert "PRIO" not in skipped


@given(
    name=st.one_of(st.sampled_from(NASTY), st.text(max_size=80)),
    width=st.integers(1, 250),
    skip=st.integers(0, len(COLUMNS)),
    glyphs=st.sampled_from([UNICODE, ASCII]),
)
def test_no_name_breaks_a_line(name: str, width: int, skip: int, glyphs: Glyphs) -> None:
    entry = channel(name, note=name, inherited_from=[name], **reserved(-5, 10**7, 10**9))
    board = Past().read(status(entry, foreground=name, display=name, spec_problem=name))
    layout = arrange(width, skip)
    size = sum(w for _, w in layout) + len(layout) - 1
    assert size <= width
    lines = [cells(board.rows[0], layout, glyphs), titles(layout, COLUMNS[0], glyphs)]
    for line in lines:
        assert cell_len(plain(line)) == size
    for line in header(board, width, glyphs):
        assert cell_len(plain(line)) == width
        lines.append(line)
    for line in lines:
        assert plain(line).isprintable()
        assert glyphs is UNICODE or plain(line).isascii()


def test_a_click_on_the_titles_finds_its_column() -> None:
    layout = arrange(80)
    line = plain(titles(layout, BY_TITLE["PRIO"], UNICODE))
    for title in ("TASK", "PRIO", "BUDGET", "STATE"):
        found = column_at(layout, line.index(title))
        assert found is not None
        assert found.title == title
    assert column_at(layout, 500) is None


def test_the_sorted_column_moves_among_those_one_sees() -> None:
    layout = arrange(80)
    shown_columns = [column for column, _ in layout]
    column = shown_columns[0]
    for expected in [*shown_columns[1:], shown_columns[0]]:
        column = neighbour(column, layout, 1)
        assert column is expected
    assert neighbour(shown_columns[0], layout, -1) is shown_columns[-1]
    assert neighbour(BY_TITLE["GROUPS"], layout, 1) is shown_columns[0]  # not among them


def test_the_page_about_it_has_every_column_in_the_same_words() -> None:
    page = (Path(__file__).parents[2] / "docs" / "top.md").read_text()
    for column in COLUMNS:
        assert f"| {column.title} | {column.help} |" in page
    for keys, meaning in KEYS:
        assert f"| {meaning} |" in page.replace("\\|", "|")
        for key in keys.split():
            assert f"`{key}`" in page


# -- beside the daemon ---------------------------------------------------------------------------

H200 = {
    "index": 0,
    "name": "NVIDIA H200",
    "utilisation": 0.93,
    "memory_used": 71 << 30,
    "memory_total": 139 << 30,
    "temperature_c": 54,
    "power_w": 612.4,
    "processes": [{"pid": 100, "name": "game", "memory": 1 << 30}, {"pid": 7, "name": "other"}],
}


def test_contexts_of_a_process_are_one_row() -> None:
    """Times and counts are sums, waits and priorities the largest, the state the most pressing."""
    entries = [
        channel("mpv", 7, share=0.25, fps=30.0, groups=5, state="idle", wait_p99_ns=5, misses=1),
        channel("mpv", 7, share=0.5, groups=7, state="waiting", wait_p99_ns=9, priority="3"),
        channel("mpv", 8, share=0.1),
        channel("other", 7, share=0.1),
    ]
    entries[1]["task"] = "mpv.7.12"
    rows = fold(Past().read(status(*entries)).rows)
    assert [(row.program, row.pid, row.contexts) for row in rows] == [
        ("mpv", 7, 2),
        ("mpv", 8, 1),
        ("other", 7, 1),
    ]
    both = rows[0]
    assert (both.gpu_share, both.fps, both.groups, both.misses) == (0.75, 30.0, 12, 1)
    assert (both.state, both.wait_p99_ns, both.effective) == ("waiting", 9, 3)
    assert shown_row(both).split()[:2] == ["mpv", "x2"]


def shown_row(row: Row) -> str:
    return plain(cells(row, arrange(80), UNICODE))


def test_programs_that_the_daemon_does_not_know_have_rows_of_their_own() -> None:
    started = [{"task": "train.py.9", "pid": 9, "why": ""}, {"task": "game.100", "pid": 100}]
    vulkan = [{"task": "vk.11", "pid": 11, "why": "passes"}]
    board = Past().read(status(channel("game"), started=started, unmanaged=vulkan, devices=[H200]))
    found = {row.program: (row.state, row.is_served) for row in board.rows}
    assert found == {
        "game": ("idle", True),
        "train.py": ("started", False),
        "vk": ("outside", False),
        "other": ("outside", False),
    }
    (other,) = [row for row in board.rows if row.program == "other"]
    assert about(other) == "other.7: unmanaged; was not started by headway run"


def test_each_gpu_whose_driver_tells_has_a_line() -> None:
    board = Past().read(status(devices=[H200, {"index": 1, "name": "old"}]))
    _, first, second, _ = [plain(line).rstrip() for line in header(board, 100, UNICODE)]
    assert first == "GPU 0 Used 93.0%  Memory 71.0 GiB of 139.0 GiB  54 C  612 W  NVIDIA H200"
    assert second == "GPU 1 old"


class FakeNvml:
    """NVIDIA's library as it behaves for two GPUs, of which one tells little."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU = 0

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVIDIA's name
        return 2

    def nvmlDeviceGetName(self, device: int) -> bytes | str:  # noqa: N802
        return b"first" if device == 0 else "second"

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:  # noqa: N802
        return 612_400

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=1, usedGpuMemory=5)] * 2

    def __getattr__(self, name: str) -> Any:
        def call(device: int, *more: object) -> Any:
            if name == "nvmlDeviceGetHandleByIndex":
                return device
            raise self.NVMLError(name)

        return call


def test_what_a_driver_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_library", FakeNvml)
    first, second = nvml.devices()
    assert (first["name"], second["name"]) == ("first", "second")
    assert (first["power_w"], first["temperature_c"], first["utilisation"]) == (612.4, None, None)
    assert [(p["pid"], p["memory"]) for p in first["processes"]] == [(1, 5)]
    monkeypatch.setattr(nvml, "_library", lambda: None)
    assert nvml.devices() == []


# -- without a screen ----------------------------------------------------------------------------


def test_the_table_fits_its_width_and_has_a_line_per_task_and_note() -> None:
    board = Past().read(
        status(channel("[bold]a", priority="1"), channel("b", priority="2", note="look at me"))
    )
    lines = table(board, 80, UNICODE).plain.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["b", "[bold]a", "b.100:"]
    assert lines[-1].endswith("look at me")
    assert all(cell_len(line) <= 80 for line in lines)


def test_the_json_has_units_in_its_names_and_null_for_what_is_unknown() -> None:
    nasty = 'quote" and \x1b[31m'
    board = Past().read(status(channel(nasty, wait_p99_ns=5, share=0.25)))
    line = as_json(board)
    assert "\n" not in line
    entry = json.loads(line)
    (task,) = entry["tasks"]
    assert entry["schema"] == 1
    assert entry["gpu_busy"] == 0.5
    assert task["task"] == f"{nasty}.100"  # as it is: this is for programs
    assert task["wait_p99_ns"] == 5
    assert task["fps"] is None
    assert task["gpu_share"] == 0.25
