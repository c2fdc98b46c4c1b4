"""The screen of `headway top` in a terminal that is made up, with a daemon that is made up."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest
from rich.cells import cell_len
from textual import events
from textual.pilot import Pilot

from headway.view.top.app import Heard, Top
from headway.view.top.columns import COLUMNS, Layout, cells
from headway.view.top.link import Answer, Gone, Status
from headway.view.top.rows import Past, Row
from headway.view.top.text import UNICODE, Glyphs, Line
from tests.top_status import FakeDaemon, background, channel, reserved, status

PATIENCE_S = 20.0
INTERVAL_S = 0.5
"""After each key the pilot waits for a moment in which nothing happens; so not too short."""


def desktop() -> FakeDaemon:
    return FakeDaemon(
        channel("editor", 11, priority="9", fps=60.0, state="leased"),
        channel("bomb", 12, priority="1", share=0.5, misses=7, state="budget",
                **reserved(-1_000_000, 2_500_000, 25_000_000)),
        channel("[bold]x[/]", 13, priority="rm", note="its note"),
        background("stranger", 14),
    )  # fmt: skip


def app_for(daemon: FakeDaemon, *, colour: bool = True) -> Top:
    board = Past().read(status())
    return Top(daemon, interval_s=INTERVAL_S, glyphs=UNICODE, colour=colour, board=board)


def lines(app: Top) -> list[str]:
    """What one sees."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def seen(app: Top) -> str:
    return "\n".join(lines(app))


def order(app: Top) -> list[str]:
    return [row.program for row in app.tasks.rows]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, seen(pilot.app)  # type: ignore[arg-type]
        await pilot.pause(0.01)


async def ready(pilot: Pilot[None], app: Top) -> None:
    await until(pilot, lambda: bool(app.tasks.rows))


@contextlib.asynccontextmanager
async def showing(
    daemon: FakeDaemon, *, size: tuple[int, int] = (80, 24), colour: bool = True
) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    """The screen, with the first tasks on it."""
    app = app_for(daemon, colour=colour)
    async with app.run_test(size=size) as pilot:
        await ready(pilot, app)
        yield app, pilot


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10), (20, 6), (3, 2)])
async def test_it_fits_terminals_of_any_size(size: tuple[int, int]) -> None:
    async with showing(desktop(), size=size) as (app, pilot):
        await pilot.pause()
        shown = lines(app)
        assert len(shown) == size[1]
        assert {cell_len(line) for line in shown} == {size[0]}
        if size[0] >= 80:
            assert shown[0].startswith("GPU [|||")
            assert "50.0%]" in shown[0]
            assert "3 prt, 1 bg" in shown[0]
            assert "Daemon 4242" in shown[1]
            assert "Up 01:02:03" in shown[1]
            assert [line.split()[0] for line in shown[3:7]] == [
                "editor", "bomb", "[bold]x[/]", "stranger",
            ]  # fmt: skip
            assert shown[-1].startswith("F1Help  F3Search")
            assert "F10Quit" in shown[-1]


async def test_a_terminal_that_changes_its_size_shows_more_columns_and_keeps_the_choice() -> None:
    async with showing(desktop()) as (app, pilot):
        await pilot.press("down")
        assert "GROUPS" not in lines(app)[2]
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: "GROUPS" in seen(app))
        assert {cell_len(line) for line in lines(app)} == {200}
        await pilot.resize_terminal(80, 6)
        await until(pilot, lambda: len(lines(app)) == 6)
        chosen = app.tasks.chosen
        assert chosen is not None
        assert chosen.program == "bomb"
        await until(pilot, lambda: "bomb" in lines(app)[3])  # scrolled to, in the one row there is


async def test_keys_move_the_cursor_and_the_line_below_tells_about_the_task() -> None:
    async with showing(desktop()) as (app, pilot):
        places = {"down": 1, "end": 3, "up": 2, "home": 0, "pagedown": 3, "pageup": 0}
        for key, place in places.items():
            await pilot.press(key)
            assert app.tasks.index == place
        await pilot.press("down", "down")
        await pilot.pause()
        assert "[bold]x[/].13: prt, priority rm; its note" in lines(app)[-2]
        assert lines(app)[-2].rstrip().endswith("3/4")


