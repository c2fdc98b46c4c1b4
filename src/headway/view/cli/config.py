"""`headway config`"""

from __future__ import annotations

import click

from headway.engine.reading import BadInput
from headway.engine.settings import describe
from headway.engine.spec import parse_spec
from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.errors import BAD_INPUT, say
from headway.view.files import read_text


@click.group(name="config", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Check spec files."""
    print_help_if_bare(context)


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def check(files: tuple[str, ...]) -> int:
    """Report every mistake in spec files, in TOML or in the form name:sched:resv:prio:C:T."""
    code = 0
    for file in files:
        try:
            spec = parse_spec(read_text(file), file)
        except BadInput as error:
            say(str(error))
            code = BAD_INPUT
            continue
        click.echo(f"{file}: fine, {len(spec.entries)} entries")
        for entry in spec.entries:
            wish = entry.reserve
            reserve = "background" if wish.background else "no reserve"
            if wish.spec is not None:
                pool = f", shared as {wish.spec.shared!r}" if wish.spec.shared else ""
                reserve = describe(wish.spec) + pool
            click.echo(f"  {entry.pattern}: {entry.policy}, priority {entry.priority}, {reserve}")
    return code
