"""`headway locks`: the contract by which implementations are compared, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import ROOT, headway

EXAMPLE = ROOT / "examples" / "locks" / "donation.json"


def write(tmp_path: Path, **changes: Any) -> Path:
    """The example with some keys set otherwise; None as a string removes a key."""
    data = {**json.loads(EXAMPLE.read_text()), **changes}
    data = {key: value for key, value in data.items() if value != "absent"}
    file = tmp_path / "locks.json"
    file.write_text(json.dumps(data))
    return file


def test_grants_come_as_json_by_time_and_token(tmp_path: Path) -> None:
    result = headway("locks", "--json", EXAMPLE)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schema"] == 1
    assert found["grants"][:2] == [
        {"at": 0, "id": "A", "token": 0},
        {"at": 1, "id": "B", "token": 1},
    ]
    order = [(grant["at"], grant["token"]) for grant in found["grants"]]
    assert order == sorted(order)
    assert len(order) == 7


def test_a_person_sees_queues_donors_and_inheritance() -> None:
    result = headway("locks", EXAMPLE)
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if "G asks" in line]
    assert " ".join(line.split()) == "6 G asks A C / B D F G>B E>A A as E, B as G"


def test_names_may_be_numbers_and_events_may_be_left_out(tmp_path: Path) -> None:
    requests = [{"id": n, "at": 0, "hold": 2, "priority": -n} for n in range(3)]
    file = write(tmp_path, requests=requests, events="absent")
    found = json.loads(headway("locks", "--json", file).stdout)["grants"]
    assert [(grant["at"], grant["id"]) for grant in found] == [(0, 0), (0, 1), (2, 2)]


def test_events_that_meet_no_request_are_ignored_and_told(tmp_path: Path) -> None:
    events = [{"at": 0, "do": "cancel", "id": "G"}, {"at": 99, "do": "vunlock", "id": "A"}]
    found = json.loads(headway("locks", "--json", write(tmp_path, events=events)).stdout)
    assert len(found["grants"]) == 7
    assert found["ignored"] == [
        "events[0]: G has no request at 0",
        "events[1]: A has no request at 99",
    ]


REQUEST = {"id": "A", "at": 0, "hold": 1, "priority": 1}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"f": 0}, "f: found 0, expected a whole number from 1, or null for unlimited"),
        ({"cap": 5}, "cap: found 5, expected at most k*f = 4"),
        (
            {"cap": None},
            "cap: found null (unlimited), expected at most k*f = 4, since f is limited",
        ),
        ({"cap": 0}, "cap: found 0, expected a whole number from 1, or null for unlimited"),
        ({"k": 0}, "k: found 0, expected a whole number from 1 to 65536"),
        ({"k": 2.5}, "k: found 2.5, expected a whole number"),
        ({"m": "absent"}, "m: found nothing, expected a whole number"),
        ({"f": "absent"}, "f: found nothing, expected a whole number, or null for unlimited"),
        ({"order": "fifo"}, "order: found 'fifo', expected donation or priority"),
        ({"order": "absent"}, "order: found nothing, expected donation or priority"),
        ({"requests": "absent"}, "requests: found nothing, expected a list of requests"),
        ({"requests": {}}, "requests: found {}, expected a list of objects"),
        ({"requests": [3]}, "requests[0]: found 3, expected an object"),
        (
            {"requests": [{**REQUEST, "hold": -1}]},
            "requests[0].hold: found -1, expected a whole number from 0 to 4611686018427387904",
        ),
        (
            {"requests": [{**REQUEST, "at": True}]},
            "requests[0].at: found true, expected a whole number from 0 to 4611686018427387904",
        ),
        (
            {"requests": [REQUEST, REQUEST]},
            "requests[1].id: found 'A', which requests[0] has too, "
            "expected an id that no other request has",
        ),
        (
            {"requests": [{**REQUEST, "prio": 1}]},
            "requests[0].prio: found the unknown key 'prio', "
            'expected at, hold, id or priority (did you mean "priority"?)',
        ),
        (
            {"events": [{"at": 1, "do": "cancel", "id": "Z"}]},
            "events[0].id: found 'Z', expected the id of a request",
        ),
        (
            {"events": [{"at": 1, "do": "kill", "id": "A"}]},
            "events[0].do: found 'kill', expected cancel, priority or vunlock",
        ),
        (
            {"events": [{"at": 1, "do": "priority", "id": "A"}]},
            "events[0].to: found nothing, expected a whole number",
        ),
        (
            {"events": [{"at": 1, "do": "cancel", "id": "A", "to": 3}]},
            "events[0].to: found a new priority with 'cancel', expected none",
        ),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    file = write(tmp_path, **changes)
    result = headway("locks", "--json", file)
    assert result.returncode == 2
    assert result.stderr == f"{file}: {line}\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ":1: found text that is not JSON"),
        ("[1]", ": found [1], expected a JSON object"),
        ('{"k": 1, "k": 2}', ": found the key 'k' twice in one object"),
        ('{"k": NaN}', ": found NaN, which is no JSON number"),
        ("[" * 100_000, ": found lists nested too deeply"),
        ('{"k": ' + "1" * 5000 + "}", ": found a number of more than 4000 digits"),
    ],
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str, found: str) -> None:
    file = tmp_path / "locks.json"
    file.write_text(text)
    result = headway("locks", file)
    assert result.returncode == 2
    assert result.stderr.startswith(f"{file}{found}")
    assert len(result.stderr.splitlines()) == 1


def test_unequal_devices_are_remarked_and_simulated(tmp_path: Path) -> None:
    result = headway("locks", "--json", write(tmp_path, k=3, f=1, cap=3))
    assert result.returncode == 0
    assert "devices have unequal numbers of tokens" in result.stderr


def test_a_scenario_with_tokens_is_simulated_by_the_same_command() -> None:
    result = headway("sim", "examples/gpusync.toml", "--json", "--set", "run.duration=1s")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["complete"]
    steer = found["tasks"]["steer"]
    assert len(steer["jobs"]) == 100
    assert steer["jobs"][1]["release_ns"] == 10_000_000
    assert steer["jobs"][1]["deadline_ns"] == 20_000_000
    assert found["tasks"]["front"]["response_ns"]["max"] > 8_000_000


def test_what_such_a_scenario_cannot_do_is_refused() -> None:
    result = headway("sim", "examples/gpusync.toml", "--trace", "x.pftrace")
    assert result.returncode == 2
    assert result.stderr == "--trace: found with [gpusync], expected --json or --plot\n"
    result = headway("sim", "examples/gpusync.toml", "examples/bombs.toml")
    assert result.returncode == 2
    assert "expected files of one kind" in result.stderr


def test_deadlines_that_are_met_by_proof() -> None:
    result = headway("analyse", "examples/tokens.toml", "--json", "--strict", "--omlp")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schedulable"] == "yes"
    front = found["tasks"]["front"]
    assert front["bound_ns"] + front["slack_ns"] == front["deadline_ns"] == 33_000_000
    assert sum(front["parts_ns"].values()) == front["bound_ns"]
    assert front["dominates"] == "units"
    assert front["omlp_ns"] > 0


def test_deadlines_that_are_not_exit_with_1_if_asked() -> None:
    result = headway("analyse", "examples/gpusync.toml", "--strict")
    assert result.returncode == 1
    assert "front: no bound: " in result.stdout
    assert headway("analyse", "examples/gpusync.toml").returncode == 0


def test_a_bad_scenario_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[gpusync]\nrho = 0\n[[task]]\nname = "a"\nperiod = "1ms"\ncpu = "1us"\n')
    result = headway("analyse", file)
    assert result.returncode == 2
    assert result.stderr == (
        f"{file}:2: gpusync.rho: found 0, expected a whole number from 1 to 4096\n"
    )
    result = headway("analyse", "examples/bombs.toml", "--omlp")
    assert result.returncode == 2
    assert "expected a scenario with tokens" in result.stderr
