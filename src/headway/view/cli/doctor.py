"""`headway doctor`"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headway.view import completing
from headway.view.errors import UserError, say

if TYPE_CHECKING:
    from headway.view.doctor import Finding

COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}
WIDTH = 20
"""Of the names of checks."""


@click.command(name="doctor", context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--for",
    "--duration",
    "limit",
    metavar="T",
    help="End the program after this long, such as 10s.",
)
@click.argument(
    "command_line",
    nargs=-1,
    metavar="[-- PROGRAM [ARG]...]",
    type=click.UNPROCESSED,
    shell_complete=completing.programs,
)
def command(as_json: bool, limit: str | None, command_line: tuple[str, ...]) -> None:
    """Check everything that Headway needs, and say how to fix what is missing.

    With a program after --, doctor also checks whether that program can be managed, runs it, and
    lists at its end which of its GPU functions are hooked, which pass by, and why. The exit code is
    1 if something that is required is bad; the exit code of the program is printed.
    """
    from headway.view.doctor import checks, examine
    from headway.view.doctor.program import program_checks

    limit_s = _seconds(limit)
    selected = dict(checks())
    if command_line:
        selected |= program_checks(command_line[0])
    told = examine(selected)
    answer: dict[str, Any] = {}
    if not as_json:
        _print(told)
    if command_line and _is_there(command_line[0]):
        from headway.view.doctor.running import findings, run

        if not as_json:
            say(f"running {' '.join(command_line)}; Ctrl-C ends it")
        sys.stdout.flush()
        seen = run(command_line, limit_s=limit_s, quiet=as_json)
        more = findings(seen)
        told |= more
        answer["run"] = asdict(seen)
        if not as_json:
            _print(more)
    is_fine = all(finding.state != "bad" for finding in told.values())
    if as_json:
        rows = [{"check": name, **asdict(finding)} for name, finding in told.items()]
        click.echo(json.dumps({"ok": is_fine, "checks": rows, **answer}))
    if not is_fine:
        raise SystemExit(1)


def _is_there(program: str) -> bool:
    from headway.live.identity.program import ProgramError, find_program

    try:
        find_program(program)
    except ProgramError:
        return False
    return True


def _seconds(limit: str | None) -> float | None:
    from headway.engine.units import DurationError, parse_duration

    try:
        return None if limit is None else parse_duration(limit) / 1e9
    except DurationError as error:
        raise UserError(f"--for: found {limit!r}, expected {error}") from None


def _print(findings: Mapping[str, Finding]) -> None:
    margin = " " * (WIDTH + 8)
    for name, finding in findings.items():
        state = click.style(f"{finding.state:<4}", fg=COLOURS[finding.state])
        click.echo(f"{state}  {name:<{WIDTH}}  {finding.found.replace(chr(10), chr(10) + margin)}")
        if finding.fix:
            click.echo(f"{margin}fix: {finding.fix}")
