"""What holds for every command: help, wrong options, no daemon, output that cannot be written,
folders that cannot be written to. Never a traceback, and never more than it takes to say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headway.view.cli import COMMANDS
from headway.view.cli import headway as group
from tests.integration.command import HEADWAY, ROOT
from tests.integration.daemon_client import running_daemon
from tests.integration.zygote import CLOSED, FULL, Result, Zygote

BOMBS = ROOT / "examples" / "bombs.toml"
SHORT = """run.duration = "20ms"  # enough groups for predictions to be judged
[[task]]
name = "a"
periodic = { period = "1ms", cost = "0.5ms" }
"""
NOWHERE = "/dev/null/folder"


def all_commands() -> list[tuple[str, ...]]:
    """Every command, with those that are made of commands and what they are made of."""
    found: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        found.append((name,))
        command = the_command((name,))
        if isinstance(command, click.Group):
            found += [(name, part) for part in command.commands]
    return found


def the_command(words: tuple[str, ...]) -> click.Command:
    command: click.Command = group
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


ALL = all_commands()
GROUPS = [words for words in ALL if isinstance(the_command(words), click.Group)]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Path:
    """A folder with a short scenario and its trace."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "short.toml").write_text(SHORT)
    made = zygote.run("sim", "short.toml", "--trace", "run.pftrace", cwd=folder)
    assert made.code == 0, made.err
    return folder


def lines(result: Result) -> list[str]:
    assert "Traceback" not in result.err + result.out
    return result.err.splitlines()


