"""A run told from the middle on."""

from __future__ import annotations

from headway.engine.events import (
    Event,
    Recorder,
)
from headway.engine.snapshot import retell
from tests.bench.drives import (
    Drive,
)


def take_up(drive: Drive, ms: int) -> list[Event]:
    """The stream of somebody who comes at this time."""
    events: list[Event] = []

    def do(now_ns: int) -> None:
        recorder = Recorder(events.append)
        drive.engine.now_ns = now_ns
        recorder.began(len(drive.engine.gpus), now_ns)
        retell([drive.engine], recorder)
        drive.engine.attach(recorder)

    drive.at(ms, do)
    return events
