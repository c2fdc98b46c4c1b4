"""A terminal that tests can look at and type into."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.integration.daemon_client import wait_until


class Terminal:
    """One command in tmux, with a server of its own; the shell around it says how it ended."""

    def __init__(self, size: tuple[int, int], command: str, env: Mapping[str, str]) -> None:
        self._name = f"headway-{uuid.uuid4().hex}"
        width, height = map(str, size)
        settings = ["-f", "/dev/null"]
        script = f"echo BEFORE; {command}; echo CODE=$?; stty -a; echo ENDED; cat"
        self._tmux(
            *settings, "new-session", "-d", "-x", width, "-y", height, "bash", "-c", script, env=env
        )

    def _tmux(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        result = subprocess.run(
            ["tmux", "-u", "-L", self._name, *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return result.stdout

    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    def escapes(self) -> str:
        """With the colours and styles."""
        return self._tmux("capture-pane", "-p", "-e")

    def lines(self) -> list[str]:
        return self.text().splitlines()

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def wait_for(self, *words: str) -> str:
        """Until all of this is on the screen."""
        try:
            wait_until(lambda: all(word in self.text() for word in words), f"{words} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}; there is:\n{self.text()}") from None
        return self.text()

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._tmux("kill-server")


@contextlib.contextmanager
def terminal(
    size: tuple[int, int], command: list[str | Path], env: Mapping[str, str]
) -> Iterator[Terminal]:
    made = Terminal(size, shlex.join(map(str, command)), env)
    try:
        yield made
    finally:
        made.close()
