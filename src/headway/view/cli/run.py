"""`headway run`"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from headway.view import completing
from headway.view.errors import UserError, say


@click.command(name="run", context_settings={"allow_interspersed_args": False})
@click.option("--name", help="What the program is called in top; by default its file or script.")
@click.option(
    "--policy",
    shell_complete=completing.policies,
    help="A scheduling policy, such as prt or ht; headway policies lists them.",
)
@click.option(
    "--priority",
    help="A number (larger is more important), * for the foreground window, rm or edf.",
)
@click.option(
    "--reserve",
    metavar="C/T[:pe|ae]",
    help="A budget of C of GPU time in every T, such as 5ms/20ms.",
)
@click.option("--shared", metavar="POOL", help="Share the reserve with all programs of this pool.")
@click.option(
    "--period", metavar="T", help="How often its jobs come, such as 33ms; rm orders by this."
)
@click.option(
    "--deadline",
    metavar="D",
    help="How long a job may take; by default the period; edf orders by this.",
)
@click.option(
    "--slowdown",
    metavar="P%",
    help="Without a deadline: how much longer than alone a job may take (10% by default).",
)
@click.option(
    "--predict",
    metavar="MODEL",
    help="The cost model that predicts its work: adaptive, libetp, history or recent.",
)
@click.option(
    "--share",
    metavar="P%[..P%]",
    help="The part of the multiprocessors that it may get beside others, such as 25%..100%.",
)
@click.option(
    "--gpu",
    type=click.Choice(["auto"]),
    help="auto: wait for a place on a GPU, and use that GPU (needs daemon --locks).",
)
@click.option(
    "--units",
    is_flag=True,
    help="With --gpu: each kernel or copy locks the unit of the GPU that runs it.",
)
@click.option(
    "--require",
    is_flag=True,
    help="Fail if the program cannot be managed, instead of running it unmanaged.",
)
@click.option("--no-daemon", is_flag=True, help="Do not start a daemon if none runs.")
@click.option(
    "--software-gpu", is_flag=True, help="Use llvmpipe and PoCL as the GPU: one device, on one CPU."
)
@click.option(
    "--summary",
    is_flag=True,
    help="Report at its end: jobs, how much slower than alone, and what it cost others.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no messages of Headway's own.")
@click.argument(
    "command_line",
    nargs=-1,
    metavar="PROGRAM [ARG]...",
    required=True,
    type=click.UNPROCESSED,
    shell_complete=completing.programs,
)
def command(
    gpu: str | None,
    units: bool,
    require: bool,
    no_daemon: bool,
    software_gpu: bool,
    summary: bool,
    quiet: bool,
    command_line: tuple[str, ...],
    **options: str | None,
) -> None:
    """Run a program with a priority and a budget for its GPU work.

    Everything after -- is the program and its arguments. The program replaces this process (with
    --summary it is a child), so exit code, signals and standard input are the program's own. If it
    does not run, the exit code is 127 (there is no such program), 126 (it cannot be started), or 2
    (an option is wrong, or --require found that it would run unmanaged).
    """
    from headway.live.identity.program import ProgramError, find_program

    if options["shared"] is not None and options["reserve"] is None:
        raise UserError("--shared needs --reserve: expected --reserve C/T --shared POOL")
    if units and gpu is None:
        raise UserError("--units needs --gpu: expected --gpu auto --units")
    if gpu is not None and "CUDA_VISIBLE_DEVICES" in os.environ:
        raise UserError(
            f"--gpu auto: found CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r}, "
            "expected none, since the GPU is chosen; unset CUDA_VISIBLE_DEVICES"
        )
    try:
        path = find_program(command_line[0])
    except ProgramError as error:
        raise UserError(f"headway run: {error}", code=error.code) from None
    _forget_locale()
    env: Mapping[str, str] = os.environ
    try:
        env = _managed(path, options, not no_daemon, software_gpu, require, quiet)
        if gpu is not None:
            env = {**env, **_place(path, options, units, require, quiet)}
    except UserError:
        raise
    except Exception as error:  # whatever it is: the program is not to suffer from it
        why = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, OSError):
            why = f"a mistake of Headway's own, {type(error).__name__}: {why}"
        if require:
            raise UserError(f"headway run: {why}; with --require it does not run") from None
        _check(options)
        if not quiet:
            say(f"headway: {why}; it runs unmanaged")
        if software_gpu:
            from headway.live.identity.launcher import ON_THE_CPU

            env = {**os.environ, **ON_THE_CPU}
    if summary:
        _supervise(path, command_line, env)
    start(path, command_line, env)


def _supervise(path: str, command_line: tuple[str, ...], env: Mapping[str, str]) -> NoReturn:
    """Run the program as a child and say, after its end, what it came to."""
    from headway.view import supervising
    from headway.view.daemons import folder
    from headway.view.summary import lines_of

    def tell() -> None:
        from headway.live.api import client

        name, token = Path(path).name, env.get("HEADWAY_TOKEN", "")
        if env is os.environ:
            say(f"headway: {name} ran unmanaged: nothing is known of it")
            return
        try:
            found = client.ask(folder(quiet=True), {"do": "account", "token": token})["account"]
        except (OSError, client.Refused) as error:
            say(f"headway: no summary of {name}: {error}")
            return
        for line in lines_of(name, found):
            say(line)

    supervising.run(lambda: _start_or_end(path, command_line, env), then=tell)


def _start_or_end(path: str, command_line: tuple[str, ...], env: Mapping[str, str]) -> NoReturn:
    """Become the program; a child that cannot has said why, and its exit code is the command's."""
    try:
        start(path, command_line, env)
    except UserError as error:
        say(str(error))
        os._exit(error.code)


