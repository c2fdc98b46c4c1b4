"""What was said of programs: by their launchers, and by programs of themselves.

A launcher's words are found by the token that the program shows when it connects; a program's own
by its process. Both are kept as notes, so that a daemon that was killed or stopped forgets nothing:
the next one knows the programs that run on, and does with them what their users wanted.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from headway.live.identity.options import TaskOptions
from headway.live.server import requests
from headway.live.server.notes import Notes
from headway.live.server.requests import Refusal, Request

KEPT_S = 86_400.0
"""How long a token counts after it was last shown by somebody who is dead: he may have left others
behind."""
MOST = 10_000
"""Notes of daemons before that are kept."""
MOST_OF_USER = 2000
LOOKED_AT = 8
"""Launches that are looked at, whether their processes are there, to make room for one more."""
TOKEN = re.compile(r"[0-9a-f]{32}")
PROCESS = re.compile(r"[0-9]+\.[0-9]+")
MAX_CLAIMS = 100
"""Tasks within tasks of one process."""
MAX_CLAIMING = 1000


def _words(said: Request) -> Request:
    """What of it is about the program: that is what notes keep."""
    if not isinstance(said, dict):
        raise TypeError("expected what was said by its keys")
    return {key: said[key] for key in requests.TASK_OPTIONS if said.get(key) is not None}


Life = tuple[int, int]
"""A process, though its number will be another's one day: that, and when it began."""
NOBODY: Life = (0, 0)


def life(pid: int) -> Life:
    return pid, _born(pid)


