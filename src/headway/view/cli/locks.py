"""`headway locks`"""

from __future__ import annotations

import click

from headway.view.errors import say
from headway.view.files import read_text


@click.command(name="locks")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the grants as JSON.")
def command(file: str, as_json: bool) -> None:
    """Run a token allocator alone: who gets which token when, and who lends priority to whom."""
    from headway.sim.gpusync.lock_file import parse_lock_file
    from headway.sim.gpusync.lock_run import LockRun

    plan = parse_lock_file(read_text(file), file)
    for remark in plan.remarks:
        say(f"{file}: {remark}")
    if as_json:
        import msgspec

        outcome = LockRun(plan).run()
        grants = [{"at": g.at, "id": g.name, "token": g.token} for g in outcome.grants]
        result = {"schema": 1, "grants": grants, "ignored": outcome.ignored}
        click.echo(msgspec.json.encode(result))
        return
    from headway.view.locks import print_run
    from headway.view.tables import new_console

    print_run(new_console(), file, plan)
