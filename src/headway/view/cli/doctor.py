"""`headway doctor`"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED)
def command(as_json: bool, command_line: tuple[str, ...]) -> None:
    """Look at everything that Headway needs, and say how to put it right.

    With -- and a program: also whether that program can be managed. The exit code is 1 if something
    that is required is bad.
    """
    from headway.view.doctor import checks, examine
    from headway.view.doctor.program import program_checks

    selected = dict(checks())
    if command_line:
        selected |= program_checks(command_line[0])
    findings = examine(selected)
    is_fine = all(finding.state != "bad" for finding in findings.values())
    if as_json:
        rows = [{"check": name, **asdict(finding)} for name, finding in findings.items()]
        click.echo(json.dumps({"ok": is_fine, "checks": rows}))
    else:
        width = max(map(len, findings))
        for name, finding in findings.items():
            state = click.style(f"{finding.state:<4}", fg=COLOURS[finding.state])
            click.echo(f"{state}  {name:<{width}}  {finding.found}")
            if finding.fix:
                click.echo(f"{'':<{width + 8}}to put it right: {finding.fix}")
    if not is_fine:
        raise SystemExit(1)
