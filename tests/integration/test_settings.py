"""The settings file: who reads it, what it may say, and what `headway config` does with it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.engine.reading import Table
from headway.engine.spec import parse_spec
from headway.live.api.client import ask
from headway.view.settings import daemon_options
from tests.integration.command import HEADWAY, ROOT, headway
from tests.integration.daemon_client import wait_until

EXAMPLE = (ROOT / "examples" / "headway.toml").read_text()


def said(text: str) -> str:
    """The example with every line that is commented out, one table of each kind."""
    return re.sub(r"^# (?=\[|[a-z-]+ = )", "", text, flags=re.MULTILINE)


class Home:
    """A user's settings, and a folder for the daemon."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "config" / "headway" / "headway.toml"
        self.run_folder = folder / "run"
        self.env = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "HEADWAY_DIR": str(self.run_folder),
        }
        self.env.pop("DISPLAY", None)

    def write(self, text: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text)

    def headway(self, *words: str) -> subprocess.CompletedProcess[str]:
        return headway(*words, env=self.env)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = ask(self.run_folder, {"do": "status"})["status"]
        return status


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_example_explains_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that the reader of specs asks for, and every option of the daemon for [daemon]."""
    asked: set[str] = set()
    take: Callable[[Table, str], Any] = Table.take

    def noting(table: Table, key: str) -> Any:
        if table.path[:1] not in (("policy",), ("predict",)):
            asked.add(key)
        return take(table, key)

    monkeypatch.setattr(Table, "take", noting)
    parse_spec(said(EXAMPLE))
    named = set(re.findall(r"^#? ?\[*([a-z-]+)(?:\]|\s*=)", EXAMPLE, re.MULTILINE))
    named |= set(re.findall(r"\b(\w+) = \"", EXAMPLE))
    assert asked <= named
    assert {*daemon_options()} <= named


def test_init_writes_what_changes_nothing_and_show_reads_it(home: Home) -> None:
    assert home.headway("config", "path").stdout == f"{home.file}\n"
    assert "everything is at its default" in home.headway("config", "show").stdout
    made = home.headway("config", "init")
    assert made.returncode == 0
    assert home.file.read_text() == EXAMPLE
    assert home.headway("config", "show").stdout == f"{home.file}: fine, 0 entries\n"
    again = home.headway("config", "init")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


def test_edit_opens_the_editor_and_tells_what_is_wrong(home: Home, tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\necho \'windoww = "1ms"\' >> "$2"\n')
    editor.chmod(0o755)
    home.env["EDITOR"] = f"'{editor}' --wait"
    done = home.headway("config", "edit")
    assert done.returncode == 2
    assert "windoww" in done.stderr
    assert "window" in done.stderr.split("expected")[1]


def test_a_daemon_that_starts_itself_reads_them(home: Home) -> None:
    """Its own options, and what a program gets by its name."""
    socket = home.run_folder / "metrics.sock"
    home.write(
        f'[daemon]\nmetrics = "unix:{socket}"\ndisplay = "none"\n'
        '[[task]]\nname = "sh"\npriority = 7\nreserve = "5ms/20ms:ae"\nperiod = "33ms"\n'
    )
    look = f"test -S {socket} && {HEADWAY} status --json"
    done = home.headway("run", "--require", "--", "sh", "-c", look)
    assert done.returncode == 0, done.stderr
    assert str(home.run_folder) in done.stdout


def test_a_daemon_takes_up_settings_that_come_later(home: Home) -> None:
    command: list[str] = [str(HEADWAY), "daemon", "--window", "1ms", "--slowdown", "20%"]
    command += ["--profile", "h200"]
    daemon = subprocess.Popen(command, env=home.env, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: (home.run_folder / "control.sock").exists(), "it serves")
        status = home.status()
        assert not status["spec_problem"]
        assert (status["window_ns"], status["slowdown"]) == (1_000_000, 0.2)
        assert status["gpus"][0]["profile"] == "NVIDIA H200"
        home.write('[[task]]\nname = "a"\nreserve = "5ms/4ms"\n')
        assert home.headway("config", "check", str(home.file)).returncode == 2
        answer = home.headway("config", "show")
        assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
        assert "expected a capacity above zero and at most the period" in answer.stderr
    finally:
        daemon.terminate()
        _, err = daemon.communicate(timeout=20)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[daemon]\ncpu = "x"\n', "daemon.cpu: found 'x', expected another value"),
        ("[daemon]\nmps = 1\n", "daemon.mps: found 1, expected true or false"),
        ("[daemon]\nuntil-idle = true\n", "found the unknown key 'until-idle'"),
        ("[daemon]\ncpu = [1]\n", "daemon.cpu: found [1], expected what the option takes"),
        ('[[task]]\nname = "a"\nreserve = "5ms"\n', 'expected a reserve such as "5ms/20ms"'),
        ('[[task]]\nname = "a"\ndeadline = 3\n', "deadline: found 3"),
        ("[allow]\nusers = [1]\n", 'expected a list of user names such as ["anna"]'),
    ],
)
def test_wrong_settings_are_one_line_that_names_the_key(home: Home, text: str, why: str) -> None:
    """For the daemon, and for a program that would have started it, which runs all the same."""
    home.write(text)
    shown = home.headway("config", "show")
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert why in shown.stderr
    daemon = home.headway("daemon")
    assert (daemon.returncode, daemon.stderr) == (2, shown.stderr)


def test_a_program_runs_whatever_the_settings_are(home: Home) -> None:
    home.write("[daemon]\nmps = 1\n")
    ran = home.headway("run", "--", "echo", "here")
    assert (ran.returncode, ran.stdout) == (0, "here\n")
    assert "daemon.mps" in ran.stderr
    assert "it runs unmanaged" in ran.stderr


def test_settings_that_others_may_write_are_not_read(home: Home) -> None:
    home.write("")
    home.file.chmod(stat.S_IMODE(home.file.stat().st_mode) | 0o002)
    daemon = home.headway("daemon")
    assert (daemon.returncode, daemon.stderr.count("\n")) == (2, 1)
    assert "chmod go-w" in daemon.stderr
