"""The spec file while the daemon runs: whatever happens to it, the last good one counts."""

from __future__ import annotations

import os

from headway.engine.spec import Spec, parse_spec
from headway.live.server.files import read_plain

MAX_BYTES = 1 << 20


class SpecFile:
    """A spec file that may change at any moment."""

    def __init__(self, path: str | None, *, may_be_missing: bool = False) -> None:
        """The first reading must succeed: OSError, ValueError (BadInput lists every mistake). A
        file that may be missing says nothing while there is none."""
        self.path = path
        self._may_be_missing = may_be_missing
        self.problem = ""
        """Why the file as it is now is not the one that counts."""
        self._seen: tuple[int, ...] = ()
        self.spec = Spec()
        if path is not None:
            self._seen = self._stamp()
            self.spec = self._read()

    def refresh(self) -> bool:
        """Read the file if it is another one than last time; True if its content counts now."""
        if self.path is None or self._stamp() == self._seen:
            return False
        return self.reload()

    def reload(self) -> bool:
        """Read the file, whether it changed or not."""
        if self.path is None:
            return False
        self._seen = self._stamp()
        try:
            self.spec = self._read()
        except (OSError, ValueError, RecursionError) as error:
            self.problem = str(error) or type(error).__name__
            return False
        self.problem = ""
        return True

    def _stamp(self) -> tuple[int, ...]:
        assert self.path is not None
        try:
            info = os.stat(self.path)  # noqa: PTH116 - as the others here
        except OSError:
            return ()
        return info.st_mtime_ns, info.st_size, info.st_ino, info.st_dev

    def _read(self) -> Spec:
        assert self.path is not None
        if self._may_be_missing and not self._seen:
            return Spec()
        data = read_plain(self.path, MAX_BYTES)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}: expected UTF-8 text ({error.reason})") from None
        return parse_spec(text, self.path)