async def test_sorting_by_letter_by_neighbour_by_menu_and_inverted() -> None:
    async with showing(desktop()) as (app, pilot):
        for key, title in {"P": "GPU%", "M": "MISS", "T": "P99", "N": "PID"}.items():
            await pilot.press(key)
            assert app.sorted_by.title == title
        assert order(app) == ["stranger", "[bold]x[/]", "bomb", "editor"]
        await pilot.press("I")
        assert order(app) == ["editor", "bomb", "[bold]x[/]", "stranger"]
        await pilot.press("greater_than_sign")
        assert app.sorted_by.title == "TASK"  # pid is not shown, so it starts at the left
        await pilot.press("less_than_sign", "greater_than_sign", "greater_than_sign")
        assert app.sorted_by.title == "POL"
        await pilot.press("f6", "home", "enter")
        assert app.sorted_by.title == "TASK"
        assert order(app) == ["[bold]x[/]", "bomb", "editor", "stranger"]
        await pilot.press("f6", "end", "escape")
        assert app.sorted_by.title == "TASK"


async def test_left_and_right_show_the_columns_that_do_not_fit_and_stop_at_the_last() -> None:
    async with showing(desktop()) as (app, pilot):
        for _ in range(2 * len(COLUMNS)):
            await pilot.press("right")
        await until(pilot, lambda: "GROUPS" in lines(app)[2])
        assert lines(app)[2].startswith("TASK")
        for _ in range(2 * len(COLUMNS)):
            await pilot.press("left")
        await until(pilot, lambda: "PRIO" in lines(app)[2])


async def test_clicks_choose_rows_sort_columns_and_press_footer_keys() -> None:
    async with showing(desktop()) as (app, pilot):
        await pilot.click("#tasks", offset=(2, 2))
        assert app.tasks.index == 2
        await pilot.click("#tasks", offset=(2, 15))
        assert app.tasks.index == 2  # nobody lives there
        await pilot.click("#titles", offset=(0, 0))
        assert app.sorted_by.title == "TASK"
        await pilot.click("#titles", offset=(0, 0))
        assert app.inverted
        await pilot.click("#footer", offset=(1, 0))
        await until(pilot, lambda: "choose a task" in seen(app))


async def test_the_help_shows_every_key_and_column_and_closes() -> None:
    async with showing(desktop(), size=(100, 50)) as (app, pilot):
        for key in ("f1", "h", "question_mark"):
            await pilot.press(key)
            await until(pilot, lambda: "Headway ends no programs" in seen(app))
            for column in COLUMNS:
                assert f" {column.title} " in seen(app)
            await pilot.press("f8", "escape")
            assert "Headway ends no programs" not in seen(app)
        await pilot.press("f1", "q")
        assert app.is_running


async def test_search_goes_to_the_first_match_and_f3_to_the_next() -> None:
    async with showing(desktop()) as (app, pilot):
        await pilot.press("slash", *"O")
        assert order(app)[app.tasks.index] == "editor"
        await pilot.press("f3")
        assert order(app)[app.tasks.index] == "bomb"
        await pilot.press("f3")
        assert order(app)[app.tasks.index] == "[bold]x[/]"
        await pilot.press("f3")
        assert order(app)[app.tasks.index] == "editor"
        await pilot.press(*"zzz")
        await pilot.pause()
        assert "no name with 'Ozzz' in it" in lines(app)[-2]
        await pilot.press("enter")
        assert app.focused is app.tasks
        assert lines(app)[-1].startswith("F1Help")


async def test_a_filter_stays_until_it_is_cleared() -> None:
    async with showing(desktop()) as (app, pilot):
        await pilot.press("f4", *"edit|bo", "enter")
        assert order(app) == ["editor", "bomb", "[bold]x[/]"]
        await pilot.pause()
        assert "filter: edit|bo" in lines(app)[-2]
        await pilot.press("backslash", *"zz")
        assert order(app) == ["editor"]  # edit|bozz
        await pilot.press("escape")
        assert len(order(app)) == 4


async def test_letters_typed_into_a_question_are_not_keys() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        await pilot.press("f4", *"qhkPIr+-", "f8", "f1")
        assert app.is_running
        assert app.pattern == "qhkPIr+-"
        assert len(app.screen_stack) == 1
        assert daemon.requests == []


# -- changes -------------------------------------------------------------------------------------


