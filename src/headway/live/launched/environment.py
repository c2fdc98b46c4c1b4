"""What launched programs find: the interposer's environment, and whether there is MPS."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headway.live.api import client, launch
from headway.live.devices import mps

if TYPE_CHECKING:
    from headway.live.launched.program import Program

WITHOUT_MPS = (
    "headway: without MPS a share cannot isolate processes, so shares stay at 100%; where programs"
    " are gated, the important ones have the GPU in time instead (headway daemon --mps starts MPS)"
)


class Environment:
    """Makes the environments of one launcher's programs."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        ended: Callable[[Program], None],
        *,
        gated: bool = True,
        starts_daemon: bool = True,
    ) -> None:
        """`gated`: programs wait at the daemon's gate as well, as under `headway run`."""
        self._folder = folder
        self._say = say
        self.ended = ended
        self._gated = gated
        self._starts_daemon = starts_daemon
        self._said: set[str] = set()
        self._variables: Mapping[str, str] = {}

    def maker(self, name: str, priority: int, path: str) -> Callable[[], Mapping[str, str]]:
        """Makes the environment of a program, anew for each start: a launch is known by a token
        that counts for one process."""
        first = [self._make(name, priority, path)]
        self._variables = first[0]
        return lambda: first.pop() if first else self._make(name, priority, path)

    def _make(self, name: str, priority: int, path: str) -> Mapping[str, str]:
        if not self._gated:
            self._have_daemon()
            return {**os.environ, **self._known_mps()}
        options = {"name": name, "priority": str(priority)}
        try:
            return launch.managed(self._folder, path, options, starts_daemon=self._starts_daemon)
        except OSError as error:
            self._once(f"headway: {error}; {name} is not gated")
            return dict(os.environ)

    def _have_daemon(self) -> None:
        try:
            if self._starts_daemon and not client.is_running(self._folder):
                client.start(self._folder)
        except OSError as error:
            self._once(f"headway: {error}; nothing decides on shares")

    def _known_mps(self) -> Mapping[str, str]:
        """The MPS server of the daemon, if it has one."""
        ours = mps.Mps(self._folder)
        return ours.environment if ours.folder.is_dir() else {}

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    @property
    def pipes(self) -> Path:
        """Where programs look for MPS."""
        return Path(self._variables.get(mps.PIPES, os.environ.get(mps.PIPES, mps.DEFAULT_PIPES)))

    @property
    def mps(self) -> bool:
        """Whether programs run under MPS."""
        try:
            with os.scandir(self.pipes) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def say_without_mps(self) -> None:
        self._once(WITHOUT_MPS)

    def terminate(self, pid: int) -> bool:
        """Have MPS end a process's work on the GPU."""
        return mps.terminate_client(self.pipes, pid)
