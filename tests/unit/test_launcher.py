"""What a daemon's answer may do to a program, where the interposer may lie, and which programs do
not take it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.engine.priorities import parse_priority
from headway.live.api import isolated
from headway.live.devices.mps import Mps
from headway.live.identity import launcher
from headway.live.identity.program import (
    NOT_FOUND,
    NOT_STARTED,
    ProgramError,
    find_program,
    why_not_all,
    why_not_interposed,
)
from headway.live.wire import paths

FOLDER = Path("/run/user/1000/headway")
TOKEN = "0123456789abcdef" * 2
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
CLIENT_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        yield Path(folder)


# -- the answer ------------------------------------------------------------------------------------


def test_an_answer_is_read_by_its_known_keys() -> None:
    mps = {PIPES: f"{FOLDER}/mps", LOGS: f"{FOLDER}/mps", CLIENT_PRIORITY: "1"}
    answer = {"ok": True, "token": TOKEN, "software_gpu": 3, "time_namespace": 7}
    told = launcher.read_answer({**answer, "environment": mps, "more": "is no matter"}, FOLDER)
    assert told == launcher.Told(TOKEN, 3, 7, mps)


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": None},
        {"token": "$(reboot)"},
        {"token": TOKEN + "\n"},
        {"software_gpu": "0"},
        {"software_gpu": -1},
        {"software_gpu": True},
        {"time_namespace": "4026531834"},
        {"environment": {"LD_PRELOAD": "/tmp/evil.so"}},
        {"environment": {"PATH": "/tmp"}},
        {"environment": {PIPES: "/tmp/another"}},
        {"environment": {CLIENT_PRIORITY: "2"}},
        {"environment": {PIPES: ["a list"]}},
        {"environment": "LD_PRELOAD=/tmp/evil.so"},
    ],
    ids=str,
)
def test_an_answer_of_another_form_is_refused_as_a_whole(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(its|it sets)"):
        launcher.read_answer({"token": TOKEN, **wrong}, FOLDER)


# -- the place of the interposer -------------------------------------------------------------------


def interposer_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the interposer there, which is the one that is found from now on."""
    real = launcher.library()
    folder.mkdir()
    copy = folder / "libheadway.so"
    shutil.copy(real, copy)
    monkeypatch.setattr(launcher, "library", lambda: copy)
    return copy


@pytest.mark.parametrize(
    ("said", "level"),
    [(9, "0"), (5, "0"), ("*", "0"), ("edf", "0"), (4, "1"), (1, "1"), (0, "1"), (-1, "1")],
    ids=str,
)
def test_programs_that_must_be_on_time_have_the_better_client_priority_under_mps(
    said: int | str, level: str
) -> None:
    assert Mps(FOLDER).environment_of(parse_priority(said))[CLIENT_PRIORITY] == level


def test_without_a_priority_a_program_is_one_of_the_rest() -> None:
    assert Mps(FOLDER).environment_of(None)[CLIENT_PRIORITY] == "1"


