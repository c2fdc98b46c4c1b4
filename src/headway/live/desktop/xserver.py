"""Which X server a process shows its windows on, by the kernel's word.

A program's DISPLAY is what it was started with; who listens on that display is told by the peer
credentials of a connection of our own, which says nothing and ends at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from pathlib import Path

from headway.live.gate.channel import Peer, peer_of, pidfd_of
from headway.live.identity.process import variables_of

_LOCAL = re.compile(r"(?:unix)?:(\d{1,5})(?:\.\d+)?")
_FOLDER = "/tmp/.X11-unix"  # noqa: S108 - where X servers listen


def display_of(pid: int) -> str:
    """The local display in a process's environment, such as `:1`; empty if there is none, or if it
    is not ours to know."""
    try:
        found = _LOCAL.fullmatch(variables_of(pid, "DISPLAY").get("DISPLAY", ""))
    except OSError:
        return ""
    return f":{found[1]}" if found else ""


def listeners_of(display: str) -> list[Peer]:
    """Who listens there, at the abstract address and at the path: anybody may do so at either that
    is free. Never waits: a server that has no room for us has none today."""
    path = f"{_FOLDER}/X{display[1:]}"
    found: list[Peer] = []
    for address in ("\0" + path, path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                connection.connect(address)
                peer = peer_of(connection)
                if peer.pid > 0 and peer not in found and _is_alive(connection, peer):
                    found.append(peer)
    return found


def _is_alive(connection: socket.socket, peer: Peer) -> bool:
    """Whether the process that began to listen is there still: its number may be another's by now,
    and the socket somebody else's."""
    try:
        pidfd = pidfd_of(connection, peer)
    except OSError:
        return False
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def name_of(pid: int) -> str:
    """What the process is called, safe to print."""
    try:
        text = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "server"
    return "".join(c if c.isprintable() else "?" for c in text) or "server"
