"""What a program asks of its daemon, if there is one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headway.live.api import client
from headway.live.wire import paths

PATIENCE_S = 0.5
"""How long a daemon may take to answer before the program goes on without it."""


def folder() -> Path:
    path = os.environ.get("HEADWAY_SOCKET", "")
    return Path(path).parent if path else paths.runtime_folder()


def ask(request: dict[str, Any], patience_s: float = PATIENCE_S) -> dict[str, Any] | None:
    """The daemon's answer; None if there is none. A refusal is the caller's mistake: ValueError."""
    try:
        return client.ask(folder(), request, timeout_s=patience_s)
    except OSError:
        return None
