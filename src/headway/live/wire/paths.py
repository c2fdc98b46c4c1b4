"""Where the daemon of a user is found, and whether what lies there can be trusted.

Whoever may put a folder or a socket on the way could answer in the daemon's place. So every folder
from the root on, and the socket, must belong to this user or to root, nobody else may write there
(in a sticky folder such as /tmp: nobody else may replace what is this user's), and none may be a
symbolic link. Once a folder has been found fine, nobody else can change what is looked at next.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

LONGEST_SOCKET = 107
"""Bytes in the name of a Unix socket, by the kernel's structure."""
_CREDENTIALS = struct.Struct("3i")


class PathError(OSError):
    """A folder or a socket that cannot be trusted, or cannot be made; one line."""


# -- which folder ----------------------------------------------------------------------------------


def user_folder(variable: str, default: str) -> Path:
    """The folder that an XDG variable names, by default this one below the user's home.

    A user without HOME and without an entry among the users has the home that such users have: /.
    """
    named = os.environ.get(variable, "")
    if named.startswith("/"):
        return Path(named)
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails for such users
    return Path(home if home.startswith("/") else "/") / default


def choose() -> tuple[Path, str]:
    """The folder where this user's daemon is found, and why $XDG_RUNTIME_DIR is not used if it
    should be. $HEADWAY_DIR, or a folder below $XDG_RUNTIME_DIR, /run or /tmp."""
    chosen = os.environ.get("HEADWAY_DIR")
    if chosen:
        return Path(os.path.abspath(chosen)), ""  # noqa: PTH100 - without following links
    runtime, problem = os.environ.get("XDG_RUNTIME_DIR", ""), ""
    if runtime.startswith("/"):
        try:
            check(Path(runtime), {os.geteuid()})
            return Path(runtime) / "headway", ""
        except FileNotFoundError:
            pass  # nobody has logged in, say
        except PathError as error:
            problem = f"XDG_RUNTIME_DIR is not used: {error}"
    return fallback(), problem


def fallback() -> Path:
    """The folder of a user whose environment names none."""
    if os.geteuid() == 0:
        return Path("/run/headway")
    return Path(f"/tmp/headway-{os.geteuid()}")  # noqa: S108 - `check` looks at it


def runtime_folder() -> Path:
    """The folder where this user's daemon is found."""
    return choose()[0]


def client_socket(folder: Path) -> Path:
    return folder / "clients.sock"


def control_socket(folder: Path) -> Path:
    return folder / "control.sock"


def lock_file(folder: Path) -> Path:
    return folder / "daemon.lock"


# -- whether it can be trusted ---------------------------------------------------------------------


def check(folder: Path, owners: set[int] | None = None) -> None:
    """PathError if somebody else could have put something there; FileNotFoundError if there is no
    such folder. `owners`: who may own the folder itself; by default this user and root."""
    for part in _way_to(folder):
        _check_part(part, folder, owners or {os.geteuid(), 0})


def prepare(folder: Path) -> None:
    """Make a folder for this user alone, or refuse one that somebody else could have put there."""
    for part in _way_to(folder):
        try:
            _check_part(part, folder, {os.geteuid()})
            continue
        except FileNotFoundError:
            pass
        try:
            part.mkdir(mode=0o700)
        except FileExistsError:
            pass  # another command of this user's was faster; or somebody else, which is seen now
        except OSError as error:
            raise PathError(f"{part}: cannot be made: {error.strerror}") from None
        _check_part(part, folder, {os.geteuid()})


def _way_to(folder: Path) -> tuple[Path, ...]:
    """Every folder from the root on."""
    if not folder.is_absolute():
        raise PathError(f"{folder}: expected a whole path, from / on")
    size = len(os.fsencode(control_socket(folder)))
    if size > LONGEST_SOCKET:
        found = f"found a path of {size} bytes with the name of a socket"
        raise PathError(f"{folder}: {found}, expected at most {LONGEST_SOCKET}")
    return *reversed(folder.parents), folder


def _check_part(part: Path, folder: Path, owners: set[int]) -> None:
    """One folder on the way to another."""
    info = _look_at(part)
    if not stat.S_ISDIR(info.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "a file"
        raise PathError(f"{part}: found {what}, expected the folder itself")
    _check_owner(part, info, owners if part == folder else {os.geteuid(), 0})
    sticky = part != folder and info.st_mode & stat.S_ISVTX
    if info.st_mode & 0o022 and not sticky:
        raise PathError(f"{part}: others may write there; run chmod go-w {part}")


def _look_at(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PathError(f"{path}: cannot be looked at: {error.strerror}") from None


def _check_owner(path: Path, info: os.stat_result, owners: set[int]) -> None:
    if info.st_uid not in owners:
        expected = "this user's own" if owners == {os.geteuid()} else "this user's own or root's"
        raise PathError(f"{path}: belongs to user {info.st_uid}, expected {expected}")


# -- connecting ------------------------------------------------------------------------------------


def connect(path: Path, kind: int, timeout_s: float) -> socket.socket:
    """A connection to a daemon of this user's or root's. PathError if something on the way, or who
    listens, is neither's; OSError if nobody listens."""
    check(path.parent)
    info = _look_at(path)
    if not stat.S_ISSOCK(info.st_mode):
        raise PathError(f"{path}: expected a socket")
    _check_owner(path, info, {os.geteuid(), 0})
    connection = socket.socket(socket.AF_UNIX, kind)
    try:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        uid = credentials(connection)[1]
        if uid not in (os.geteuid(), 0):
            raise PathError(f"{path}: user {uid} listens there, expected this user or root")
    except OSError:
        connection.close()
        raise
    return connection


def credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end, by the kernel's word."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return pid, uid, gid


def time_namespace() -> int | None:
    """The number of this process's time namespace. Clocks differ between two of them, so what a
    daemon in another one writes about times means nothing here. None: the kernel has none."""
    try:
        return os.stat("/proc/self/ns/time").st_ino  # noqa: PTH116 - the namespace, not its link
    except OSError:
        return None