# -- help and options ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_is_help(zygote: Zygote, tmp_path: Path, words: tuple[str, ...]) -> None:
    result = zygote.run(*words, "--help", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Usage: {' '.join(('headway', *words))}")
    if words in GROUPS:
        bare = zygote.run(*words, cwd=tmp_path)
        assert bare == result


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_an_unknown_option_is_told_with_the_nearest_real_one(
    zygote: Zygote, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Of every option, without its last two letters, and with two changed."""
    command = the_command(words)
    parameters = command.get_params(click.Context(command))
    real = [o for p in parameters for o in p.opts if o.startswith("--") and len(o) > 6]
    for option in real:
        for wrong in (option[:-2], option[:3] + option[4] + option[3] + option[5:]):
            if wrong in real:
                continue
            result = zygote.run(*words, wrong, "x", cwd=tmp_path)
            (line,) = lines(result)
            assert result.code == 2
            assert result.out == ""
            assert f"no such option {wrong}; did you mean --" in line
            meant = line.split("did you mean ")[1].split("?")[0]
            assert meant == option or meant.startswith(wrong), line
    (line,) = lines(zygote.run(*words, "--qqqqqq", cwd=tmp_path))
    assert "no such option --qqqqqq. Run" in line


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_an_unknown_command_is_told_with_the_nearest_real_one(
    zygote: Zygote, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command = the_command(words)
    assert isinstance(command, click.Group)
    for name in command.list_commands(click.Context(command)):
        result = zygote.run(*words, f"{name}x", cwd=tmp_path)
        (line,) = lines(result)
        assert result.code == 2
        assert f"no such command {name}x; did you mean {name}?" in line


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_policies_and_programs_are_completed_wherever_they_are_asked_for(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = the_command(words)
    context = click.Context(command)
    (tmp_path / "prt-program").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for parameter in command.params:
        found = [item.value for item in parameter.shell_complete(context, "prt")]
        if "--policy" in parameter.opts:
            assert "prt" in found
        elif parameter.name == "command_line":
            assert "prt-program" in found


# -- names -----------------------------------------------------------------------------------------

ODD = "q[/bold] x:y $a_$ :bug:"
"""Blanks, a colon, what Rich takes for markup and emoji and Matplotlib for a formula; and a folder,
q[, because of the slash."""


def test_names_mean_nothing_but_themselves(zygote: Zygote, tmp_path: Path) -> None:
    """Of files and of tasks."""
    (tmp_path / "q[").mkdir()
    (tmp_path / f"{ODD}.toml").write_text(SHORT.replace('"a"', f'"{ODD}"'))
    trace = f"{ODD}.pftrace"
    for words in (
        ("sim", f"{ODD}.toml", "--trace", trace, "--plot", f"{ODD}.png"),
        ("compare", f"{ODD}.toml"),
        ("check", trace),
        ("replay", trace, "--write", f"{ODD}.2.toml"),
        ("plot", trace, "-o", f"{ODD} pictures", "--what", "timeline,shares"),
        ("report", trace, "-o", f"{ODD}.html"),
        ("config", "check", str(ROOT / "examples" / "desktop.toml")),
    ):
        result = zygote.run(*words, cwd=tmp_path)
        assert (result.code, lines(result)) == (0, [])
        if words[0] not in ("check", "config"):
            assert ODD in result.out, words
    made = {path.name for path in (tmp_path / "q[").iterdir()}
    assert made == {
        f"{ODD}{end}"[3:] for end in (".toml", ".pftrace", ".png", ".2.toml", " pictures", ".html")
    }


def test_names_of_programs_that_run_mean_nothing_but_themselves(
    zygote: Zygote, tmp_path: Path
) -> None:
    """A program chooses its own."""
    with running_daemon(tmp_path / "r") as daemon, daemon.client(ODD):
        env = {"HEADWAY_DIR": str(daemon.folder), "COLUMNS": "200"}
        for command in (("ps",), ("status",), ("top", "--once"), ("explain", ODD)):
            result = zygote.run(*command, cwd=tmp_path, env=env)
            assert (result.code, lines(result)) == (0, [])
            assert ODD in result.out, command


# -- no daemon -------------------------------------------------------------------------------------

ASKS = {
    "explain": ("explain", "1"),
    "ps": ("ps",),
    "set": ("set", "1", "--priority", "1"),
    "status": ("status",),
    "stop": ("stop",),
    "top": ("top", "--once"),
    "trace": ("trace", "-o", "t.pftrace"),
}


@pytest.mark.parametrize("command", ASKS)
@pytest.mark.parametrize("folder", ["none", "left behind", "not to be trusted"])
def test_without_a_daemon_a_command_says_so_in_one_line(
    zygote: Zygote, tmp_path: Path, command: str, folder: str
) -> None:
    place = tmp_path
    if folder == "left behind":  # by a daemon that was killed
        place = tmp_path / "x"
        place.mkdir(mode=0o700)
        code = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
        relative = subprocess.run(["python3", "-c", code, "control.sock"], cwd=place, check=False)
        assert relative.returncode == 0
    if folder == "not to be trusted":
        place = tmp_path / "x"
        place.mkdir()
        place.chmod(0o777)
    result = zygote.run(*ASKS[command], cwd=tmp_path, env={"HEADWAY_DIR": str(place)})
    (line,) = lines(result)
    assert result.code == 1
    assert line.startswith("headway")
    assert not (tmp_path / "t.pftrace").exists()


# -- output that cannot be written -----------------------------------------------------------------

PRINTS = {
    "analyse": ("analyse", str(ROOT / "examples" / "gpusync.toml")),
    "check": ("check", "run.pftrace"),
    "compare": ("compare", "short.toml"),
    "compare --json": ("compare", "short.toml", "--json"),
    "completion": ("completion", "bash"),
    "config": ("config", "check", str(ROOT / "examples" / "desktop.toml")),
    "examples": ("examples",),
    "locks": ("locks", str(ROOT / "examples" / "locks" / "donation.json")),
    "papers": ("papers", "list"),
    "plot": ("plot", "run.pftrace", "-o", "pictures", "--what", "waits"),
    "policies": ("policies",),
    "predict": ("predict", "compare", "run.pftrace"),
    "replay": ("replay", "run.pftrace"),
    "report": ("report", "run.pftrace", "-o", "page.html"),
    "sim": ("sim", "short.toml"),
    "sim --json": ("sim", "short.toml", "--json"),
    "study": ("study", "acceptance", "--utilisation", "0.5:0.5:0.1", "--sets", "1"),
}
TABLES = {"analyse", "compare", "sim", "study"}
"""Those that print a table of names and numbers."""
SAYS_NOTHING = {
    "calibrate",
    "daemon",
    "doctor",
    "explain",
    "fleet",
    "launch",
    "ps",
    "run",
    "set",
    "shell",
    "status",
} | {
    "stop",
    "top",
    "trace",
    "web",
}
"""Those that need a daemon, or a while: their help is tried, and some in processes of their own."""


def test_every_command_is_tried() -> None:
    assert {*SAYS_NOTHING, *(words[0] for words in PRINTS.values())} == {*COMMANDS}


@pytest.mark.parametrize("out", [FULL, CLOSED])
@pytest.mark.parametrize("command", [*PRINTS, *sorted(SAYS_NOTHING)])
def test_output_that_cannot_be_written_is_one_line(
    zygote: Zygote, files: Path, command: str, out: str
) -> None:
    result = zygote.run(*PRINTS.get(command, (command, "--help")), cwd=files, out=out)
    (line,) = lines(result)
    assert result.code == 1
    why = os.strerror(28 if out == FULL else 9)
    assert line == f"headway: standard output: {why}"


@pytest.mark.parametrize("err", [FULL, CLOSED])
@pytest.mark.parametrize("command", [*PRINTS, *sorted(SAYS_NOTHING)])
def test_what_cannot_be_complained_about_is_done_all_the_same(
    zygote: Zygote, files: Path, command: str, err: str
) -> None:
    """And a mistake has its exit code."""
    words = PRINTS.get(command, (command, "--help"))
    result = zygote.run(*words, cwd=files, err=err)
    assert result.code == 0
    assert result.out == "" or "Traceback" not in result.out
    assert zygote.run(command.split()[0], "--qqqqqq", cwd=files, err=err) == Result(2, "", "")


@pytest.mark.parametrize("words", [("policies",), ("doctor", "--help"), ("ps",)], ids=" ".join)
@pytest.mark.parametrize(
    "redirection", [">&-", ">/dev/full", "2>&-", "2>/dev/full", "<&- >&- 2>&-"]
)
def test_a_shell_may_close_what_it_likes(
    words: tuple[str, ...], redirection: str, tmp_path: Path
) -> None:
    """The same with a whole start of Python."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirection}', HEADWAY, *words],
        env={**os.environ, "HEADWAY_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    fails = words == ("ps",) or ">" in redirection.replace("2>", "")
    assert done.returncode == int(fails)


def test_a_closed_stream_is_closed_in_the_program_too(tmp_path: Path) -> None:
    look = 'for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && touch "$0/$fd"; done; exit 3'
    command: list[str | Path] = [
        HEADWAY,
        "run",
        "-q",
        "--no-daemon",
        "--",
        "sh",
        "-c",
        look,
        tmp_path,
    ]
    closing = 'exec "$0" "$@" <&- >&-'
    done = subprocess.run(
        ["sh", "-c", closing, *command], env={**os.environ, "HEADWAY_DIR": NOWHERE}, check=False
    )
    assert done.returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


# -- narrow terminals, and no colours --------------------------------------------------------------

NARROW = 60


@pytest.mark.parametrize("command", [*PRINTS, *sorted(SAYS_NOTHING)])
def test_a_narrow_terminal_without_colours_gets_text_alone(
    zygote: Zygote, files: Path, command: str
) -> None:
    """Help and tables keep to its width: but for one word, a title, or JSON, which has no lines."""
    env = {"COLUMNS": str(NARROW), "NO_COLOR": "1"}
    for words in {PRINTS.get(command, (command, "--help")), (command.split()[0], "--help")}:
        result = zygote.run(*words, cwd=files, env=env)
        assert (result.code, lines(result)) == (0, [])
        assert "\x1b" not in result.out
        if words[-1] == "--help" or command in TABLES:
            wide = [line for line in result.out.splitlines() if len(line) > NARROW]
            assert not wide, wide


def test_programs_keep_their_names_in_a_narrow_terminal(zygote: Zygote, tmp_path: Path) -> None:
    with running_daemon(tmp_path / "r") as daemon, daemon.client("a-detector-of-cars"):
        env = {"HEADWAY_DIR": str(daemon.folder), "COLUMNS": str(NARROW), "NO_COLOR": "1"}
        for command in (("ps",), ("status",), ("top", "--once")):
            result = zygote.run(*command, cwd=tmp_path, env=env)
            assert (result.code, lines(result)) == (0, [])
            assert "\x1b" not in result.out
            rows = [line for line in result.out.splitlines() if "a-detector-of-cars" in line]
            assert rows, result.out
            assert all(len(row) <= NARROW for row in rows)


# -- folders that cannot be written to -------------------------------------------------------------

WRITES = {
    "compare": ("compare", "short.toml", "--plot", f"{NOWHERE}/p.png"),
    "daemon": ("daemon",),
    "daemon --trace": ("daemon", "--trace", f"{NOWHERE}/t.pftrace"),
    "daemon --metrics": ("daemon", "--metrics", f"unix:{NOWHERE}/m.sock"),
    "examples": ("examples", "--copy", f"{NOWHERE}/examples"),
    "papers": ("papers", "run", "timegraph/fig8", "--seeds", "1", "--plot", f"{NOWHERE}/p.png"),
    "plot": ("plot", "run.pftrace", "-o", f"{NOWHERE}/pictures"),
    "plot one": ("plot", "run.pftrace", "-o", f"{NOWHERE}/p.svg"),
    "replay": ("replay", "run.pftrace", "--write", f"{NOWHERE}/s.toml"),
    "report": ("report", "run.pftrace", "-o", f"{NOWHERE}/page.html"),
    "sim --plot": ("sim", "short.toml", "--plot", f"{NOWHERE}/p.png"),
    "sim --trace": ("sim", "short.toml", "--trace", f"{NOWHERE}/t.pftrace"),
    "trace": ("trace", "-o", f"{NOWHERE}/t.pftrace"),
}


@pytest.mark.parametrize("command", WRITES)
def test_a_folder_that_cannot_be_written_to_is_one_line(
    zygote: Zygote, files: Path, command: str
) -> None:
    """Even root cannot write there."""
    folder = NOWHERE if command == "daemon" else str(files / "run")
    result = zygote.run(*WRITES[command], cwd=files, env={"HEADWAY_DIR": folder})
    (line,) = lines(result)
    assert result.code in (1, 2)
    assert "/dev/null" in line
