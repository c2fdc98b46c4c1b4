"""`headway examples`"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import click

from headway.view.errors import UserError


def folder() -> Path:
    """Where the examples were installed: in the package, or where an editable one puts them."""
    places = (Path(__file__).parents[2], Path(sysconfig.get_path("platlib")) / "headway")
    for place in places:
        if (place / "share" / "examples").is_dir():
            return place / "share" / "examples"
    raise UserError("headway examples: they are not installed; install headway again", code=1)


def about(path: Path) -> str:
    """The first sentence of a file."""
    if path.suffix == ".json":
        return str(json.loads(path.read_text()).get("description", ""))
    for line in path.read_text().splitlines():
        text = line.strip("#\"' ")
        if text and not line.startswith("#!"):
            return text
    return ""


def shortened(line: str) -> str:
    """As wide as the terminal, if there is one."""
    width = shutil.get_terminal_size().columns
    if len(line) <= width or not (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return line.rstrip()
    return line[: width - 3].rstrip() + "..."


@click.command(name="examples")
@click.argument("name", required=False)
@click.option("--copy", "target", metavar="FOLDER", help="Copy all of them there.")
def command(name: str | None, target: str | None) -> None:
    """List examples; with NAME, print one.

    Scenarios, specs, policies and programs; what operates a daemon is in operate/: systemd units
    and a dashboard for Grafana.
    """
    home = folder()
    files = sorted(p for p in home.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    names = {str(path.relative_to(home)): path for path in files}
    if target is not None:
        try:
            shutil.copytree(home, target)
        except FileExistsError:
            raise UserError(
                f"--copy: found {target}, expected a folder that is not there yet"
            ) from None
        except (OSError, shutil.Error) as error:
            raise UserError(f"--copy: {target} cannot be written ({error})", code=1) from None
        click.echo(f"{len(files)} files in {target}; try: headway sim {target}/bombs.toml")
    elif name is None:
        wide = max(map(len, names))
        for key, path in names.items():
            click.echo(shortened(f"{key:<{wide}}  {about(path)}"))
    elif name in names:
        click.echo(names[name].read_text(), nl=False)
    else:
        raise UserError(f"headway examples: found {name!r}, expected one that it lists")
