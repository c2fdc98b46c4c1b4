"""`headway completion`"""

from __future__ import annotations

import click

HOW = {
    "bash": "headway completion bash > ~/.local/share/bash-completion/completions/headway",
    "zsh": "headway completion zsh > ~/.zfunc/_headway   (with ~/.zfunc in fpath)",
    "fish": "headway completion fish > ~/.config/fish/completions/headway.fish",
}


@click.command(name="completion", epilog="\n\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(sorted(HOW)))
def command(shell: str) -> None:
    """Print a completion script for a shell: options, files, policies, tasks, programs."""
    from click.shell_completion import get_completion_class

    from headway.view.cli import headway

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(headway, {}, "headway", "_HEADWAY_COMPLETE").source())
