"""What the report page is made of: of bounded size, and adding up to what the analysis says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import Began, Completed, Ended, Event, ShareSet, Submitted, TaskAdded
from headway.trace.analysis import History, Occupancy, read_history, summarise
from headway.view.report import data as report_data
from headway.view.report.data import Data, round_up
from headway.view.report.page import page
from tests.bench.histories import history_of
from tests.strategies import MS, scenarios, to_toml


def built(history: History) -> dict[str, Any]:
    occupancy = Occupancy(history)
    summary = summarise(history, occupancy=occupancy)
    found: dict[str, Any] = json.loads(Data(history, occupancy, summary).encode({}))
    return found


def within(sparse: list[int], first: int, last: int) -> int:
    """The sum of the bins from `first` on, before `last`, as the page works it out."""
    total = place = 0
    for step, value in zip(sparse[::2], sparse[1::2], strict=True):
        place += step
        total += value if first <= place < last else 0
    return total


def steady(groups: int, tasks: int, step_ns: int = 10_000) -> list[Event]:
    """Groups of many tasks, one after the other, each with a response of its own."""
    events: list[Event] = [Began(0, 1)]
    events += [TaskAdded(0, f"task {n}", "prt", "0", 0) for n in range(tasks)]
    for index in range(groups):
        start, name = index * step_ns, f"task {index % tasks}"
        submitted = start - index * 7919 % 1_000_000
        end = start + step_ns - 100
        events.append(Completed(end, name, index, 0, submitted, start, None, 0, True, None))
    return [*events, Ended(groups * step_ns, True)]


def test_shares_of_the_multiprocessors_are_there_where_they_were_ever_less_than_all() -> None:
    events: list[Event] = [Began(0, 1), ShareSet(0, "a", 1000), ShareSet(0, "b", 1000)]
    events += [ShareSet(n * MS, "a", 1000 - n % 500) for n in range(1, 5000)]
    whole = built(read_history([*events, Ended(5000 * MS, True)]))["tasks"]
    spaces = {task["name"]: task["space"] for task in whole}
    assert spaces["b"] == []
    assert len(spaces["a"]) <= report_data.SHARE_POINTS + 1
    assert spaces["a"][0] == [0, 1000]
    assert spaces["a"][-1] == [4999 * MS, 1000 - 4999 % 500]
    assert all(permille == 1000 - (ns // MS) % 500 for ns, permille in spaces["a"])


@settings(database=None, deadline=None, max_examples=40)
@given(scenarios(), st.data())
def test_bins_add_up_to_the_numbers_of_their_stretch(
    scenario: dict[str, Any], draws: st.DataObject
) -> None:
    history = history_of(to_toml(scenario))
    found = built(history)
    width = found["width"]
    bins = -(-(history.end_ns - history.begin_ns) // width)
    first = draws.draw(st.integers(0, max(0, bins - 1)))
    last = draws.draw(st.integers(first + 1, bins)) if bins else 1
    to_ns = min(last * width, history.end_ns)
    summary = summarise(history, first * width, to_ns)
    names = len(summary.tasks)
    for row, task in zip(found["tasks"], summary.tasks, strict=True):
        assert within(row["busy"], first, last) == task.gpu_ns
        for cause, series in row["waits"].items():
            number = int(cause) if int(cause) < names else names - 1 - int(cause)
            assert within(series, first, last) == task.waited_ns[number]
        assert set(task.waited_ns) <= {
            int(c) if int(c) < names else names - 1 - int(c) for c in row["waits"]
        }
    for entry, reserve in zip(found["reserves"], summary.reserves, strict=True):
        assert within(entry["charged"], first, last) == reserve.charged_ns


@pytest.mark.parametrize(("groups", "tasks"), [(30_000, 3), (60_000, 3), (60_000, 80)])
def test_the_size_is_bounded_and_nothing_is_lost(groups: int, tasks: int) -> None:
    history = read_history(steady(groups, tasks))
    occupancy = Occupancy(history)
    encoded = Data(history, occupancy, summarise(history, occupancy=occupancy)).encode({})
    assert len(encoded) <= report_data.MAX_BYTES
    found = json.loads(encoded)
    assert found["exact"] == (groups <= report_data.EXACT_GROUPS)
    assert len(found["tasks"]) == min(tasks, report_data.MAX_ROWS)
    assert sum(row["groups"] for row in found["tasks"]) == groups
    assert sum(sum(row["frames"][1::2]) for row in found["tasks"]) == groups
    assert sum(sum(row["busy"][1::2]) for row in found["tasks"]) == groups * 9_900
    if not found["exact"]:
        assert sum(sum(row["histogram"][2::3]) for row in found["tasks"]) == groups


def test_what_does_not_fit_in_detail_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    history = read_history(steady(5_000, 3))
    whole = json.dumps(built(history))
    assert json.loads(whole)["exact"]
    monkeypatch.setattr(report_data, "MAX_BYTES", len(whole) // 4)
    found = built(history)
    assert not found["exact"]
    assert len(json.dumps(found, separators=(",", ":"))) <= len(whole) // 4


def test_the_tasks_that_do_least_share_a_row() -> None:
    events: list[Event] = [Began(0, 1)]
    events += [TaskAdded(0, f"t{n}", "prt", "0", 0) for n in range(30)]
    for n in range(30):
        end = (n + 1) * (n + 2) // 2 * MS  # the n-th runs for n + 1 ms
        events.append(
            Completed(
                end, f"t{n}", 0, 0, end - (n + 1) * MS, end - (n + 1) * MS, None, 0, False, None
            )
        )
    events.append(Submitted(events[-1].ns, "t0", 1, 0, None))
    found = built(read_history([*events, Ended(1000 * MS, True)]))
    names = [row["name"] for row in found["tasks"]]
    # t0 waits for more than half a second at the end, so t1 to t7 are the least active.
    assert names == ["t0", *(f"t{n}" for n in range(8, 30)), "7 others"]
    assert found["tasks"][-1]["groups"] == 7


def test_a_round_duration_is_found() -> None:
    assert [round_up(ns) for ns in (0, 1, 3, 7, 10, 11, 9_765_625)] == [
        1, 1, 5, 10, 10, 20, 10_000_000,
    ]  # fmt: skip


def test_nothing_in_the_data_can_end_its_element() -> None:
    text = page("</title><script>", json.dumps({"name": "</script><!--&@STYLE@"}))
    assert text.count("</script>") == 2
    assert text.count("</title>") == 1
    assert "<!--" not in text
    inside = text.split('id="data">')[1].split("</script>")[0]
    assert json.loads(inside) == {"name": "</script><!--&@STYLE@"}
