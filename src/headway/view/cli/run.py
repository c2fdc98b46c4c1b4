"""`headway run`"""

from __future__ import annotations

import os
from typing import Any

import click

from headway.view import completing
from headway.view.errors import UserError


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@click.option("--name", help="Name of the task; by default the program's.")
@click.option(
    "--policy",
    shell_complete=completing.policies,
    help="prt, ht, ...; headway policies lists them.",
)
@click.option("--priority", help="A number, larger is more important, or * or rm or edf.")
@click.option("--reserve", metavar="C/T[:pe|ae]", help="A budget, such as 5ms/20ms.")
@click.option("--shared", metavar="POOL", help="Share the reserve with others of this pool.")
@click.option("--period", metavar="T", help="How often its jobs come, such as 10ms; for rm.")
@click.option("--deadline", metavar="D", help="How long a job may take; by default the period.")
@click.option("--require", is_flag=True, help="Fail rather than run unmanaged.")
@click.option("--no-daemon", is_flag=True, help="Start no daemon if none runs.")
@click.option("--software-gpu", is_flag=True, help="Make llvmpipe and PoCL one device on one CPU.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
@click.argument(
    "command_line",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    shell_complete=completing.programs,
)
def command(
    name: str | None,
    policy: str | None,
    priority: str | None,
    reserve: str | None,
    shared: str | None,
    period: str | None,
    deadline: str | None,
    require: bool,
    no_daemon: bool,
    software_gpu: bool,
    quiet: bool,
    command_line: tuple[str, ...],
) -> None:
    """Run a program with its GPU work in priority order and within a budget.

    Everything after -- is the program and its arguments; it replaces this process, so its exit
    code, signals and standard input are its own.
    """
    from headway.live.api import client
    from headway.live.identity import launcher
    from headway.live.wire import paths

    if shared is not None and reserve is None:
        raise UserError("--shared needs --reserve: expected --reserve C/T --shared POOL")
    folder = paths.runtime_folder()
    wish = {"name": name, "policy": policy, "priority": priority}
    wish |= {"reserve": reserve, "shared": shared, "period": period, "deadline": deadline}
    wish |= {"display": os.environ.get("DISPLAY"), "authority": os.environ.get("XAUTHORITY")}
    answer: dict[str, Any] = {}
    try:
        program = launcher.find_program(command_line[0])
        launcher.library()
        try:
            answer = client.ask(folder, {"do": "run", **wish})
        except client.NoDaemon:
            if no_daemon:
                raise
            client.start(folder, *(["--software-gpu"] if software_gpu else []))
            answer = client.ask(folder, {"do": "run", **wish})
        problem = launcher.why_not_interposed(program)
        if problem is not None:
            raise launcher.LaunchError(f"{command_line[0]} cannot be managed: {problem}")
    except client.Refused as error:
        raise UserError(f"headway run: {error}") from None
    except (client.NoDaemon, launcher.LaunchError, paths.PathError) as error:
        if require or isinstance(error, paths.PathError) or "no such program" in str(error):
            raise UserError(f"headway run: {error}") from None
        if not quiet:
            click.echo(f"headway: {error}; it runs unmanaged", err=True)
        os.execvp(command_line[0], list(command_line))  # noqa: S606 - that is the point
    device = launcher.device_cpu() if software_gpu else answer.get("software_gpu")
    more = answer.get("environment")
    env = launcher.environment(folder, answer["token"], software_gpu=device, more=more)
    os.execvpe(command_line[0], list(command_line), env)  # noqa: S606
