"""The report page in a real browser: what it shows is what happened, and clicking works."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from headway.engine.events import (
    Began,
    Completed,
    Dispatched,
    Ended,
    Event,
    Passed,
    Submitted,
    TaskAdded,
)
from headway.engine.model import make_rank
from headway.view.traces import TraceWriter
from tests.integration.browser import Browser, browser
from tests.integration.command import ROOT, headway
from tests.integration.daemon_client import running_daemon, wait_until

ORACLES = ROOT / "tests" / "data" / "oracles"
MS, S = 1_000_000, 1_000_000_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def report(folder: Path, trace: Path, *options: str) -> Path:
    page = folder / f"{trace.stem}.html"
    result = headway("report", trace, "-o", page, *options)
    assert result.returncode == 0, result.stderr
    return page


def simulated(folder: Path, scenario: Path, *options: str) -> tuple[Path, dict[str, Any]]:
    """A page, and the run's own result to compare it with."""
    trace = folder / f"{scenario.stem}.pftrace"
    result = headway("sim", scenario, "--json", "--trace", trace, *options)
    assert result.returncode == 0, result.stderr
    return report(folder, trace), json.loads(result.stdout)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bombs")
    return simulated(folder, ROOT / "examples" / "bombs.toml", "--set", "run.duration=2s")


TABLE = """
const rows = [...document.querySelectorAll('#tasks tbody tr[data-task]')];
return JSON.stringify(rows.map(row => [row.querySelector('th').innerText.trim(),
  [...row.querySelectorAll('td')].map(cell => [cell.dataset.key, cell.innerText])]))
"""
MATRIX = """
const heads = [...document.querySelectorAll('#waits thead th')].map(cell => cell.innerText.trim());
const rows = [...document.querySelectorAll('#waits tbody tr[data-task]')];
return JSON.stringify(rows.map(row => {
  const cells = [...row.children].map(cell => cell.firstChild.textContent.trim());
  return [cells[0], cells.map((text, i) => [heads[i], text]).slice(1)];
}))
"""


def table(chromium: Browser) -> dict[str, dict[str, str]]:
    """The table of tasks as it is shown."""
    return {name: dict(cells) for name, cells in json.loads(chromium.run(TABLE))}


def matrix(chromium: Browser) -> dict[str, dict[str, str]]:
    """What waited for what, as it is shown; without the shares."""
    return {name: dict(cells) for name, cells in json.loads(chromium.run(MATRIX))}


def milliseconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1e3, "ms": 1, "µs": 1e-3, "ns": 1e-6}[unit]


def press(chromium: Browser, name: str) -> None:
    chromium.driver.find_element(By.ID, name).click()
    chromium.settle()


