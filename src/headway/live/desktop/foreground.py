"""Whoever has the foreground window goes first among the `*` tasks (AGPA, TimeGraph §3).

TimeGraph asks periodically; here the X server tells. The paper has one task per window; a program
may have several channels, and they all count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.engine.priorities import Automatic
from headway.live.desktop.x11.names import parse_display
from headway.live.desktop.x11.session import Owner
from headway.live.desktop.x11.watcher import Watcher
from headway.live.gate.channel import Channel, Peer
from headway.live.server.loop import log

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

OFF = "none"
"""Instead of a display: follow none, whatever programs say."""
GENERATIONS = 32


class Foreground:
    """Follows the display, and gives its word to the engine."""

    def __init__(self, daemon: Daemon, display: str | None) -> None:
        """`display` is the daemon's own; None: the one that a program of the same user names."""
        self._daemon = daemon
        self._given = display
        self.watcher = Watcher(daemon.loop, self._found)
        self.owner: Owner | None = None
        self._with_window: set[int] = set()
        """Channels of programs that were seen to have a window of their own."""

    def start(self) -> None:
        if self._given and self._given != OFF:
            self._follow(self._given, None)

    def offer(self, display: object, authority: object, peer: Peer) -> None:
        """A program is about to run on this display. It counts if the daemon has none, or none that
        answers, and if it is of the same user: the word of another's X server is nothing to us."""
        if self._given or self.watcher.follows or peer.uid != os.geteuid():
            return
        now = self.watcher.display
        if isinstance(display, str) and display and (now is None or now.name != display):
            is_file = isinstance(authority, str) and Path(authority).is_absolute()
            self._follow(display, str(authority) if is_file else None)

    def _follow(self, name: str, authority: str | None) -> None:
        try:
            self.watcher.follow(parse_display(name, authority))
        except ValueError as error:  # a line in the log, and nobody is in the foreground
            if self.watcher.problem != str(error):
                log(f"no display is followed: {error}")
            self.watcher.problem = str(error)

    # -- from a window to tasks --------------------------------------------------------------

    def _found(self, owner: Owner | None) -> None:
        self.owner = owner
        self.refresh()

    def arrived(self, channel: Channel) -> None:
        """A channel may come later than the focus. Only its own family is looked at here, because
        channels can be many."""
        owner, pid = self.owner, channel.peer.pid
        if owner is not None and owner.pid in (pid, *_ancestors(pid, {})):
            self.refresh()

    def refresh(self) -> None:
        """Who is in the foreground, as things are now."""
        tasks = [channel.task for channel in self._behind(self.owner) if channel.task is not None]
        if set(tasks) != set(self._daemon.schedulers.shown):
            self._daemon.show(tasks)

    def _behind(self, owner: Owner | None) -> list[Channel]:
        """The channels of the program that has the window; if it has none, those of the programs it
        started. A launcher or a terminal has the window of what runs in it, unless that was seen
        with one of its own."""
        if owner is None or owner.pid is None:
            return []
        everybody = [c for c in self._daemon.channels.values() if c.task is not None]
        exact = [c for c in everybody if c.peer.pid == owner.pid]
        if exact:
            self._with_window &= self._daemon.channels.keys()
            self._with_window.update(c.number for c in exact)
            return exact
        parents: dict[int, int] = {}
        return [
            channel
            for channel in everybody
            if channel.task is not None
            and isinstance(channel.task.rule, Automatic)
            and channel.number not in self._with_window
            and owner.pid in _ancestors(channel.peer.pid, parents)
        ]

    def describe(self) -> dict[str, Any]:
        """For `headway status`."""
        watcher, owner = self.watcher, self.owner
        entry: dict[str, Any] | None = None
        if owner is not None:
            tasks = [task.name for task in self._daemon.schedulers.shown]
            entry = {"window": owner.window, "pid": owner.pid, "by": owner.by, "tasks": tasks}
        return {
            "display": None if watcher.display is None else watcher.display.name,
            "display_problem": watcher.problem,
            "foreground": entry,
        }


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """The processes that started it, as far as they are alive; `parents` keeps what was read."""
    for _ in range(GENERATIONS):
        if pid not in parents:
            parents[pid] = _parent(pid)
        pid = parents[pid]
        if pid <= 1:
            return
        yield pid


def _parent(pid: int) -> int:
    """0: there is none that can be seen. A name may hold spaces and brackets: look behind it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
