"""`headway status`"""

from __future__ import annotations

import json
from typing import Any

import click

from headway.engine.units import format_ns


@click.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(as_json: bool) -> None:
    """Show the daemon and the programs it serves."""
    from headway.view.tables import counted

    status = fetch()
    if as_json:
        click.echo(json.dumps(status))
        return
    counts = ", ".join(
        counted(status[key], what) for key, what in (("grants", "grant"), ("leases", "lease"))
    )
    refused = counted(status["refused"], "connection")
    click.echo(f"daemon {status['pid']} in {status['folder']}: {counts}, {refused} refused")
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
            times = counted(entry["implicit"], "time")
            click.echo(f"{entry['task']}: the driver submitted {times} past the gate")
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
    """What the daemon says of itself, and what is to be seen beside it."""
    from headway.view.daemons import ask

    status: dict[str, Any] = ask("status", {"do": "status"})["status"]
    complete(status)
    return status


def complete(status: dict[str, Any]) -> None:
    """Add what the daemon does not know: programs it does not serve, GPUs as their driver tells."""
    from headway.view import nvml, unmanaged

    unmanaged.complete(status)
    status["devices"] = nvml.devices()


def print_tasks(status: dict[str, Any]) -> None:
    """A row per task."""
    from headway.view.tables import new_console, print_rows

    rows = []
    several = len(status["gpus"]) > 1
    for entry in status["channels"]:
        reserve = "."
        if entry["reserve"] is not None:
            reserve = f"{format_ns(entry['capacity_ns'])}/{format_ns(entry['period_ns'])}"
        groups = entry["groups"] + entry["passed"]
        cells = [entry["gpu"]] if several else []
        cells += [entry["pid"], entry["policy"], entry["priority"], reserve]
        cells += [entry["state"], groups, entry["frames"]]
        rows.append([entry["name"], *map(str, cells)])
    managed = {entry["pid"] for entry in status["channels"]}
    for state, found in (("unmanaged", status["unmanaged"]), ("started", status["started"])):
        for entry in found:
            if entry["pid"] not in managed:
                name, _, pid = entry["task"].rpartition(".")
                gpu = ["."] if several else []
                rows.append([name, *gpu, pid, ".", ".", ".", state, ".", "."])
    columns = (
        "task",
        *(["gpu"] if several else []),
        "pid",
        "policy",
        "prio",
        "reserve",
        "state",
        "groups",
        "frames",
    )
    console = new_console()
    narrow = ("frames", "groups", "policy", "reserve")
    print_rows(console, columns, rows, leave_out=narrow)
    for entry in status["unmanaged"]:
        console.print(f"{entry['task']}: {entry['why']}", soft_wrap=True)
