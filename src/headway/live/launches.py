"""What launchers said of programs, found by the token that a program shows when it connects.

It is kept in files as well, so that a daemon that was killed or stopped forgets nothing: the next
one knows the programs that run on, and does with them what their users wanted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from headway.live import requests
from headway.live.files import read_plain
from headway.live.loop import log
from headway.live.requests import Request
from headway.live.wishes import Wish

KEPT_S = 86_400.0
"""How long a token counts after it was last shown; programs may start others at any time."""
TIDY_S = 60.0
"""How often old ones are looked for, and how long programs have to come back to a new daemon."""
MOST = 10_000
MAX_BYTES = 4096
NEW = ".new"
TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass
class _Launch:
    wish: Wish
    words: Request
    """The same as it was said: that is what files keep."""
    shown_s: float
    """When its token was last shown, as files say it: in seconds of the wall clock."""


class Launches:
    """In a folder of the daemon's own; without one, in memory alone."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, _Launch] = {}
        self._tidied_s = time.monotonic()

    def expect(
        self, wish: Wish, said: Request | None = None, shown: AbstractSet[str] = frozenset()
    ) -> str:
        """Keep what a launcher wants, and said in its own words; `shown` are tokens in use."""
        if time.monotonic() > self._tidied_s + TIDY_S or len(self._known) >= MOST:
            self._tidy(shown)
        token = secrets.token_hex(16)
        self._known[token] = _Launch(wish, _words(said or {}), time.time())
        self._write(token)
        return token

    def find(self, token: str) -> Wish | None:
        """What was said with it, to this daemon or one before."""
        if TOKEN.fullmatch(token) is None:
            return None
        launch = self._known.get(token) or self._read(token)
        if launch is None:
            return None
        self._known[token] = launch
        launch.shown_s = time.time()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.utime(self._folder / token)
        return launch.wish

    def change(self, token: str, said: Request) -> None:
        """Something else is wanted of the program now."""
        launch = self._known.get(token)
        if launch is not None:
            launch.words |= _words(said)
            launch.wish = requests.wish(launch.words, launch.wish.uid)
            self._write(token)

    def _write(self, token: str) -> None:
        """All of it or nothing. Where that is not possible, this daemon knows it all the same."""
        if self._folder is None:
            return
        launch, file = self._known[token], self._folder / token
        new = file.with_suffix(NEW)
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            new.write_text(json.dumps({"uid": launch.wish.uid, "said": launch.words}))
            new.rename(file)
        except OSError as error:
            log(f"{file}: {error.strerror}; a later daemon will not know the program")
            with contextlib.suppress(OSError):
                new.unlink()

    def _read(self, token: str) -> _Launch | None:
        if self._folder is None:
            return None
        try:
            found = json.loads(read_plain(str(self._folder / token), MAX_BYTES))
            if not isinstance(found, dict) or not isinstance(found.get("said"), dict):
                raise ValueError("expected a user and what was said")
            words = _words(found["said"])
            return _Launch(requests.wish(words, int(found["uid"])), words, 0.0)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            log(f"{self._folder / token}: {error}; it counts for nothing")
            return None

    def _tidy(self, shown: AbstractSet[str]) -> None:
        """Forget what nobody has shown for long, or, where there are too many, for longest.
        Programs that are connected show theirs all the time."""
        self._tidied_s = time.monotonic()
        for token in shown:
            self.find(token)
        last = self._files() | {token: launch.shown_s for token, launch in self._known.items()}
        oldest_first = sorted(last, key=last.__getitem__)
        for number, token in enumerate(oldest_first):
            if number <= len(last) - MOST or last[token] < time.time() - KEPT_S:
                self._forget(token)

    def _forget(self, token: str) -> None:
        self._known.pop(token, None)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / token).unlink()

    def _files(self) -> dict[str, float]:
        """Those of daemons before this one as well, and when they were last shown."""
        found = {}
        with contextlib.suppress(OSError):  # there is no folder, or a file has just gone
            for file in () if self._folder is None else self._folder.iterdir():
                found[file.name] = file.lstat().st_mtime
        return found


def _words(said: Request) -> Request:
    """What of it is about the program."""
    return {key: said[key] for key in requests.WISHES if said.get(key) is not None}
