"""`headway status`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from headway.engine.units import format_ns


@click.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(as_json: bool) -> None:
    """Show the daemon and the programs it serves."""
    status = fetch()
    if as_json:
        click.echo(json.dumps(status))
        return
    click.echo(
        f"daemon {status['pid']} in {status['folder']}: {status['grants']} grants,"
        f" {status['leases']} leases, {status['refused']} connections refused"
    )
    if status["spec_problem"]:
        click.echo(f"the spec file is not in force as it is: {status['spec_problem']}")
    if status["display"] or status["display_problem"]:
        click.echo(describe_display(status))
    print_tasks(status)
    for away in status["away"]:
        click.echo(
            f"pid {away['pid']} is unmanaged for {away['left_ns'] / 1e9:.0f} s: it kept the GPU too"
            " long and did not answer for it"
        )
    for entry in status["channels"]:
        if entry["note"]:
            click.echo(f"{entry['task']}: {entry['note']}")
        if entry["implicit"]:
            count = entry["implicit"]
            click.echo(f"{entry['task']}: the driver submitted {count} times past the gate")
        if entry["unknown"]:
            count = entry["unknown"]
            click.echo(
                f"{entry['task']}: GPU functions that pass by: {count}; headway doctor tells"
            )


def describe_display(status: dict[str, Any]) -> str:
    """The display that is followed, and who is in the foreground there."""
    display, owner = status["display"], status["foreground"]
    if status["display_problem"]:
        where = f"display {display}" if display else "the display"
        return f"{where} is not followed: {status['display_problem']}"
    if owner is None:
        return f"display {display}: no window is in the foreground"
    front = ", ".join(owner["tasks"]) or "none of these"
    return f"display {display}: in the foreground is {front} (pid {owner['pid'] or 'unknown'})"


def fetch() -> dict[str, Any]:
    """What the daemon says of itself."""
    from headway.view.daemons import ask
    from headway.view.unmanaged import PASSES, with_vulkan

    status: dict[str, Any] = ask("status", {"do": "status"})["status"]
    status["unmanaged"] = [
        {"task": found.task, "pid": found.pid, "why": PASSES}
        for found in with_vulkan(Path(status["folder"]))
    ]
    return status


def print_tasks(status: dict[str, Any]) -> None:
    """A row per task."""
    from headway.view.results import new_console, new_table

    table = new_table("")
    table.add_column("task")
    for column in ("pid", "policy", "prio", "reserve", "state", "groups", "frames"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry in status["channels"]:
        reserve = "."
        if entry["reserve"] is not None:
            reserve = f"{format_ns(entry['capacity_ns'])}/{format_ns(entry['period_ns'])}"
        groups = entry["groups"] + entry["passed"]
        cells = [entry["pid"], entry["policy"], entry["priority"], reserve]
        cells += [entry["state"], groups, entry["frames"]]
        table.add_row(entry["task"], *map(str, cells))
    managed = {entry["pid"] for entry in status["channels"]}
    for entry in status["unmanaged"]:
        if entry["pid"] not in managed:
            cells = [entry["pid"], ".", ".", ".", "unmanaged", ".", "."]
            table.add_row(entry["task"], *map(str, cells))
    console = new_console()
    console.print(table)
    for entry in status["unmanaged"]:
        console.print(f"{entry['task']}: {entry['why']}", soft_wrap=True)
