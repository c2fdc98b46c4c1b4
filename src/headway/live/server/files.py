"""Reading files that people name, without ever waiting for them."""

from __future__ import annotations

import os
import stat


def read_plain(path: str, max_bytes: int) -> bytes:
    """A whole plain file: a pipe or a device in its place must not make the daemon wait."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path}: expected a plain file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{path}: expected at most {max_bytes} bytes")
    return data
