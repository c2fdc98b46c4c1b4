"""Programs that run under Headway and pass it by with Vulkan. No daemon hears of them: they are
seen by looking at the processes of this user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.live.wire import paths

PASSES = "what it does with Vulkan passes unmanaged"
_LIBRARY = b"/libvulkan.so"


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """A process that has Vulkan with it."""

    pid: int
    name: str

    @property
    def task(self) -> str:
        """As tasks are called."""
        return f"{self.name}.{self.pid}"


def with_vulkan(folder: Path) -> Iterator[Unmanaged]:
    """Programs that were started to be managed by the daemon of this folder, of those that this
    user may look at."""
    mark = b"HEADWAY_SOCKET=" + os.fsencode(paths.client_socket(folder))
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if mark not in (process / "environ").read_bytes().split(b"\0"):
                continue
            if _LIBRARY in (process / "maps").read_bytes():
                name = (process / "comm").read_text(errors="replace").strip()
                shown = "".join(c if c.isprintable() else "?" for c in name)
                yield Unmanaged(int(process.name), shown)
        except OSError:
            continue  # it has ended, or is another user's
