"""What a process was started with. A process can make this take for ever, say by memory that nobody
fills: read it where nobody waits (scout.py)."""

from __future__ import annotations

import os

MAX_BYTES = 4 * 1024 * 1024
"""More than Linux starts a program with."""


def variables_of(pid: int, *names: str) -> dict[str, str]:
    """These variables of its environment, as far as they are there; OSError if it is not ours to
    know."""
    fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    data = bytearray(b"\0")
    try:
        while len(data) < MAX_BYTES and (part := os.read(fd, 128 * 1024)):
            data += part
    finally:
        os.close(fd)
    found = {}
    for name in names:
        key = b"\0" + os.fsencode(name) + b"="
        place = data.find(key)
        if place >= 0:
            value = data[place + len(key) :].split(b"\0", 1)[0]
            found[name] = os.fsdecode(bytes(value))
    return found
