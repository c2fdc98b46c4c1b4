"""Launches are remembered by the next daemon, and nothing else is."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.live.identity import launches
from headway.live.identity.launches import KEPT_S, Claims, Launches
from headway.live.identity.options import TaskOptions
from headway.live.server import requests
from headway.live.server.requests import Refusal, Request

UID = 4711
SAID: Request = {
    "do": "run",
    "name": "vip",
    "policy": "overlap",
    "priority": "9",
    "reserve": "5ms/20ms:ae",
    "shared": "pool",
    "period": "10ms",
    "deadline": "5ms",
    "display": ":7",
}


def expect(kept: Launches, said: Request = SAID) -> str:
    return kept.expect(requests.task_options(said, UID), said)


def facts(chosen: TaskOptions | None) -> tuple[object, ...]:
    """Rules of priority are compared by their kind and level."""
    assert chosen is not None
    rule = chosen.priority
    return replace(chosen, priority=None), type(rule), None if rule is None else rule.level


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "launches"


@pytest.mark.parametrize("said", [SAID, {"do": "run"}, {"priority": "rm"}, {"reserve": "1ms/2ms"}])
def test_the_next_daemon_knows_what_was_wished(folder: Path, said: Request) -> None:
    token = expect(Launches(folder), said)
    assert facts(Launches(folder).find(token)) == facts(requests.task_options(said, UID))


def test_the_next_daemon_knows_what_was_changed_since(folder: Path) -> None:
    token = expect(Launches(folder))
    second = Launches(folder)
    assert second.find(token) is not None
    second.change(token, {"do": "set", "task": "vip", "priority": "3"})
    for kept in (second, Launches(folder)):
        assert facts(kept.find(token)) == facts(
            requests.task_options(SAID | {"priority": "3"}, UID)
        )


def test_what_nobody_launched_cannot_be_changed(folder: Path) -> None:
    Launches(folder).change("0" * 32, {"priority": "9"})
    assert not folder.exists()


def test_what_else_a_launcher_said_is_not_written(folder: Path) -> None:
    token = expect(Launches(folder))
    assert ":7" not in (folder / token).read_text()


def test_nobody_else_may_read_it(folder: Path) -> None:
    expect(Launches(folder))
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("token", ["", "0" * 32, "../launches/x", "A" * 32, "0" * 31 + "/"])
def test_a_token_that_nobody_gave_is_nothing(folder: Path, token: str) -> None:
    kept = Launches(folder)
    expect(kept)
    (folder.parent / "x").write_text('{"uid": 0, "said": {}}')
    assert kept.find(token) is None


@given(content=st.binary(max_size=5000))
def test_a_file_of_whatever_makes_no_wish_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("launches")
    (folder / ("0" * 32)).write_bytes(content)
    assert Launches(folder).find("0" * 32) is None


@pytest.mark.parametrize(
    "content",
    [
        '{"uid": 1, "lives": [[0, 0], [0, 0]], "said": []}',
        '{"uid": 1, "said": {}}',
        '{"uid": 1, "lives": [[0, 0]], "said": {}}',
        '{"uid": "x", "lives": [[0, 0], [0, 0]], "said": {}}',
        '{"lives": [[0, 0], [0, 0]], "said": {}}',
        '{"uid": 1, "lives": [[0, 0], [0, 0]], "said": {"priority": "highest"}}',
        '{"uid": 1, "lives": [[0, 0], [0, 0]], "said": {"reserve": "9ms/1ms"}}',
        "[" * 4000,
    ],
)
def test_a_file_that_says_something_wrong_counts_for_nothing(
    folder: Path, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    (folder / ("0" * 32)).write_text(content)
    assert Launches(folder).find("0" * 32) is None
    assert capfd.readouterr().err.count("counts for nothing") == 1


def test_a_file_that_says_nothing_wrong_counts(folder: Path) -> None:
    folder.mkdir()
    (folder / ("0" * 32)).write_text('{"uid": 1, "lives": [[0, 0], [0, 0]], "said": {}}')
    assert Launches(folder).find("0" * 32) == TaskOptions(uid=1)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / ("0" * 32))
    assert Launches(folder).find("0" * 32) is None


def test_where_nothing_can_be_written_this_daemon_knows_it_all_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    kept = Launches(tmp_path / "file" / "launches")
    token = expect(kept)
    assert kept.find(token) is not None
    assert "a later daemon will not know" in capfd.readouterr().err


# -- forgetting ----------------------------------------------------------------------------------


def grow_old(folder: Path, token: str) -> None:
    long_ago_s = time.time() - KEPT_S - 1
    os.utime(folder / token, (long_ago_s, long_ago_s))


OURSELVES, DEAD = launches.life(os.getpid()), (os.getpid(), 1)


def test_old_launches_are_forgotten_unless_their_process_lives(folder: Path) -> None:
    """The one that was launched, or the last that showed the token."""
    chosen, before = requests.task_options({}, UID), Launches(folder)
    new, old = before.expect(chosen, {}, DEAD), before.expect(chosen, {}, DEAD)
    alive, shown = before.expect(chosen, {}, OURSELVES), before.expect(chosen, {}, DEAD)
    before.find(alive, DEAD)
    before.find(shown, OURSELVES)
    for token in (old, alive, shown):
        grow_old(folder, token)
    for name in ("somebody's", f"{old}.new"):
        (folder / name).touch()
        grow_old(folder, name)
    after = Launches(folder)
    after.tidy()
    assert {file.name for file in folder.iterdir()} == {new, alive, shown, "somebody's"}
    assert after.find(old) is None


def test_old_launches_are_forgotten_in_a_long_life_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Launches(folder)
    old = kept.expect(requests.task_options({}, UID), {}, DEAD)
    monkeypatch.setattr(launches, "KEPT_S", -1.0)
    expect(kept)
    assert kept.find(old) is None


def test_of_too_many_that_daemons_before_knew_the_oldest_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [expect(Launches(folder)) for _ in range(5)]
    for age_s, token in enumerate(reversed(tokens)):
        os.utime(folder / token, (time.time() - age_s, time.time() - age_s))
    monkeypatch.setattr(launches, "MOST", 3)
    after = Launches(folder)
    after.tidy()
    assert [after.find(token) is not None for token in tokens] == [False, False, True, True, True]


def test_of_too_many_of_a_user_those_go_whose_processes_have(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "MOST_OF_USER", 3)
    kept, chosen = Launches(folder), requests.task_options({}, UID)
    other = kept.expect(requests.task_options({}, UID + 1), {}, DEAD)
    honest = kept.expect(chosen, {}, OURSELVES)
    flood = [kept.expect(chosen, {}, DEAD) for _ in range(100)]
    assert kept.find(honest) is not None, "its process lives"
    assert kept.find(other) is not None, "it is another user's"
    assert [kept.find(token) is not None for token in flood[-3:]] == [False, True, True]
    assert len(list(folder.iterdir())) == 4


def test_a_user_whose_launches_all_run_hears_that_there_is_no_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "MOST_OF_USER", 3)
    kept, chosen = Launches(folder), requests.task_options({}, UID)
    tokens = [kept.expect(chosen, {}, OURSELVES) for _ in range(3)]
    with pytest.raises(Refusal, match="3 programs that this user launched run"):
        kept.expect(chosen, {}, OURSELVES)
    assert all(kept.find(token) is not None for token in tokens)
    kept.expect(requests.task_options({}, UID + 1), {}, OURSELVES)


def test_a_wish_that_cannot_be_is_refused_with_what_was_expected() -> None:
    with pytest.raises(Refusal, match="policy: found 'best', expected one of"):
        requests.task_options({"policy": "best"}, UID)


# -- what processes say of themselves --------------------------------------------------------------


def test_the_next_daemon_knows_what_processes_said_of_themselves(tmp_path: Path) -> None:
    who = OURSELVES
    first = Claims(tmp_path / "claims")
    for priority in ("3", "7"):
        first.begin(who, requests.task_options({"priority": priority}, UID), {"priority": priority})
    second = Claims(tmp_path / "claims")
    assert [chosen.priority and chosen.priority.level for chosen in second.of(who)] == [3, 7]
    second.end(who)
    assert len(Claims(tmp_path / "claims").of(who)) == 1
    second.end(who)
    second.end(who)
    assert Claims(tmp_path / "claims").of(who) == second.of(who) == []


def test_what_the_dead_said_is_forgotten(tmp_path: Path) -> None:
    for who in (OURSELVES, DEAD):
        Claims(tmp_path / "claims").begin(who, requests.task_options({}, UID), {})
    for name in ("somebody's", "{}.{}.new".format(*OURSELVES)):
        (tmp_path / "claims" / name).touch()
    Claims(tmp_path / "claims").tidy()
    left = {file.name for file in (tmp_path / "claims").iterdir()}
    assert left == {"{}.{}".format(*OURSELVES), "somebody's"}


def test_a_process_may_say_only_so_much_of_itself(tmp_path: Path) -> None:
    who, kept = OURSELVES, Claims(tmp_path / "claims")
    for _ in range(launches.MAX_CLAIMS + 5):
        kept.begin(who, requests.task_options({}, UID), {})
    assert len(kept.of(who)) == len(Claims(tmp_path / "claims").of(who)) == launches.MAX_CLAIMS


@pytest.mark.parametrize(
    "content",
    ['{"uid": 1, "said": []}', '{"uid": 1, "said": [7]}', '{"uid": 1, "said": {"a": 1}}', "7"],
)
def test_claims_that_say_something_wrong_count_for_nothing(
    tmp_path: Path, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
    who = OURSELVES
    (tmp_path / "{}.{}".format(*who)).write_text(content)
    assert Claims(tmp_path).of(who) == []
    assert "counts for nothing" in capfd.readouterr().err