async def test_f7_and_f8_and_their_signs_change_the_priority_by_one() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        await pilot.press("f8", "f8", "plus")  # faster than any answer: three steps all the same
        await until(pilot, lambda: daemon.one("editor")["priority"] == "12")
        await until(pilot, lambda: "changed: editor.11" in lines(app)[-2])
        await until(pilot, lambda: " 12 " in lines(app)[3])
        await pilot.press("f7", "minus")
        await until(pilot, lambda: daemon.one("editor")["priority"] == "10")
        assert [r["task"] for r in daemon.requests] == ["editor.11"] * 5


def burst(app: Top, *keys: tuple[str, str | None]) -> None:
    """Keys that come together, as over a slow line: nothing happens between them."""
    assert app._driver is not None
    for key, character in keys:
        app._driver.send_message(events.Key(key, character))


async def test_keys_that_come_together_work_in_their_order() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        burst(app, ("p", "p"), ("backspace", None), ("7", "7"), ("enter", None))
        await until(pilot, lambda: daemon.one("editor")["priority"] == "7")
        await until(pilot, lambda: app.focused is app.tasks)
        burst(app, ("down", None), ("f8", None), ("up", None))
        await until(pilot, lambda: len(daemon.requests) == 2)
        assert daemon.one("bomb")["priority"] == "2"
        letters = [(c, c) for c in "1ms"] + [("slash", "/")] + [(c, c) for c in "9ms"]
        burst(app, ("r", "r"), *letters, ("enter", None))
        await until(pilot, lambda: daemon.one("editor")["capacity_ns"] == 1_000_000)


async def test_a_rule_keeps_its_name_when_its_level_changes() -> None:
    daemon = desktop()
    async with showing(daemon) as (_, pilot):
        await pilot.press("down", "down", "f8")
        await until(pilot, lambda: daemon.one("[bold]")["priority"] == "rm@1")


async def test_background_has_no_priority_to_step_from_but_can_be_given_one() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        await pilot.press("end", "f8")
        await until(pilot, lambda: "stranger.14 is Background" in lines(app)[-2])
        assert daemon.requests == []
        await pilot.press("p", *"2", "enter")
        await until(pilot, lambda: daemon.one("stranger")["priority"] == "2")


async def test_priority_reserve_and_policy_are_typed_and_checked_first() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: "Priority of editor.11: 9" in lines(app)[-1])
        await pilot.press("backspace", *"high", "enter")
        await until(pilot, lambda: "priority: found 'high', expected an integer" in seen(app))
        assert daemon.requests == []
        await pilot.press(*["backspace"] * 4, *"*@3", "enter")
        await until(pilot, lambda: daemon.one("editor")["priority"] == "*@3")
        await pilot.press("r", *"5/20", "enter")
        await until(pilot, lambda: 'expected a reserve such as "5ms/20ms"' in seen(app))
        await pilot.press(*["backspace"] * 4, *"5ms/20ms:ae", "enter")
        await until(pilot, lambda: daemon.one("editor")["capacity_ns"] == 5_000_000)
        assert daemon.requests[-1]["reserve"] == "5ms/20ms:ae"
        await until(pilot, lambda: "5.0/5ms]" in seen(app))
        await pilot.press("y", *["backspace"] * 3, *"ptr", "enter")
        await until(pilot, lambda: "policy: found 'ptr', expected one of" in seen(app))
        await pilot.press(*["backspace"] * 3, *"ht", "enter")
        await until(pilot, lambda: daemon.one("editor")["policy"] == "ht")


async def test_escape_leaves_a_question_and_changes_nothing() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        for key in ("p", "r", "y", "slash"):
            await pilot.press(key, *"7", "escape")
            await pilot.pause()
            assert lines(app)[-1].startswith("F1Help"), key
            assert app.focused is app.tasks
        await pilot.press("p", "f10")
        assert app.is_running
        assert daemon.requests == []


async def test_a_change_is_for_the_task_one_was_asked_about() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        await pilot.press("r", *"1ms/9ms")
        daemon.one("editor")["effective"] = -5  # it sinks to the end meanwhile
        daemon.channels.insert(0, channel("newcomer", 15, priority="50"))
        await until(pilot, lambda: order(app)[0] == "newcomer")
        await pilot.press("enter")
        await until(pilot, lambda: daemon.one("editor")["capacity_ns"] == 1_000_000)


