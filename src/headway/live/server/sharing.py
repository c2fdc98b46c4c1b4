"""One status for all who ask at about the same time: the same text, made once."""

from __future__ import annotations

from collections.abc import Callable, Generator

Telling = Generator[None, None, bytes]
"""Makes a text in steps."""


class _Round:
    """A text that is being made, or will be."""

    def __init__(self) -> None:
        self.text: bytes | None = None


class Shared:
    """Makes a text for whoever waits for it; every text begins after the last who gets it asked."""

    def __init__(self, tell: Callable[[], Telling]) -> None:
        self._tell = tell
        self._telling: Telling | None = None
        self._now = _Round()
        self._next: _Round | None = None

    def answering(self) -> Telling:
        """Wait for a text that is as new as this call. Whoever waits for a later one helps to make
        the one before."""
        mine = self._next = self._next or _Round()
        while mine.text is None:
            self._step()
            yield
        return mine.text

    def _step(self) -> None:
        if self._telling is None:
            assert self._next is not None
            self._now, self._next = self._next, None
            self._telling = self._tell()
        try:
            next(self._telling)
        except StopIteration as done:
            self._now.text = done.value
            self._telling = None
        except BaseException:
            self._telling = None
            raise
