"""Programs under a daemon that decides at events, or at ticks of 1 ms only (TimeGraph §6.5)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.integration.gl import GEARS, Stage, frame_rates, gate_rate

LEASES, EVENTS, TICKS = "at events, with leases", "at events", "at ticks of 1 ms"
WAYS = {LEASES: (), EVENTS: ("--no-leases",), TICKS: ("--no-leases", "--tick", "1ms")}
"""The papers' managers know no leases: the second and the third are what they compared."""


@contextlib.contextmanager
def deciding(stage: Stage, options: tuple[str, ...]) -> Iterator[None]:
    """A daemon that decides in this way, for as long as this takes."""
    daemon = stage.daemon(*options)
    try:
        yield
    finally:
        stage.stop_programs()
        daemon.terminate()
        daemon.wait()


def measure(
    stage: Stage, options: tuple[str, ...], *, programs: int, seconds: float
) -> list[float]:
    """Frames per second of so many es2gears, as important as each other."""
    with deciding(stage, options):
        started = [stage.start(GEARS, options=("--policy", "prt")) for _ in range(programs)]
        return frame_rates(started, seconds)


def tiny_groups(stage: Stage, options: tuple[str, ...]) -> float:
    """Groups per second of a program that submits one tiny clear after the other."""
    with deciding(stage, options):
        return gate_rate(stage.run(str(stage.built / "gates"), "1", options=["-q"]).stdout)
