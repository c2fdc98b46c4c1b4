"""Programs that run under Headway and that no daemon knows, or not yet: with Vulkan, which passes,
or before their first call of a GPU. They are seen by looking at the processes of this user."""

from __future__ import annotations

import getopt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.live.wire import paths
from headway.view.daemons import NAME_VARIABLE

PASSES = "what it does with Vulkan passes unmanaged"
_LIBRARY = b"/libvulkan.so"
_TOKEN = b"HEADWAY_TOKEN="


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started to be managed."""

    pid: int
    name: str
    launch: bytes
    """The same for all processes of one `headway run`."""
    has_vulkan: bool

    @property
    def task(self) -> str:
        """As tasks are called."""
        return f"{self.name}.{self.pid}"


PYTHON = ("bBc:dEhiIm:OPqRsSuvVW:xX:?", ["check-hash-based-pycs=", "help", "version"])
"""Options of Python, as getopt has them."""


def name_of(pid: int) -> str:
    """What a process is called, printable: a Python program by its script or module, as the
    interposer calls it (shim/core/name.c)."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        if name.startswith("python"):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            name = _script(line.rstrip("\0").split("\0")[1:]) or name
    except OSError:
        name = "?"
    return _printable(name)


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)


def _script(words: list[str]) -> str:
    try:
        options, rest = getopt.getopt(words, *PYTHON)
    except getopt.GetoptError:
        return ""
    given = dict(options)
    if "-c" in given or rest[:1] == ["-"]:
        return ""
    return given.get("-m") or Path(*rest[:1]).name


def started(folder: Path) -> Iterator[Started]:
    """Processes that were started to be managed by the daemon of this folder, of those that this
    user may look at; by their numbers."""
    mark = b"HEADWAY_SOCKET=" + os.fsencode(paths.client_socket(folder))
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            if mark not in variables:
                continue
            token = next((v for v in variables if v.startswith(_TOKEN)), b"")
            vulkan = _LIBRARY in (process / "maps").read_bytes()
        except OSError:
            continue  # it has ended, or is another user's
        pid, given = int(process.name), f"{NAME_VARIABLE}=".encode()
        chosen = next((v[len(given) :] for v in variables if v.startswith(given)), b"")
        name = _printable(chosen.decode(errors="replace")) or name_of(pid)
        yield Started(pid, name, token, vulkan)


def complete(status: dict[str, Any]) -> None:
    """Add programs to a status that the daemon does not know: `unmanaged`, those with Vulkan, and
    `started`, the first process of each launch of which none has called a GPU."""
    found = [one for one in started(Path(status["folder"])) if one.pid != os.getpid()]
    served = {channel["pid"] for channel in status["channels"]}
    known = {one.launch for one in found if one.pid in served or one.has_vulkan}
    launched = {one.launch: one for one in reversed(found) if one.launch not in known}
    status["unmanaged"] = [_entry(one, PASSES) for one in found if one.has_vulkan]
    status["started"] = [_entry(one, "") for one in reversed(launched.values())]


def _entry(one: Started, why: str) -> dict[str, Any]:
    return {"task": one.task, "pid": one.pid, "why": why}