def expected(groups: list[dict[str, Any]], from_ns: int, to_ns: int) -> dict[str, dict[str, float]]:
    """Numbers of a stretch, worked out here from the list of groups."""
    result: dict[str, dict[str, float]] = {}
    for name in {group["task"] for group in groups}:
        own = [g for g in groups if g["task"] == name]
        done = [
            g
            for g in own
            if (from_ns < g["finished_ns"] or not from_ns) and g["finished_ns"] <= to_ns
        ]
        responses = sorted((g["finished_ns"] - g["submitted_ns"]) / MS for g in done)
        ran = sum(max(0, min(g["finished_ns"], to_ns) - max(g["started_ns"], from_ns)) for g in own)
        result[name] = {"groups": len(done), "share": 100 * ran / (to_ns - from_ns)}
        if responses:
            result[name]["p50"] = responses[-(-50 * len(responses) // 100) - 1]
            result[name]["p99"] = responses[-(-99 * len(responses) // 100) - 1]
    return result


def assert_shown(
    chromium: Browser,
    groups: list[dict[str, Any]],
    from_ns: int,
    to_ns: int,
    rel: float = 0.006,
) -> None:
    shown = table(chromium)
    for name, numbers in expected(groups, from_ns, to_ns).items():
        assert int(shown[name]["groups"]) == numbers["groups"]
        assert float(shown[name]["share"].rstrip(" %")) == pytest.approx(
            numbers["share"], abs=0.051
        )
        for key in ("p50", "p99"):
            if key in numbers:
                assert milliseconds(shown[name][key]) == pytest.approx(numbers[key], rel=rel)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_shows_the_numbers_of_the_run(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]], width: int
) -> None:
    page, result = bombs
    chromium.open(page, width=width)
    assert_shown(chromium, result["groups"], 0, result["device"]["end_ns"])
    shown = table(chromium)
    for name in ("game", "widget"):
        assert float(shown[name]["fps"]) == pytest.approx(result["tasks"][name]["fps"], abs=0.051)
    used = chromium.text(".reserve .used")
    share = float(used.split("%")[0])
    assert share == pytest.approx(100 * result["reserves"]["@bombs"]["used"], abs=0.051)
    assert chromium.run("return document.documentElement.scrollWidth") <= width
    assert chromium.complaints() == []


def test_the_matrix_shows_the_waits_that_were_worked_out_by_hand(
    chromium: Browser, tmp_path: Path
) -> None:
    page, _ = simulated(tmp_path, ORACLES / "prt-three-priorities.toml")
    chromium.open(page)
    assert matrix(chromium) == {
        "hp": {"in all": "2.00 ms", "hp": "0", "mp": "1.00 ms", "lp": "1.00 ms"},
        "mp": {"in all": "4.00 ms", "hp": "2.00 ms", "mp": "2.00 ms", "lp": "0"},
        "lp": {"in all": "7.00 ms", "hp": "4.00 ms", "mp": "3.00 ms", "lp": "0"},
    }
    page, _ = simulated(tmp_path, ORACLES / "pe-four-groups.toml")
    chromium.open(page)
    assert matrix(chromium) == {"a": {"in all": "14.0 ms", "a": "1.00 ms", "own budget": "13.0 ms"}}
    assert "No frames here" in chromium.text("#frames")


@pytest.mark.parametrize("told", ["each", "in tenths of a second"])
def test_a_steady_rate_is_drawn_as_steady(chromium: Browser, tmp_path: Path, told: str) -> None:
    """Thirty frames a second, each a group, or under a lease, which is told now and then."""
    begin = 1_000_000 * S
    events: list[Event] = [Began(0, 1), TaskAdded(begin, "video", "prt", "0", make_rank(0))]
    if told == "each":
        for n in range(180):
            at = begin + n * S // 30
            events.append(Submitted(at, "video", n, 0, None))
            events.append(Dispatched(at, "video", n, 0))
            events.append(Completed(at + MS, "video", n, 0, at, at, None, 0, True, None))
    else:
        events += [
            Submitted(begin, "video", 0, 0, None),
            Dispatched(begin, "video", 0, 0, leased=True),
            *(Passed(begin + n * S // 10, "video", 3, 3, MS) for n in range(1, 61)),
        ]
    events.append(Ended(begin + 6 * S, True))
    with TraceWriter(tmp_path / "video.pftrace") as writer:
        for event in events:
            writer.write(event)
    chromium.open(report(tmp_path, tmp_path / "video.pftrace"))
    rates = [rate for _, rate in chromium.run("return frameRates(TASKS[0], 0, BINS)")]
    assert len(rates) > 10
    assert rates == [pytest.approx(30, rel=0.05)] * len(rates)
    assert "30" in chromium.text("#frames")


def test_a_long_run_is_summed_up_and_the_page_says_so(chromium: Browser, tmp_path: Path) -> None:
    scenario = tmp_path / "long.toml"
    scenario.write_text(
        '[run]\nduration = "6s"\n'
        '[[task]]\nname = "fast"\npriority = 2\ngreedy = { cost = "80us", cpu = "20us" }\n'
        '[[task]]\nname = "slow"\npriority = 1\ngreedy = { cost = ["100us", "300us"] }\n'
    )
    page, result = simulated(tmp_path, scenario)
    assert len(result["groups"]) > 40_000
    assert page.stat().st_size < 2_100_000
    chromium.open(page)
    assert "instead of single groups" in chromium.text("#notes")
    assert_shown(chromium, result["groups"], 0, result["device"]["end_ns"])
    drag(chromium, 0.3, 0.6)
    # Counts and shares stay exact; percentiles come from buckets that are 4 % wide.
    assert_shown(chromium, result["groups"], *selected_ns(chromium), rel=0.03)
    assert chromium.complaints() == []


# -- hands on --------------------------------------------------------------------------------------


def drag(chromium: Browser, from_part: float, to_part: float) -> None:
    """Across the timeline, by parts of its drawn width."""
    canvas = chromium.driver.find_element(By.ID, "timeline")
    left, width = chromium.run(
        "return [timeline.left, timeline.canvas.clientWidth - timeline.left]"
    )
    start = left + width * from_part - canvas.size["width"] / 2
    actions = ActionChains(chromium.driver, duration=50)
    actions.move_to_element_with_offset(canvas, int(start), 0).click_and_hold()
    actions.move_by_offset(int(width * (to_part - from_part)), 0).release().perform()
    chromium.settle()


def selected_ns(chromium: Browser) -> tuple[int, int]:
    """The stretch that the page says is selected, in words."""
    text = chromium.text("#range")
    match = re.fullmatch(r"Selected: ([\d.]+) (\w+) to ([\d.]+) (\w+) \(.*\)", text)
    assert match, text
    a, b = (round(milliseconds(f"{match[n]} {match[n + 1]}") * MS) for n in (1, 3))
    return a, b


@pytest.mark.parametrize("width", [390, 1280])
def test_a_selection_restricts_all_numbers_and_can_be_forgotten(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]], width: int
) -> None:
    page, result = bombs
    chromium.open(page, width=width)
    drag(chromium, 0.2, 0.5)
    from_ns, to_ns = selected_ns(chromium)
    assert 300 * MS < from_ns < 500 * MS
    assert 900 * MS < to_ns < 1100 * MS
    assert_shown(chromium, result["groups"], from_ns, to_ns)
    waits = matrix(chromium)
    assert milliseconds(waits["bomb1"]["in all"]) <= 2 * (to_ns - from_ns) / MS
    press(chromium, "clear")
    assert "Nothing selected" in chromium.text("#range")
    assert_shown(chromium, result["groups"], 0, result["device"]["end_ns"])
    assert chromium.complaints() == []


def test_the_keyboard_is_enough(chromium: Browser, bombs: tuple[Path, dict[str, Any]]) -> None:
    page, result = bombs
    chromium.open(page)
    canvas = chromium.driver.find_element(By.ID, "timeline")
    chromium.run("timeline.canvas.focus()")
    canvas.send_keys("++", Keys.ARROW_LEFT, "s")
    chromium.settle()
    from_ns, to_ns = selected_ns(chromium)
    assert 0 < from_ns < to_ns < result["device"]["end_ns"]
    canvas.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.NULL)
    chromium.settle()
    again_ns = selected_ns(chromium)
    assert again_ns[0] == from_ns
    assert again_ns[1] > to_ns
    assert_shown(chromium, result["groups"], *again_ns)
    canvas.send_keys(Keys.ESCAPE, "0")
    chromium.settle()
    assert "Nothing selected" in chromium.text("#range")
    assert chromium.run("return state.view") == [0, result["device"]["end_ns"]]
    # The legend is reached and pressed by keys too.
    first = chromium.driver.find_element(By.CSS_SELECTOR, "#legend button")
    first.send_keys(Keys.SPACE)
    chromium.settle()
    assert "game" not in table(chromium)


def test_a_task_is_hidden_everywhere_and_shown_again(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]]
) -> None:
    page, _ = bombs
    chromium.open(page)
    before = chromium.run("return timeline.canvas.height")
    curves = "return document.querySelectorAll('#responses .curve').length"
    assert chromium.run(curves) == 7
    button = chromium.driver.find_element(By.CSS_SELECTOR, "#legend button[data-task='1']")
    assert button.text == "widget"
    button.click()
    chromium.settle()
    assert button.get_attribute("aria-pressed") == "false"
    assert "widget" not in table(chromium)
    waits = matrix(chromium)
    assert "widget" not in waits
    assert "widget" not in waits["game"]
    assert chromium.run(curves) == 6
    assert "widget" not in chromium.text("#shares")
    assert chromium.run("return timeline.canvas.height") < before
    button.click()
    chromium.settle()
    assert "widget" in table(chromium)
    ActionChains(chromium.driver).key_down(Keys.SHIFT).click(button).key_up(Keys.SHIFT).perform()
    chromium.settle()
    assert list(table(chromium)) == ["widget"]