def test_a_client_priority_that_a_person_chose_stays(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = Mps(place).environment_of(parse_priority(1))
    env = launcher.environment(place, TOKEN, software_gpu=None, more=more)
    assert env[CLIENT_PRIORITY] == "1"
    monkeypatch.setenv(CLIENT_PRIORITY, "0")
    env = launcher.environment(place, TOKEN, software_gpu=None, more=more)
    assert env[CLIENT_PRIORITY] == "0"


MAPS = "print('/libheadway.so' in open('/proc/self/maps').read())"


@pytest.mark.parametrize("name", ["plain", "with space", "with:colon", "$LIB", "a\ttab", "ünï"])
def test_the_interposer_is_loaded_wherever_it_lies(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    interposer_in(place / name, monkeypatch)
    monkeypatch.chdir(place)
    env = launcher.environment(place / "run", TOKEN, software_gpu=None)
    done = subprocess.run(
        [sys.executable, "-c", MAPS], env=env, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert why_not_all(sys.executable, launcher.preloadable(place / "run"), env) is None


def test_what_was_preloaded_before_still_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interposer_in(place / "with space", monkeypatch)
    monkeypatch.setenv("LD_PRELOAD", "/own/one.so /own/two.so:/own/three.so")
    env = launcher.environment(place / "run", TOKEN, software_gpu=None)
    ours, _, own = env["LD_PRELOAD"].partition(":")
    assert Path(ours).parent == place / "run"
    assert own == "/own/one.so /own/two.so:/own/three.so"


def test_a_link_to_the_interposer_is_made_once_and_mended(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = interposer_in(place / "with space", monkeypatch)
    link = launcher.preloadable(place / "run")
    number = link.lstat().st_ino
    assert launcher.preloadable(place / "run") == link
    assert link.lstat().st_ino == number
    link.unlink()
    link.symlink_to("/somewhere/else")
    assert launcher.preloadable(place / "run") == link
    assert link.readlink() == copy
    assert [path.name for path in (place / "run").iterdir()] == [link.name]


def test_a_runtime_folder_that_cannot_stand_in_a_list_gives_its_place_to_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interposer_in(place / "with space", monkeypatch)
    monkeypatch.setattr(paths, "fallback", lambda: place / "other")
    assert launcher.preloadable(place / "run: here").parent == place / "other"
    monkeypatch.setattr(paths, "fallback", lambda: place / "one more: here")
    with pytest.raises(launcher.LaunchError, match="cannot stand in LD_PRELOAD"):
        launcher.preloadable(place / "run: here")


def test_a_loader_that_does_not_take_the_library_is_found_out(place: Path) -> None:
    broken = place / "libheadway.so"
    broken.write_text("no library")
    env = {**os.environ, "LD_PRELOAD": str(broken)}
    why = why_not_all(sys.executable, broken, env)
    assert why is not None
    assert f"does not put {broken} before it" in why
    assert "cannot be preloaded" in why
    script = place / "script"
    script.write_text("#!/usr/bin/env sh\n")
    assert "does not put" in str(why_not_all(str(script), broken, env))
    assert "no program" in str(why_not_all(str(broken), broken, env))


# -- programs --------------------------------------------------------------------------------------


def test_a_program_of_another_c_library_or_processor_is_left_alone(place: Path) -> None:
    """With a library of the wrong kind before it, it would not even start."""
    whole = bytearray(Path(shutil.which("true") or "/bin/true").read_bytes())
    library = launcher.library()

    def judged(data: bytearray) -> str | None:
        program = place / "program"
        program.write_bytes(data)
        return why_not_interposed(str(program), library)

    assert judged(whole) is None
    loader = whole.index(b"/ld-linux") + 1
    musl = whole[:loader] + b"ld-musl-" + whole[loader + 8 :]
    assert "another than the interposer's" in str(judged(musl))
    assert "another kind of processor" in str(judged(whole[:18] + b"\xf3\0" + whole[20:]))


def test_scripts_are_as_their_interpreters_are(place: Path) -> None:
    static = place / "static"
    (place / "source.c").write_text("int main(void) { return 0; }")
    subprocess.run(["gcc", "-static", "-o", static, place / "source.c"], check=True)
    script = place / "script"
    script.write_text(f"#!{static}\n")
    for program in (static, script):
        assert "statically" in str(why_not_interposed(str(program), launcher.library()))


def test_a_program_that_is_not_there_is_told_from_one_that_may_not_run(place: Path) -> None:
    plain = place / "plain"
    plain.touch()
    for command, code in (
        ("no-such-program-anywhere", NOT_FOUND),
        (str(place / "none"), NOT_FOUND),
        ("", NOT_FOUND),
        (str(plain), NOT_STARTED),
        (str(place), NOT_STARTED),
    ):
        with pytest.raises(ProgramError) as raised:
            find_program(command)
        assert raised.value.code == code, command


# -- Pythons of Headway's own ----------------------------------------------------------------------


def test_what_is_meant_for_others_does_not_reach_our_own_pythons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "PYTHONPATH": ".::/whole/path:relative:",
        "PYTHONSTARTUP": "/x.py",
        "PYTHONINSPECT": "1",
        "PYTHONUSERBASE": "/user/base",
        "LD_PRELOAD": "/x.so",
        "OPENCL_LAYERS": "/x.so",
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": "1",
        "LISTEN_FDS": "1",
        "HEADWAY_TOKEN": TOKEN,
        "DISPLAY": ":7",
    }.items():
        monkeypatch.setenv(name, value)
    env = isolated.environment(HEADWAY_DIR="/here")
    assert env["PYTHONPATH"] == "/whole/path"
    assert env["PYTHONUSERBASE"] == "/user/base"
    assert env["DISPLAY"] == ":7"
    assert env["HEADWAY_DIR"] == "/here"
    gone = {"PYTHONSTARTUP", "PYTHONINSPECT", "LD_PRELOAD", "OPENCL_LAYERS", "NOTIFY_SOCKET"}
    gone |= {"WATCHDOG_USEC", "LISTEN_FDS", "HEADWAY_TOKEN"}
    assert not gone & env.keys()
    monkeypatch.setenv("PYTHONPATH", ".")
    assert "PYTHONPATH" not in isolated.environment()
