"""Programs that die in every state, and how long others wait for that."""

from __future__ import annotations

import signal

from tests.integration.daemon_client import (
    Actor,
)

BOUND_MS = 1000
"""Goal: 100 ms plus the running group. Asserted with room for a busy machine."""
FATES = ("kill -9", "stop", "exit")


def meet(fate: str, victim: Actor) -> None:
    if fate == "kill -9":
        victim.signal(signal.SIGKILL)
    elif fate == "stop":
        victim.signal(signal.SIGSTOP)
    else:
        victim.exit()
