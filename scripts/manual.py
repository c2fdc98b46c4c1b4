#!/usr/bin/env python3
"""Writes a man page for `headway` and for each of its commands, from what --help says.

scripts/manual.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from headway import __version__
from headway.view.cli import COMMANDS
from headway.view.cli import headway as group

EXIT_STATUS = {
    "0": "What was asked for was done.",
    "1": "It could not be done: there is no daemon, or the output cannot be written; of check: a "
    "rule was broken.",
    "2": "An option, a file or a value is wrong; a line on standard error says what was expected.",
    "126, 127": "Of run: the program cannot be started; there is no such program.",
    "130": "Interrupted.",
}
FILES = {
    "~/.config/headway/headway.toml": "Settings; headway config init writes an example.",
    "$XDG_RUNTIME_DIR/headway": "Where the daemon serves, unless $HEADWAY_DIR names a folder.",
}
CONTEXT: MutableMapping[str, Any] = group.context_settings


def escaped(text: str) -> str:
    """Text that means nothing to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = text.replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\n".join(f"\\&{line}" if line[:1] == "." else line for line in text.splitlines())


def paragraphs(text: str) -> Iterator[str]:
    """Each of a docstring or an epilogue, as roff."""
    for part in text.replace("\b\n", "").split("\n\n"):
        yield ".PP"
        yield escaped(" ".join(part.split()))


def entries(rows: list[tuple[str, str]]) -> Iterator[str]:
    """A list of words, each with what there is to say of it."""
    for word, text in rows:
        yield ".TP"
        yield f"\\fB{escaped(word)}\\fR"
        yield escaped(" ".join(text.split()))


def options(command: click.Command) -> list[tuple[str, str]]:
    """Of an option, how to write it and what it does; arguments are in the description."""
    context = click.Context(command, info_name="headway", **CONTEXT)
    found = (p for p in command.get_params(context) if isinstance(p, click.Option))
    records = (option.get_help_record(context) for option in found)
    return [record for record in records if record is not None]


def synopsis(command: click.Command, path: str) -> Iterator[str]:
    """How a command is called."""
    context = click.Context(command, info_name=path)
    yield f"\\fB{escaped(path)}\\fR {escaped(' '.join(command.collect_usage_pieces(context)))}"


def page(path: str, command: click.Command, short: str) -> str:
    """A page, and on it the commands that a command is made of."""
    name = path.replace(" ", "-")
    said = (command.help or "").replace("\f", "")
    lines = [
        f'.TH "{name.upper()}" "1" "" "Headway {__version__}" "Headway"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(short.rstrip('.'))}",
        ".SH SYNOPSIS",
        *synopsis(command, path),
        ".SH DESCRIPTION",
        *list(paragraphs(said))[1:],
        ".SH OPTIONS",
        *entries(options(command)),
    ]
    if path == "headway":
        lines += [".SH COMMANDS", *entries([(f"headway {n}", t) for n, t in COMMANDS.items()])]
    elif isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for part_name, part in command.commands.items():
            lines += [
                ".SS " + escaped(f"{path} {part_name}"),
                *synopsis(part, f"{path} {part_name}"),
            ]
            lines += [*paragraphs(part.help or ""), *entries(options(part))]
    if command.epilog:
        lines += [".SH EXAMPLES", *list(paragraphs(command.epilog))[1:]]
    lines += [".SH EXIT STATUS", *entries([*EXIT_STATUS.items()])]
    lines += [".SH FILES", *entries([*FILES.items()])]
    others = [f"headway\\-{other}" for other in COMMANDS] if path == "headway" else ["headway"]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{other}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("manual.py: expected one folder, where pages are to be written")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headway.1").write_text(page("headway", group, (group.help or "").splitlines()[0]))
    for name, short in COMMANDS.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        (folder / f"headway-{name}.1").write_text(page(f"headway {name}", command, short))


if __name__ == "__main__":
    main()