async def test_the_daemons_refusal_is_shown_in_its_words() -> None:
    daemon = desktop()
    daemon.refusal = "this user may not go above the default priority"
    async with showing(daemon) as (app, pilot):
        await pilot.press("f8")
        await until(pilot, lambda: daemon.refusal in lines(app)[-2])


async def test_nothing_is_killed() -> None:
    async with showing(desktop()) as (app, pilot):
        for key in ("f9", "k"):
            app.say("")
            await pilot.press(key)
            await until(pilot, lambda: "Headway ends no programs" in lines(app)[-2])


# -- when things go wrong ------------------------------------------------------------------------


async def test_a_daemon_that_goes_is_missed_and_one_that_comes_is_found() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        daemon.here = False
        await until(pilot, lambda: "no daemon answers" in lines(app)[-2])
        assert "waiting for a daemon" in lines(app)[-2]
        assert app.tasks.rows  # what was seen last
        await pilot.press("f8")
        await until(pilot, lambda: app._unanswered == 0)
        daemon.here = True
        await until(pilot, lambda: "waiting for a daemon" not in lines(app)[-2])
        assert daemon.requests == []


async def test_a_daemon_that_hangs_holds_neither_keys_nor_the_end() -> None:
    daemon = desktop()
    hang, hangs, released = threading.Event(), threading.Event(), threading.Event()

    def ask(request: dict[str, object]) -> dict[str, object]:
        if hang.is_set():
            hangs.set()
            released.wait()
        return daemon(request)

    app = Top(ask, interval_s=INTERVAL_S, glyphs=UNICODE, colour=True, board=Past().read(status()))
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await ready(pilot, app)
            hang.set()
            await until(pilot, hangs.is_set)
            await pilot.press("down", "f8", "q")
            assert app.tasks.index == 1
    finally:
        released.set()  # only now: everything before went on without the daemon


async def test_news_that_come_after_the_end_hurt_nobody() -> None:
    async with showing(desktop()) as (app, _):
        pass
    for news in (Status(status()), Gone("late"), Answer("late", done=True)):
        app.on_heard(Heard(news))


async def test_a_task_that_goes_leaves_the_cursor_at_its_place() -> None:
    daemon = desktop()
    async with showing(daemon) as (app, pilot):
        await pilot.press("down")
        daemon.channels = [c for c in daemon.channels if not c["task"].startswith("bomb")]
        await until(pilot, lambda: len(app.tasks.rows) == 3)
        assert order(app)[app.tasks.index] == "[bold]x[/]"
        daemon.channels = []
        await until(pilot, lambda: "no task yet" in lines(app)[-2])
        await pilot.press("f8", "p", "r", "y", "down", "end", "pagedown")
        assert app.is_running


async def test_of_hundreds_of_tasks_only_those_one_sees_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[str] = []

    def counted(row: Row, layout: Layout, glyphs: Glyphs) -> Line:
        drawn.append(row.task)
        return cells(row, layout, glyphs)

    monkeypatch.setattr("headway.view.top.widgets.cells", counted)
    daemon = FakeDaemon(
        *[channel(f"task{i:03}", 1000 + i, priority=str(i), fps=float(i)) for i in range(600)]
    )
    async with showing(daemon, size=(200, 50)) as (app, pilot):
        await until(pilot, lambda: "task599" in seen(app))
        assert len(set(drawn)) == 45
        await pilot.press("end")
        await until(pilot, lambda: "task000" in seen(app))
        assert "600/600" in lines(app)[-2]
        assert len(set(drawn)) == 90
        await pilot.press(*["up"] * 50)
        assert app.tasks.index == 549
        await until(pilot, lambda: "task050" in seen(app))


async def test_without_colour_the_cursor_and_the_titles_are_still_to_be_seen() -> None:
    async with showing(desktop(), colour=False) as (app, pilot):
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        styles = [segment.style for strip in strips for segment in strip if segment.style]
        assert all(style.color is None or style.color.is_default for style in styles)
        assert all(style.bgcolor is None or style.bgcolor.is_default for style in styles)
        assert any(segment.style and segment.style.reverse for segment in strips[3])
        assert not any(segment.style and segment.style.reverse for segment in strips[4])


@pytest.mark.parametrize("key", ["q", "f10", "ctrl+c"])
async def test_it_ends(key: str) -> None:
    async with showing(desktop()) as (app, pilot):
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running or app._exit)
    assert app.return_code == 0
