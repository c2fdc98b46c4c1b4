"""CudaMon's protocol on stderr: a program says "missed" or "pass" after each of its jobs (§4.4).

These words are taken out of the stream; all else goes on to the launcher's own stderr, as it was.
"""

from __future__ import annotations

import re

LONGEST = 64
"""A line that may still become words is held back until so much of it is there; then words that
another word follows count."""
_WORDS = re.compile(rb"(?:(?:missed|pass)[\s\0]*)+")
_WORD = re.compile(rb"missed|pass")
_SURE = re.compile(rb"(?:(?:missed|pass)[\s\0]*)+(?=missed|pass)")
"""Words that another word follows: they are no beginning of other text."""
_BEGINNING = re.compile(rb"(?:(?:missed|pass)[\s\0]*)*(?:m|mi|mis|miss|misse|p|pa|pas)?", re.DOTALL)


class Words:
    """Reads one program's stderr."""

    def __init__(self) -> None:
        self._held = b""
        """The beginning of a line that may become words."""
        self._at_start = True
        """The next byte begins a line."""

    @property
    def holds(self) -> bool:
        """Something is held back, until more comes or `flush` is called."""
        return bool(self._held)

    def feed(self, data: bytes) -> tuple[str, bytes]:
        """What the program said of its jobs, `p` or `m` for each, and what is to go on."""
        jobs, rest = "", bytearray()
        lines = (self._held + data).split(b"\n")
        self._held = b""
        for line in lines[:-1]:
            if self._at_start and _WORDS.fullmatch(line):
                jobs += _jobs(line)
            else:
                rest += line + b"\n"
            self._at_start = True
        last = lines[-1]
        if self._at_start and len(last) > LONGEST and (sure := _SURE.match(last)):
            # A program that ends no line says word after word.
            jobs += _jobs(sure[0])
            last = last[sure.end() :]
        if self._at_start and len(last) <= LONGEST and _BEGINNING.fullmatch(last):
            self._held = last
        else:
            rest += last
            self._at_start = self._at_start and not last
        return jobs, bytes(rest)

    def flush(self) -> tuple[str, bytes]:
        """Nothing follows for a while: a word that no end of a line follows is one as well."""
        held, self._held = self._held, b""
        if _WORDS.fullmatch(held):
            return _jobs(held), b""
        self._at_start = self._at_start and not held
        return "", held


def _jobs(line: bytes) -> str:
    return "".join("m" if word == b"missed" else "p" for word in _WORD.findall(line))
