"""Bad input of any kind: one clear line for each mistake, exit code 2, and nothing half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.command import headway

TASK = """[[task]]
name = "a"
groups = [{ at = "0ms", cost = "1ms" }]
"""

CASES = {
    "an unknown key at the top": (TASK + "[devise]\nswitch = '1us'\n", 4, "devise", "device"),
    "an unknown key of a task": (TASK + "prioriti = 3\n", 4, "task[0].prioriti", "priority"),
    "an unknown key of a group": (
        '[[task]]\nname = "a"\ngroups = [\n  { at = "0s", cost = "1ms" },\n'
        + '  { at = "1s", cost = "1ms", knd = "x" },\n]\n',
        5,
        "task[0].groups[1].knd",
        'did you mean "kind"',
    ),
    "an unknown key of a generator": (
        '[[task]]\nname = "a"\n\n[task.periodic]\nperiod = "1ms"\ncost = "1us"\nperoid = "2ms"\n',
        7,
        "task[0].periodic.peroid",
        "period",
    ),
    "a zero period": (
        '[[task]]\nname = "a"\nperiodic = { period = "0ms", cost = "1ms" }\n',
        3,
        "task[0].periodic.period",
        "more than zero",
    ),
    "a negative period": (
        '[[task]]\nname = "a"\nperiodic = { period = "-5ms", cost = "1ms" }\n',
        3,
        "task[0].periodic.period",
        "not negative",
    ),
    "a zero reserve period": (
        TASK + 'reserve = { policy = "pe", capacity = "1ms", period = "0s" }\n',
        4,
        "task[0].reserve.period",
        "more than zero",
    ),
    "a capacity above the period": (
        TASK + 'reserve = { policy = "pe", capacity = "11ms", period = "10ms" }\n',
        4,
        "task[0].reserve.capacity",
        "at most the period, 10ms",
    ),
    "an unknown policy": (TASK + 'policy = "ptr"\n', 4, "task[0].policy", 'did you mean "prt"'),
    "an unknown reserve policy": (
        TASK + 'reserve = { policy = "xe", capacity = "1ms", period = "10ms" }\n',
        4,
        "task[0].reserve.policy",
        "ae or pe",
    ),
    "a priority that is none": (TASK + 'priority = "high"\n', 4, "task[0].priority", "integer"),
    "a priority out of range": (TASK + "priority = 99999999\n", 4, "task[0].priority", "1000000"),
    "a name twice": (TASK + TASK, 5, "task[1].name", "line 2 has it already"),
    "a missing name": ("[[task]]\ngroups = []\n", 1, "task[0].name", "a name"),
    "a missing server": (
        '[[task]]\nname = "a"\nserver = "X"\nwidget = {}\n[[task]]\nname = "Y"\nserves = {}\n',
        3,
        "task[0].server",
        "Y",
    ),
    "servers in a cycle": (
        '[[task]]\nname = "a"\nserver = "b"\nwidget = {}\n'
        + '[[task]]\nname = "b"\nserver = "a"\nwidget = {}\n',
        3,
        "task[0].server",
        "a -> b -> a",
    ),
    "a task that is its own server": (
        '[[task]]\nname = "a"\nserver = "a"\nwidget = {}\n',
        3,
        "task[0].server",
        "cycle",
    ),
    "a unit that is missing": (
        '[[task]]\nname = "a"\ngroups = [{ at = "0ms", cost = "5" }]\n',
        3,
        "task[0].groups[0].cost",
        "unit",
    ),
    "a number instead of a duration": (
        '[[task]]\nname = "a"\ngroups = [{ at = 0, cost = "5ms" }]\n',
        3,
        "task[0].groups[0].at",
        "unit",
    ),
    "a fraction of a nanosecond": (
        '[[task]]\nname = "a"\ngroups = [{ at = "0ms", cost = "0.5ns" }]\n',
        3,
        "task[0].groups[0].cost",
        "whole number of nanoseconds",
    ),
    "a cost of nothing": (
        '[[task]]\nname = "a"\ngroups = [{ at = "0ms", cost = "0ms" }]\n',
        3,
        "task[0].groups[0].cost",
        "more than zero",
    ),
    "two generators": (
        '[[task]]\nname = "a"\nwidget = {}\nbomb = {}\n',
        1,
        "task[0]",
        "one of",
    ),
    "nothing to do": ('[[task]]\nname = "a"\n', 1, "task[0]", "one of"),
    "pool members that disagree": (
        TASK
        + 'reserve = { policy = "pe", capacity = "1ms", period = "10ms", shared = "p" }\n'
        + TASK.replace('"a"', '"b"')
        + 'reserve = { policy = "pe", capacity = "2ms", period = "10ms", shared = "p" }\n',
        8,
        "task[1].reserve",
        "pe 1ms every 10ms",
    ),
    "an event for nobody": (
        TASK + '[[event]]\nat = "1s"\nkill = "z"\n',
        6,
        "event[0].kill",
        "task",
    ),
    "a server with rix and no reserve": (
        '[[task]]\nname = "X"\nserves = { rix = true }\n',
        3,
        "task[0].serves",
        "a reserve",
    ),
    "a file that is not TOML": ("[[task\nname", 1, "not TOML", "TOML"),
    "a task that is no table": ("task = 5\n", 1, "task", "[[task]]"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line_with_place_and_expectation(case: str, tmp_path: Path) -> None:
    text, line, key, expected = CASES[case]
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    result = headway("sim", file, "--json")
    assert result.returncode == 2
    assert result.stdout == ""
    (message,) = result.stderr.splitlines()
    assert message.startswith(f"{file}:{line}: ")
    assert key in message
    assert expected in message
    assert "found" in message.partition("expected")[0]


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(
        '[[task]]\nname = "a"\npolicy = "x"\npriority = "y"\n'
        'groups = [{ at = "1", cost = "1ms" }]\nfoo = 1\n'
    )
    result = headway("sim", file)
    assert result.returncode == 2
    lines = [int(line.split(":")[1]) for line in result.stderr.splitlines()]
    assert lines == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "at least one [[task]]"),
        (b"# only a comment\n", "at least one [[task]]"),
        (b"[device]\n", "at least one [[task]]"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"a = " + b"[" * 100_000, "TOML"),
        (b'[[task]]\nname = "a\x00"\n', "TOML"),
    ],
)
def test_a_file_without_a_scenario_is_refused(
    content: bytes, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_bytes(content)
    result = headway("sim", file)
    assert result.returncode == 2
    (message,) = result.stderr.splitlines()
    assert str(file) in message
    assert expected in message


def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.toml", tmp_path):
        result = headway("sim", path)
        assert result.returncode == 2
        assert len(result.stderr.splitlines()) == 1
        assert str(path) in result.stderr


def test_a_million_tasks_are_refused_quickly(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    with file.open("w") as out:
        for number in range(1_000_000):
            out.write(f'[[task]]\nname="{number}"\n')
    result = headway("sim", file, timeout_s=20)
    assert result.returncode == 2
    (message,) = result.stderr.splitlines()
    assert "at most" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("sim",),
        ("sim", "--nonsense"),
        ("frobnicate",),
        ("sim", "examples/bombs.toml", "--seed", "x"),
        ("sim", "examples/bombs.toml", "--set", "nonsense"),
        ("sim", "examples/bombs.toml", "--set", "task.nobody.priority=5"),
        ("sim", "examples/bombs.toml", "--variant", "nobody"),
        ("sim", "examples/bombs.toml", "--plot", "picture.xyz"),
        ("sim", "examples/bombs.toml", "--load", "nothing.py"),
        ("sim", "examples/bombs.toml", "examples/bombs.toml", "--trace", "x.pftrace"),
        ("compare", "examples/bombs.toml", "--policy", "nobody"),
        ("check", "examples/bombs.toml"),
        ("check", "nothing.pftrace"),
        ("config", "check", "nothing.toml"),
        ("papers", "run", "timegraph/fig99"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    result = headway(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == (7 if "compare" in arguments else 1)


def test_a_mistake_in_the_last_file_stops_all_of_them(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(TASK)
    bad.write_text(TASK + "x = 1\n")
    result = headway("sim", good, bad, "--json")
    assert result.returncode == 2
    assert result.stdout == ""


def test_an_unwritable_trace_or_picture_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(TASK)
    for option, name in (("--trace", "no/dir.pftrace"), ("--plot", "no/dir.png")):
        result = headway("sim", file, option, tmp_path / name)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1
        assert "dir" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scenario.toml"]
