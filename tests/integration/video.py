"""A video of 24 frames a second beside clear bombs (TimeGraph §6.1, Figure 13), by mplayer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tests.integration.gl import BOMB_SECONDS, Case, Program, Stage, start_important, start_rivals

RATE = 24
WIDTH, HEIGHT = 960, 400
"""Half the paper's in each direction: what a software GPU draws in time when it is alone."""
FRAMES = 96
BOMB_SIZE = "4096"
"""Smaller ones disturb a video little: it needs the GPU seldom, and gets its turns between them."""

QUEUE_S = 4.0
"""A bomb that was alone has had its driver queue as much as that takes, which whoever comes first
waits for, once and managed or not: some hundred clears, 12 ms each on a slow machine."""


def write(path: Path) -> None:
    """Stripes that move, uncompressed (YUV4MPEG2): nothing to decode, and no encoder needed."""
    size = WIDTH * HEIGHT
    grey = bytes([128]) * (size // 2)
    with path.open("wb") as file:
        file.write(f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F{RATE}:1 Ip A1:1 C420jpeg\n".encode())
        for number in range(FRAMES):
            stripes = bytes((4 * number + x) % 256 for x in range(256))
            file.write(b"FRAME\n" + (stripes * (size // 256 + 1))[:size] + grey)


def player(path: Path) -> Sequence[str]:
    return ("mplayer", "-noconfig", "all", "-nosound", "-vo", "gl", "-loop", "0", str(path))


def cases(bombs: int) -> list[Case]:
    """Unmanaged, by priority, and with the paper's reserves."""
    shared = ("--reserve", "5ms/40ms", "--shared", "all")
    return [
        Case("unmanaged", bombs, None),
        Case("PRT", bombs),
        Case("PRT, bombs share 5ms/40ms", bombs, "prt", shared),
        Case("the same, video in 10ms/40ms", bombs, "prt", shared, ("--reserve", "10ms/40ms")),
    ]


def measure(
    stage: Stage, case: Case, path: Path, seconds: float, bomb_size: str = BOMB_SIZE
) -> float:
    """Frames per second that the player shows in such company."""
    try:
        start_rivals(stage, case, (str(stage.built / "bomb"), BOMB_SECONDS, bomb_size))
        shown = start_important(stage, case, player(path))
        _settle(shown)
        return shown.frame_rate(seconds)
    finally:
        stage.stop_programs()


def _settle(shown: Program) -> None:
    """Until it plays, or does not after all."""
    end = time.monotonic() + QUEUE_S
    while shown.frames() < RATE // 2 and time.monotonic() < end:
        time.sleep(0.05)
