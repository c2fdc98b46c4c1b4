"""`headway plot`"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import click

from headway.view.errors import UserError, say
from headway.view.histories import from_to, load

FORMATS = (".svg", ".pdf", ".png")
ALL = ("timeline", "frames", "responses", "shares", "budgets", "waits")


@click.command(name="plot")
@click.argument("trace", metavar="TRACE")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR|FILE.svg|.pdf|.png",
    help="A folder for one file per picture, or one file for all of them.",
)
@click.option(
    "--what", default=",".join(ALL), show_default=True, metavar="LIST", help="What to draw."
)
@from_to
def command(trace: str, output: str, what: str, from_text: str | None, to_text: str | None) -> None:
    """Draw a trace as pictures, with the data and the command saved beside each."""
    wanted = _wanted(what)
    target = Path(output)
    if target.suffix and target.suffix.lower() not in FORMATS and not target.is_dir():
        expected = f"{' or '.join(FORMATS)}, or a folder"
        raise UserError(f"-o {output}: found the ending {target.suffix!r}, expected {expected}")
    from headway.view.pictures import PICTURES, Run
    from headway.view.plots import new_figure

    new_figure(1, 1)  # without matplotlib there is no need to read the trace
    part = load(trace, from_text, to_text)
    if part.problem:
        say(f"{part.problem}; the pictures show what it holds")
    run = Run(part.history, part.from_ns, part.to_ns)
    data = {name: PICTURES[name][0](run) for name in wanted}
    if target.suffix.lower() in FORMATS and not target.is_dir():
        _save(target, trace, data)
        return
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"-o {output}: cannot be made: {error.strerror or error}") from None
    for name, entry in data.items():
        _save(target / f"{name}.svg", trace, {name: entry})


def _wanted(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ALL]
    if unknown or not names:
        found = unknown[0] if unknown else text
        raise UserError(f"--what: found {found!r}, expected some of {', '.join(ALL)}")
    return list(dict.fromkeys(names))


def _save(path: Path, trace: str, data: dict[str, dict[str, object]]) -> None:
    from headway.view.files import whole_or_nothing
    from headway.view.pictures import picture
    from headway.view.plots import save

    save(picture(Path(trace).name, data), str(path))
    beside = path.with_suffix(".json")
    made_by = {"command": shlex.join(["headway", *sys.argv[1:]]), "trace": trace}
    with whole_or_nothing(str(beside)) as partial:
        partial.write_text(json.dumps({**made_by, **data}, separators=(",", ":")) + "\n")
    click.echo(f"{path}, {beside}")