def test_the_scale_of_the_response_times_can_be_changed(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]]
) -> None:
    page, _ = bombs
    chromium.open(page)
    curve = "return document.querySelector('#responses .curve').getAttribute('d')"
    logarithmic = chromium.run(curve)
    press(chromium, "linear")
    assert chromium.driver.find_element(By.ID, "linear").get_attribute("aria-pressed") == "true"
    assert chromium.run(curve) != logarithmic
    press(chromium, "log")
    assert chromium.run(curve) == logarithmic


def test_pointing_at_something_shows_its_numbers(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]]
) -> None:
    page, result = bombs
    chromium.open(page)
    group = next(g for g in result["groups"] if g["task"] == "widget" and g["started_ns"] > 10**9)
    chromium.run("look(arguments[0], arguments[1])", group["started_ns"], group["finished_ns"])
    chromium.settle()
    middle = (group["started_ns"] + group["finished_ns"]) / 2
    text = chromium.run("return timeline.describe(timeline.x(arguments[0]), 26 + 20)", middle)
    ran = re.search(r"widget: ran ([\d.]+ \S+)", text)
    assert ran, text
    expected_ms = (group["finished_ns"] - group["started_ns"]) / MS
    assert milliseconds(ran[1]) == pytest.approx(expected_ms, rel=0.01)
    cell = chromium.driver.find_element(By.CSS_SELECTOR, "#waits td[data-cause]:not(.zero)")
    ActionChains(chromium.driver).move_to_element(cell).perform()
    assert "waited" in chromium.text("#tip")


