"""`headway fleet manifest`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headway.view.errors import FAILED, UserError, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headway.fleet.manifests import Machine

FILE = "headway.yaml"


@click.command(name="manifest")
@click.option("--kubernetes", is_flag=True, help="DRA resource slices and a DaemonSet.")
@click.option("--slurm", is_flag=True, help="gres.conf, lines for slurm.conf, and prologs.")
@click.option(
    "--node",
    "texts",
    multiple=True,
    metavar="NAME:GPUS[:MODEL]",
    help="A machine, as the scheduler calls it; by default this one.",
)
@click.option(
    "--image", default="headway:latest", show_default=True, help="With --kubernetes: the image."
)
@click.option("-o", "--output", metavar="FOLDER", help="Write files there instead of printing.")
def command(
    kubernetes: bool, slurm: bool, texts: tuple[str, ...], image: str, output: str | None
) -> None:
    """Write what Kubernetes or Slurm needs to count reserved GPU time.

    Not tested on a real cluster of either.
    """
    from headway import __version__
    from headway.fleet import manifests

    if kubernetes == slurm:
        raise UserError("headway fleet manifest: expected --kubernetes or --slurm")
    machines = _machines(texts)
    if slurm:
        files: Mapping[str, str] = manifests.slurm(machines)
    else:
        found = manifests.kubernetes(machines, image, __version__)
        files = {FILE: manifests.as_yaml(found)}
    if output is not None:
        _write(Path(output), files)
        return
    for name, text in files.items():
        if len(files) > 1:
            click.echo(f"# ---- {name}")
        click.echo(text, nl=False)


def _machines(texts: Sequence[str]) -> list[Machine]:
    from headway.fleet.manifests import Machine, ManifestError, read_machine

    try:
        found = [read_machine(text) for text in texts]
    except ManifestError as error:
        raise UserError(f"headway fleet manifest: --node: {error}") from None
    names = [machine.name for machine in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"headway fleet manifest: --node: found {twice!r} twice, expected it once")
    if found:
        return found
    import socket

    from headway.fleet.nodes import find_gpus

    gpus = find_gpus(0)
    if not gpus:
        raise UserError(
            "headway fleet manifest: no NVIDIA GPU was found here; name machines by --node "
            "NAME:GPUS:MODEL",
            code=FAILED,
        )
    return [Machine(socket.gethostname().lower(), len(gpus), gpus[0].model)]


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """All files or none: those that cannot be written are known before the first is."""
    from contextlib import ExitStack

    from headway.view.files import whole_or_nothing

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"headway fleet manifest: -o {folder}: {why}", code=FAILED) from None
    with ExitStack() as stack:
        for name, text in files.items():
            part = stack.enter_context(whole_or_nothing(str(folder / name)))
            part.write_text(text, encoding="utf-8")
            part.chmod(0o755 if text.startswith("#!") else 0o644)
    say(f"{folder}: {', '.join(files)}")
