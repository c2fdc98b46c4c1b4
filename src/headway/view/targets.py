"""Files that are written beside their place and then take it, so that what looks whole is whole."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from errno import EEXIST, EISDIR, ELOOP, EPERM
from io import FileIO
from pathlib import Path

MOST_LINKS = 40
"""As many as the kernel follows."""


def resolve(path: str | os.PathLike[str]) -> Path:
    """The file that takes this name, which may be a link's; OSError if that cannot be."""
    hop = Path(os.path.abspath(path))  # noqa: PTH100 - links are followed one by one
    for _ in range(MOST_LINKS):
        if not hop.is_symlink():
            break
        # In a folder such as /tmp anybody may put a link to a file that only this user may change.
        owner = hop.lstat().st_uid
        if owner not in (os.geteuid(), 0):
            raise OSError(EPERM, f"it is a symbolic link of user {owner}'s")
        hop = hop.parent / hop.readlink()
    else:
        raise OSError(ELOOP, os.strerror(ELOOP))
    target = Path(os.path.realpath(hop))
    if target.is_dir():
        raise OSError(EISDIR, "it is a directory")
    if target.exists() and not target.is_file():  # renaming onto /dev/null would replace it
        raise OSError(EEXIST, "it is not a regular file")
    return target


def open_beside(target: Path) -> tuple[Path, FileIO]:
    """A new file in the target's folder.

    What a killed process of the same number left there stays: in a folder that containers share it
    may be one that is being written.
    """
    for attempt in itertools.count():
        suffix = f".{os.getpid()}.part" if not attempt else f".{os.getpid()}-{attempt}.part"
        part = target.with_name(target.name + suffix)
        with suppress(FileExistsError):
            return part, part.open("xb", buffering=0)
    raise AssertionError  # count() does not end
