"""Where the daemon of a user is found."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class PathError(OSError):
    """A folder that cannot be trusted."""


def runtime_folder() -> Path:
    """A folder of this user alone: $HEADWAY_DIR, or one below $XDG_RUNTIME_DIR, /run or /tmp."""
    chosen = os.environ.get("HEADWAY_DIR")
    if chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "headway"
    if os.geteuid() == 0:
        return Path("/run/headway")
    return Path(f"/tmp/headway-{os.geteuid()}")  # noqa: S108 - checked below


def prepare(folder: Path) -> None:
    """Make the folder, or refuse one that somebody else could have put there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise PathError(f"{folder}: expected a folder of this user")
    if info.st_mode & 0o022:
        raise PathError(f"{folder}: others may write there; run chmod go-w {folder}")


def client_socket(folder: Path) -> Path:
    return folder / "clients.sock"


def control_socket(folder: Path) -> Path:
    return folder / "control.sock"


def lock_file(folder: Path) -> Path:
    return folder / "daemon.lock"
