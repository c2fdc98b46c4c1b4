"""The prompt of `headway shell`: CudaMon's commands (§4.4), and a few more."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import click

from headway.engine.shares import percent
from headway.live.api import client
from headway.live.launched.program import Program, StartError
from headway.live.launched.supervisor import TaskError
from headway.live.wire.paths import user_folder
from headway.view import launching
from headway.view.errors import UserError, say

HELP = """\
launch PRIO [--name N] [--share 25%..100%] PATH [ARGUMENTS]
                          start a program; PRIO is larger for more important
ls                        tasks, their shares, jobs and misses
set NAME [--priority P] [--share 25%..100%]
                          change a task while it runs
kill NAME [--force]       ask a task to end; --force: at once, wherever it is
wait                      until every task of this shell has ended
help                      this
quit                      ask every task to end, and end"""
HISTORY = 1000
"""Lines that are kept for the next shell."""


class _Quit(Exception):
    """A person wants to leave."""


class Shell:
    """Reads commands; a supervisor in a thread of its own does them."""

    def __init__(self, *, gated: bool, patience: str) -> None:
        self._supervisor = launching.supervisor(
            self._ended, gated=gated, stdin=subprocess.DEVNULL, patience=patience
        )
        run = self._supervisor.run
        self._thread = threading.Thread(target=lambda: run(until_idle=False), daemon=True)
        self._idle = threading.Condition()
        self._running = 0
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "launch": self._launch,
            "ls": self._ls,
            "set": self._set,
            "kill": self._kill,
            "wait": self._wait,
            "help": lambda words: click.echo(HELP),
            "quit": self._quit,
            "exit": self._quit,
        }

    def __enter__(self) -> Shell:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._leave)
        self._thread.start()
        return self

    def _leave(self, *_: object) -> None:
        raise _Quit

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """Every program is asked to end, and waited for as far as it does."""
        self._supervisor.post(self._supervisor.end_all)
        self._thread.join()

    # -- lines -------------------------------------------------------------------------------

    def serve(self, stdin: TextIO) -> int:
        """Do what the lines say, to the last; the exit code."""
        wrong = 0
        try:
            lines = _prompted(self) if stdin.isatty() else iter(stdin)
            for line in lines:
                wrong += not self.obey(line)
            if not stdin.isatty():
                self._wait([])
        except _Quit:
            pass
        return int(wrong > 0 and not stdin.isatty())

    def obey(self, line: str) -> bool:
        """Do what one line says; a mistake in it is one line on stderr."""
        try:
            words = shlex.split(line, comments=True)
            if not words:
                return True
            command = self._commands.get(words[0])
            if command is None:
                known = ", ".join(name for name in self._commands if name != "exit")
                raise UserError(f"found {words[0]!r}, expected one of {known}")
            command(words[1:])
        except (TaskError, StartError, UserError, client.NoDaemon, ValueError) as error:
            say(f"headway shell: {error}")
            return False
        return True

    # -- commands ----------------------------------------------------------------------------

    def _launch(self, words: list[str]) -> None:
        options, rest = _options(words, "--name", "--share", leading=1)
        if len(rest) < 2:
            raise UserError("launch: expected a priority and a program, as in launch 5 ./a.out")
        level, shares = launching.priority(rest[0]), launching.share(options.get("--share"))
        path = launching.program(rest[1])
        name = options.get("--name") or launching.default_name(path)
        with self._idle:
            self._running += 1
        try:
            launch = self._supervisor.launch
            self._supervisor.call(lambda: launch(name, level, shares, path, rest[1:]))
        except BaseException:
            self._gone()
            raise

    def _ls(self, words: list[str]) -> None:
        _none(words, "ls")
        told = self._supervisor.call(self._supervisor.everybody)
        own = self._supervisor.call(lambda: dict(self._supervisor.programs))
        rows = [_row(task, own.get(task["task"])) for task in told["tasks"]]
        heads = ("TASK", "PRIO", "SHARE", "RANGE", "JOBS", "MISSED", "STARTS", "STATE")
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        for row in (heads, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip())

    def _set(self, words: list[str]) -> None:
        options, rest = _options(words, "--priority", "--share", leading=len(words))
        if len(rest) != 1 or not options:
            raise UserError(
                "set: expected a task, and --priority or --share, as in set lp --share 50%"
            )
        shares = options.get("--share")
        launching.share(shares)
        level = options.get("--priority")
        number = None if level is None else launching.priority(level)
        self._supervisor.call(lambda: self._supervisor.set(rest[0], number, shares))

    def _kill(self, words: list[str]) -> None:
        force = "--force" in words
        rest = [word for word in words if word != "--force"]
        if len(rest) != 1:
            raise UserError("kill: expected one task, as in kill lp")
        self._supervisor.call(lambda: self._supervisor.end(rest[0], force=force))

    def _wait(self, words: list[str]) -> None:
        _none(words, "wait")
        with self._idle:
            while self._running and self._thread.is_alive():
                self._idle.wait(0.2)  # a signal is to be heard

    def _quit(self, words: list[str]) -> None:
        _none(words, "quit")
        raise _Quit

    # -- their ends --------------------------------------------------------------------------

    def _ended(self, program: Program) -> None:
        say(launching.describe_end(program))
        self._gone()

    def _gone(self) -> None:
        with self._idle:
            self._running -= 1
            self._idle.notify_all()

    def names(self) -> list[str]:
        return list(self._supervisor.programs)

    @property
    def commands(self) -> list[str]:
        return list(self._commands)


def _row(task: dict[str, Any], own: Program | None) -> tuple[str, ...]:
    share = percent(task["share"])
    if task["wanted"] != task["share"]:
        share += f" -> {percent(task['wanted'])}"
    return (
        task["task"],
        str(task["priority"]),
        share,
        task["range"],
        str(task["jobs"]),
        str(task["misses"]),
        "-" if own is None else str(own.starts),
        "of another launcher" if own is None else own.state.value,
    )


def _none(words: list[str], command: str) -> None:
    if words:
        raise UserError(f"{command}: found {words[0]!r}, expected nothing more")


def _options(words: list[str], *known: str, leading: int) -> tuple[dict[str, str], list[str]]:
    """Options, up to where the program's own words begin, and the rest. `leading`: so many words
    that are no options may stand between them."""
    options: dict[str, str] = {}
    rest: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if word.startswith("--") and len(rest) <= leading:
            key, equals, value = word.partition("=")
            if key not in known:
                raise UserError(f"found {word!r}, expected one of {', '.join(known)}")
            if not equals and not words:
                raise UserError(f"{key}: expected a value")
            options[key] = value if equals else words.pop(0)
        elif len(rest) >= leading:
            words.insert(0, word)
            break
        else:
            rest.append(word)
    return options, rest + words


# -- the prompt ----------------------------------------------------------------------------------


def _prompted(shell: Shell) -> Iterator[str]:
    """Lines from a person, with history and completion."""
    with _history(), _completion(shell):
        while True:
            try:
                yield input("headway> ")
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo()


@contextlib.contextmanager
def _history() -> Iterator[None]:
    import readline

    file = user_folder("XDG_STATE_HOME", ".local/state") / "headway" / "shell_history"
    readline.set_history_length(HISTORY)
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(file)


@contextlib.contextmanager
def _completion(shell: Shell) -> Iterator[None]:
    import readline

    def complete(text: str, state: int) -> str | None:
        before = readline.get_line_buffer()[: readline.get_begidx()]
        found = completions(shell, before, text)
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")
    yield


def completions(shell: Shell, before: str, text: str) -> list[str]:
    """What may stand where the person types: commands, tasks, options or files."""
    words = before.split()
    if not words:
        return [name + " " for name in shell.commands if name.startswith(text)]
    if words[0] in ("kill", "set") and len(words) == 1:
        return [name + " " for name in shell.names() if name.startswith(text)]
    options = {
        "launch": ["--name", "--share"],
        "set": ["--priority", "--share"],
        "kill": ["--force"],
    }.get(words[0], [])
    if text.startswith("-"):
        return [name + " " for name in options if name.startswith(text)]
    return _files(text) if words[0] == "launch" and len(words) > 1 else []


def _files(text: str) -> list[str]:
    folder, _, beginning = text.rpartition("/")
    place = Path(folder + "/").expanduser() if "/" in text else Path()
    prefix = folder + "/" if "/" in text else ""
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return []
    return [
        prefix + entry.name + ("/" if entry.is_dir() else " ")
        for entry in entries
        if entry.name.startswith(beginning)
    ]