def test_tracks_of_another_tool_stand_below_the_run(chromium: Browser, tmp_path: Path) -> None:
    """At their times, with their names, which are text as those of tasks are."""
    trace = write(
        tmp_path / "run.pftrace",
        [Began(0, 1), TaskAdded(10 * MS, "a", "prt", "0", 0), Ended(20 * MS, True)],
    )
    events = [
        {"ph": "X", "cat": "kernel", "name": HOSTILE, "pid": 0, "tid": 7, "ts": 12e3, "dur": 4e3},
        {"ph": "X", "name": "step", "pid": 9, "tid": 9, "ts": 1e3, "dur": 10e3},
    ]
    (tmp_path / "torch.json").write_text(json.dumps({"traceEvents": events}))
    chromium.open(report(tmp_path, trace, "--with", str(tmp_path / "torch.json")))
    assert chromium.complaints() == []
    assert chromium.run("return OTHERS.map(track => track.name)") == ["GPU 0 stream 7", "9"]
    found = chromium.run("""
        const rows = timeline.rowsOf('other');
        const at = (row, ms) => timeline.describe(timeline.x(ms * 1e6), row.y + 9);
        return [at(rows[0], 4), at(rows[0], 7), at(rows[1], .5), at(rows[1], 2)]""")
    assert [text.partition("\n")[2] for text in found] == [
        f"{HOSTILE}: 4.00 ms",
        "nothing",
        "step: 1.00 ms",
        "nothing",
    ]
    late = headway("report", trace, "--with", tmp_path / "late.json", "-o", tmp_path / "p.html")
    assert late.returncode == 2
    assert late.stderr.startswith(f"{tmp_path / 'late.json'}: cannot be read")


