"""Notes that outlive a daemon: small JSON files in a folder of its own.

Each is written as a whole or not at all. One that cannot be written is missed by a later daemon
alone; one that says something wrong, whoever wrote it, counts for nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headway.live.server.files import read_plain
from headway.live.server.loop import log

MAX_BYTES = 65_536
NEW = ".new"
T = TypeVar("T")


class Notes:
    """Without a folder there are none; files with other names in it are somebody else's."""

    def __init__(self, folder: Path | None, names: re.Pattern[str]) -> None:
        self._folder = folder
        self._names = names

    def write(self, name: str, found: dict[str, Any]) -> None:
        if self._folder is None:
            return
        file, new = self._folder / name, self._folder / f"{name}{NEW}"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new.write_text(json.dumps(found))
            new.rename(file)
        except OSError as error:
            log(f"{file}: {error.strerror}; a later daemon will not know the program")
            with contextlib.suppress(OSError):
                new.unlink()

    def read(self, name: str, meaning: Callable[[dict[str, Any]], T]) -> T | None:
        """What a note means, by a function that finds its mistakes."""
        if self._folder is None:
            return None
        try:
            found = json.loads(read_plain(str(self._folder / name), MAX_BYTES))
            if not isinstance(found, dict):
                raise ValueError("expected a JSON object")
            return meaning(found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            log(f"{self._folder / name}: {' '.join(str(error).split())}; it counts for nothing")
            return None

    def forget(self, name: str) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def written_s(self) -> dict[str, float]:
        """All of them, and when each was last written; halves that a daemon left as well."""
        found = {}
        with contextlib.suppress(OSError):  # there is no folder, or a file has just gone
            for file in () if self._folder is None else self._folder.iterdir():
                if self._names.fullmatch(file.name.removesuffix(NEW)):
                    found[file.name] = file.lstat().st_mtime
        return found