def _forget_locale() -> None:
    """In a C locale Python sets LC_CTYPE for those that it starts, too: not for this program."""
    with contextlib.suppress(OSError):
        if b"\0LC_CTYPE=" not in b"\0" + Path("/proc/self/environ").read_bytes():
            os.environ.pop("LC_CTYPE", None)


def _managed(
    path: str,
    options: Mapping[str, str | None],
    starts_daemon: bool,
    software_gpu: bool,
    require: bool,
    quiet: bool,
) -> dict[str, str]:
    """The environment in which it is managed. Wrong words are the person's mistake, all others
    reasons to run it unmanaged."""
    from headway.live.api import client, launch
    from headway.view.daemons import NAME_VARIABLE, folder

    try:
        env = launch.managed(
            folder(quiet=quiet),
            path,
            options,
            starts_daemon=starts_daemon,
            software_gpu=software_gpu,
            require=require,
        )
    except client.Refused as error:
        raise UserError(f"headway run: {error}") from None
    named = {NAME_VARIABLE: options["name"]} if options["name"] else {}
    env.pop(NAME_VARIABLE, None)  # of a program that starts this one
    return env | named | ({"HEADWAY_QUIET": "1"} if quiet else {})


def _place(
    path: str, options: Mapping[str, str | None], units: bool, require: bool, quiet: bool
) -> dict[str, str]:
    """A place on a GPU for the program, as variables that show the program this GPU alone."""
    from headway.live.api import place

    def waits() -> None:
        if not quiet:
            say("headway: every place on the GPUs is taken; waiting for one (Ctrl-C gives up)")

    try:
        return place.wait(path, options, units=units, waits=waits)
    except place.NoPlaces as error:
        if require:
            raise UserError(f"headway run: --gpu auto: {error}") from None
        if not quiet:
            say(f"headway: no GPU was chosen: {error}")
        return {}
    except place.Misuse as error:
        raise UserError(f"headway run: --gpu auto: {error}") from None


def _check(options: Mapping[str, str | None]) -> None:
    """Wrong words are wrong whether a daemon reads them or not."""
    from headway.live.server import requests

    try:
        requests.task_options(dict(options), os.getuid())
    except ValueError as error:
        raise UserError(f"headway run: {error}") from None


def start(path: str, command_line: tuple[str, ...], env: Mapping[str, str]) -> NoReturn:
    """Become the program."""
    from headway.live.identity.program import NOT_FOUND, NOT_STARTED, SHELL

    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python itself ignores them, from its start
        signal.signal(number, signal.SIG_DFL)
    try:
        try:
            os.execve(path, command_line, env)  # noqa: S606 - that is the point
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that says what runs it: as execvp(3) has it.
            os.execve(SHELL, (SHELL, path, *command_line[1:]), env)  # noqa: S606
    except OSError as error:
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_STARTED
        line = f"headway run: {command_line[0]}: cannot be started: {error.strerror}"
        raise UserError(line, code=code) from None