def test_light_and_dark_are_followed_and_can_be_changed(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]]
) -> None:
    page, _ = bombs
    chromium.open(page, dark=True)
    ground = "return getComputedStyle(document.body).backgroundColor"
    dark = chromium.run(ground)
    press(chromium, "theme")
    light = chromium.run(ground)
    assert sum(map(int, re.findall(r"\d+", light))) > 600
    assert sum(map(int, re.findall(r"\d+", dark))) < 150


# -- what else may come ----------------------------------------------------------------------------

HOSTILE = '</script><img src=x onerror="document.title=1"><b>&lt;'


def write(path: Path, events: list[Event]) -> Path:
    with TraceWriter(path) as writer:
        for event in events:
            writer.write(event)
    return path


def test_a_hostile_task_name_is_text_and_nothing_else(chromium: Browser, tmp_path: Path) -> None:
    names = [HOSTILE, "'-alert(1)-'", "a\u2028b\ud800\x00\x1b", "@DATA@ @SCRIPT@", "__proto__"]
    trace = write(
        tmp_path / "hostile.pftrace",
        [
            Began(0, 1),
            *(TaskAdded(0, name, name, "0", make_rank(0)) for name in names),
            *(Completed(MS, name, 0, 0, 0, 0, None, 0, True, None) for name in names),
            Ended(2 * MS, True),
        ],
    )
    page = report(tmp_path, trace)
    chromium.open(page)
    assert chromium.complaints() == []
    assert chromium.driver.title == "hostile.pftrace · Headway"
    assert (
        chromium.run("return document.images.length + document.querySelectorAll('b b').length") == 0
    )
    assert HOSTILE in table(chromium)
    assert len(table(chromium)) == len(names)
    # Even if a script did get in, the page's policy would not run it.
    chromium.run("document.body.append(document.createElement('script'))")
    chromium.run("document.body.lastChild.textContent = 'window.broken = 1'")
    assert chromium.run("return window.broken === undefined")
    assert any("Content Security Policy" in line for line in chromium.complaints())


