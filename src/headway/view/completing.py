"""What a shell completes besides options: policies, tasks of the daemon, programs on the PATH.

A completion that cannot be found out, for want of a daemon, is no completion and no message.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def policies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from headway.engine.policies import policies as registered

    return [
        CompletionItem(name, help=" ".join((cls.__doc__ or "").split("\n\n")[0].split()))
        for name, cls in sorted(registered().items())
        if name.startswith(incomplete)
    ]


def tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from headway.live.api import client
    from headway.live.wire import paths

    try:
        answer = client.ask(paths.runtime_folder(), {"do": "status"})
        names = {channel["task"] for channel in answer["status"]["channels"]}
    except (OSError, ValueError, KeyError):
        return []
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def programs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The first word is a program; the others are the program's own, so files."""
    from click.shell_completion import CompletionItem

    if ctx.params.get("command_line") or "/" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    found = set()
    for folder in os.get_exec_path():
        try:
            entries = list(Path(folder).iterdir())
        except OSError:
            continue
        found |= {
            e.name for e in entries if e.name.startswith(incomplete) and os.access(e, os.X_OK)
        }
    return [CompletionItem(name) for name in sorted(found)]
