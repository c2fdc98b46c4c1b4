"""Commands that are made of commands."""

from __future__ import annotations

import click

from headway.view.cli.mistakes import no_such_command


class Group(click.Group):
    """Says which of its commands may have been meant by one that it does not have."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            raise no_such_command(name, self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its whole first sentence, in lines as wide as the terminal."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=1000)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def print_help_if_bare(context: click.Context) -> None:
    """Of a group without a command: its help, as --help gives it."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