def _born(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _is_alive(who: Life) -> bool:
    return who[1] != 0 and _born(who[0]) == who[1]


# -- launches ------------------------------------------------------------------------------------


@dataclass
class _Launch:
    options: TaskOptions
    words: Request
    lives: list[Life]
    """The process that was launched, and the one that showed the token last."""
    shown_s: float
    """When that was, in seconds of the wall clock, as files have it."""


class Launches:
    """What launchers said. Each user has so much room; what makes room is what was not shown for
    longest, of those whose processes are gone, so nobody's launch is forgotten for another's."""

    def __init__(self, folder: Path | None = None) -> None:
        self._notes = Notes(folder, TOKEN)
        self._known: dict[str, _Launch] = {}
        self._users: dict[int, dict[str, None]] = {}
        """The tokens of each user; those that were not shown, nor looked at, for longest first."""

    def expect(self, options: TaskOptions, said: Request | None = None, who: Life = NOBODY) -> str:
        """Keep what is wanted of this process, and what was said in the launcher's own words.
        Refusal: so many programs of its user run already."""
        self._make_room(options.uid)
        token = secrets.token_hex(16)
        self._keep(token, _Launch(options, _words(said or {}), [who, who], time.time()))
        self._write(token)
        return token

    def _make_room(self, uid: int) -> None:
        own = self._users.setdefault(uid, {})
        for token in list(islice(own, LOOKED_AT)):
            launch, full = self._known[token], len(own) >= MOST_OF_USER
            old = launch.shown_s < time.time() - KEPT_S
            if (old or full) and not self._is_used(token):
                self._forget(token)
            elif full:  # the next one looks at others
                own[token] = own.pop(token)
            else:
                break
        if len(own) >= MOST_OF_USER:
            raise Refusal(f"{len(own)} programs that this user launched run; expected fewer")

    def _keep(self, token: str, launch: _Launch) -> None:
        own = self._users.setdefault(launch.options.uid, {})
        own.pop(token, None)
        self._known[token], own[token] = launch, None

    def _forget(self, token: str) -> None:
        launch = self._known.pop(token, None)
        if launch is not None:
            self._users[launch.options.uid].pop(token, None)
        self._notes.forget(token)

    def find(self, token: str, who: Life = NOBODY) -> TaskOptions | None:
        """What was said with the token that this process shows, to this daemon or one before."""
        if TOKEN.fullmatch(token) is None:
            return None
        launch = self._known.get(token) or self._notes.read(token, _launch)
        if launch is None:
            return None
        self._keep(token, launch)
        launch.shown_s = time.time()
        if launch.lives[-1] != who:
            launch.lives[-1] = who
            self._write(token)
        return launch.options

    def change(self, token: str, said: Request) -> None:
        """Something else is wanted of the program now."""
        launch = self._known.get(token)
        if launch is not None:
            launch.words |= _words(said)
            launch.options = requests.task_options(launch.words, launch.options.uid)
            self._write(token)

    def _write(self, token: str) -> None:
        launch = self._known[token]
        said = {"uid": launch.options.uid, "said": launch.words, "lives": launch.lives}
        self._notes.write(token, said)

    def tidy(self) -> None:
        """At the start: of what daemons before knew, forget what nobody has shown for long, unless
        one who did is alive; and, where there are too many, what was not shown for longest."""
        last_s = self._notes.written_s()
        for number, token in enumerate(sorted(last_s, key=last_s.__getitem__)):
            too_many = number < len(last_s) - MOST
            if too_many or (last_s[token] < time.time() - KEPT_S and not self._is_used(token)):
                self._forget(token)

    def _is_used(self, token: str) -> bool:
        if TOKEN.fullmatch(token) is None:
            return False
        launch = self._known.get(token) or self._notes.read(token, _launch)
        return launch is not None and any(map(_is_alive, launch.lives))


def _launch(note: dict[str, Any]) -> _Launch:
    words = _words(note["said"])
    lives = [(int(pid), int(born)) for pid, born in note["lives"]]
    if len(lives) != 2:
        raise ValueError("expected two processes")
    return _Launch(requests.task_options(words, int(note["uid"])), words, lives, 0.0)


# -- claims --------------------------------------------------------------------------------------


@dataclass
class _Claims:
    options: list[TaskOptions]
    words: list[Request]


class Claims:
    """What processes say of themselves: the innermost of their tasks last."""

    def __init__(self, folder: Path | None = None) -> None:
        self._notes = Notes(folder, PROCESS)
        self._known: dict[Life, _Claims] = {}

    def tidy(self) -> None:
        """Forget what the dead said."""
        for name in self._notes.written_s():
            pid, _, born = name.partition(".")
            if not born.isdigit() or not _is_alive((int(pid), int(born))):
                self._notes.forget(name)

    def of(self, who: Life) -> list[TaskOptions]:
        claims = self._find(who)
        return [] if claims is None else claims.options

    def begin(self, who: Life, options: TaskOptions, said: Request) -> None:
        claims = self._find(who) or _Claims([], [])
        if len(claims.options) >= MAX_CLAIMS:
            return
        if len(self._known) >= MAX_CLAIMING:
            for life in list(islice(self._known, LOOKED_AT)):
                if _is_alive(life):  # the next one looks at others
                    self._known[life] = self._known.pop(life)
                else:
                    self._forget(life)
        self._known[who] = claims
        claims.options.append(options)
        claims.words.append(_words(said))
        self._write(who)

    def end(self, who: Life) -> None:
        """Of the innermost."""
        claims = self._find(who)
        if claims is None:
            return
        claims.options.pop()
        claims.words.pop()
        if claims.options:
            self._write(who)
        else:
            self._forget(who)

    def _find(self, who: Life) -> _Claims | None:
        if who not in self._known and (found := self._notes.read(_name(who), _claims)) is not None:
            self._known[who] = found
        return self._known.get(who)

    def _write(self, who: Life) -> None:
        claims = self._known[who]
        said = {"uid": claims.options[0].uid, "said": claims.words}
        self._notes.write(_name(who), said)

    def _forget(self, who: Life) -> None:
        self._known.pop(who, None)
        self._notes.forget(_name(who))


def _name(who: Life) -> str:
    return "{}.{}".format(*who)


def _claims(note: dict[str, Any]) -> _Claims:
    words = [_words(one) for one in note["said"]]
    if not 0 < len(words) <= MAX_CLAIMS:
        raise ValueError(f"expected 1 to {MAX_CLAIMS} tasks, found {len(words)}")
    return _Claims([requests.task_options(one, int(note["uid"])) for one in words], words)