EMPTY: dict[str, list[Event]] = {
    "nothing": [Began(0, 1), Ended(0, True)],
    "a task that does nothing": [Began(0, 1), TaskAdded(0, "a", "prt", "0", 0), Ended(MS, True)],
    "a task that only waits": [
        Began(0, 1),
        TaskAdded(0, "a", "prt", "0", 0),
        Submitted(MS, "a", 0, 0, None),
        Ended(3 * MS, False),
    ],
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_trace_with_hardly_anything_in_it_makes_a_page(
    chromium: Browser, tmp_path: Path, name: str
) -> None:
    chromium.open(report(tmp_path, write(tmp_path / "empty.pftrace", EMPTY[name])), width=390)
    for button in ("zoom-in", "select-view", "clear", "linear"):
        press(chromium, button)
    assert chromium.complaints() == []
    notes = chromium.text("#notes")
    assert "No group completed" in notes
    assert ("interrupted" in notes) == (name == "a task that only waits")
    if name == "a task that only waits":
        assert matrix(chromium) == {"a": {"in all": "2.00 ms", "GPU idle": "2.00 ms"}}


def test_a_trace_that_is_cut_off_is_shown_as_far_as_it_goes(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    page, _ = bombs
    whole = page.with_name("bombs.pftrace").read_bytes()
    trace = tmp_path / "cut.pftrace"
    trace.write_bytes(whole[: len(whole) // 2])
    chromium.open(report(tmp_path, trace))
    assert "is cut off after" in chromium.text("#notes")
    assert 0 < int(table(chromium)["game"]["groups"]) < 2000
    assert chromium.complaints() == []


def test_a_part_of_a_run_has_the_numbers_of_that_part(
    chromium: Browser, bombs: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    page, result = bombs
    trace = page.with_name("bombs.pftrace")
    chromium.open(report(tmp_path, trace, "--from", "0.5s", "--to", "1500ms"))
    assert_shown(chromium, result["groups"], 500 * MS, 1500 * MS)


@pytest.mark.live
def test_a_live_run_makes_the_same_page(chromium: Browser, tmp_path: Path) -> None:
    trace = tmp_path / "live.pftrace"
    with running_daemon(tmp_path / "run", "--trace", str(trace)) as daemon:
        with daemon.client("holder") as holder, daemon.client("other") as other:
            holder.get_lease()
            holder.set_busy(True)
            other.submit()
            wait_until(lambda: not holder.leased, "the lease is taken back")
            holder.set_busy(False)
            holder.release()
            other.wait_grant()
            other.complete()
        daemon.ask(do="stop")
        daemon.process.wait(20)
    chromium.open(report(tmp_path, trace))
    shown = {name.split(".")[0]: row for name, row in table(chromium).items()}
    assert {name: row["groups"] for name, row in shown.items()} == {"holder": "1", "other": "1"}
    # The clock of a live run does not begin at zero, but its page does.
    label = chromium.driver.find_element(By.ID, "timeline").get_attribute("aria-label")
    assert re.match(r"Timeline from 0(\.0+)? \S+ to", str(label))
    waits = {name.split(".")[0]: row for name, row in matrix(chromium).items()}
    (for_holder,) = (ms for cause, ms in waits["other"].items() if cause.startswith("holder"))
    assert milliseconds(for_holder) > 0.5 * milliseconds(waits["other"]["in all"])
    assert chromium.complaints() == []


def test_the_page_asks_nothing_of_the_network(bombs: tuple[Path, dict[str, Any]]) -> None:
    text = bombs[0].read_text()
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"https?://[^\s'\"]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of SVG, which nobody fetches
    assert not re.search(r"<link|@import|url\(|<script[^>]+src", text)


def test_two_runs_are_side_by_side_below_what_is_different(
    chromium: Browser, tmp_path: Path
) -> None:
    """In the file that nobody named; both pages work, and neither they nor the table complain."""
    bombs, results = ROOT / "examples" / "bombs.toml", []
    for number, variant in enumerate(("without Headway", "priorities and a reserve")):
        trace = str(tmp_path / f"run{number}.pftrace")
        short = ("--set", "run.duration=1s", "--json", "--trace", trace)
        done = headway("sim", bombs, "--variant", variant, *short)
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout)["tasks"])
    made = headway("report", "run0.pftrace", "run1.pftrace", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    chromium.open(tmp_path / "run0-run1.html")
    inner = "[...document.querySelectorAll('iframe')].map(f => f.contentDocument)"
    chromium.wait(f"{inner}.every(d => d.documentElement.dataset.ready === 'yes')")
    frames = chromium.run(
        f"return {inner}.map(d => d.querySelectorAll('#tasks tr[data-task]').length)"
    )
    assert frames == [7, 7]
    rows = chromium.run(
        "return [...document.querySelectorAll('#different tr')].slice(1)"
        ".map(row => [...row.children].map(cell => cell.innerText))"
    )
    assert {row[0] for row in rows} == {*results[0]}
    for name, groups, _, _, p99, *_ in rows:
        before, after = (result[name] for result in results)
        assert groups == f"{before['groups']} \u2192 {after['groups']}"
        assert float(p99.split()[0]) == pytest.approx(before["response_ns"]["p99"] / 1e6, rel=0.01)
    assert chromium.complaints() == []


def test_a_report_is_opened_where_it_was_written(tmp_path: Path) -> None:
    """By default beside where one is; `--open` shows it in the browser that $BROWSER names."""
    done = headway("sim", ROOT / "examples" / "fair.toml", "--trace", str(tmp_path / "a.pftrace"))
    assert done.returncode == 0, done.stderr
    env = {**os.environ, "BROWSER": f"sh -c 'echo %s > {tmp_path}/opened'"}
    assert headway("report", "a.pftrace", "--open", cwd=tmp_path, env=env).returncode == 0
    assert (tmp_path / "opened").read_text().strip() == (tmp_path / "a.html").as_uri()
    third = headway("report", "a", "b", "c", cwd=tmp_path)
    assert (third.returncode, third.stderr.count("\n")) == (2, 1)
