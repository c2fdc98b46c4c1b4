"""What the desktop measurements share: OpenArena, and pictures with their data beside them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.view.plots import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENGINE = Path("/usr/lib/ioquake3/ioquake3")
GAME = Path("/usr/lib/openarena")
DEMO = "demo088-test1"
INSTALL = "OpenArena is not here: run apt-get install ioquake3 openarena openarena-data"
SETTINGS = {
    "com_basegame": "baseoa",
    "com_standalone": "1",
    "com_homepath": ".",
    "com_legacyprotocol": "71",
    "cl_renderer": "opengl1",
    "r_mode": "-1",
    "r_customwidth": "320",
    "r_customheight": "240",
    "r_fullscreen": "0",
    "s_initsound": "0",
    "timedemo": "1",
}
"""A small window, no sound, and frames as fast as they come."""


def has_openarena() -> bool:
    return ENGINE.exists() and (GAME / "baseoa" / "pak0.pk3").exists()


def openarena(home: Path) -> tuple[str, ...]:
    """The command that plays the demo; it keeps what it writes in `home`."""
    settings = {"fs_basepath": str(GAME), "fs_homepath": str(home), **SETTINGS}
    given = [word for key, value in settings.items() for word in ("+set", key, value)]
    return (str(ENGINE), *given, "+demo", DEMO)


def save_picture(figure: Figure, path: Path, data: dict[str, Any]) -> None:
    """The picture, and beside it what it shows and the command that made it."""
    save(figure, str(path))
    module = Path(sys.argv[0]).stem
    command = shlex.join(["python", "-m", f"benchmarks.{module}", *sys.argv[1:]])
    text = json.dumps({"command": command, **data}, indent=1)
    path.with_suffix(".json").write_text(text + "\n")
