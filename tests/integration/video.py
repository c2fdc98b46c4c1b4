"""A video of 24 frames a second beside clear bombs (TimeGraph §6.1, Figure 13), by mplayer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.integration.gl import BOMB_SECONDS, Case, Stage, start_important, start_rivals

RATE = 24
WIDTH, HEIGHT = 960, 400
"""Half the paper's in each direction: what a software GPU draws in time when it is alone."""
FRAMES = 96
BOMB_SIZE = "4096"
"""Smaller ones disturb a video little: it needs the GPU seldom, and gets its turns between them."""


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
        return start_important(stage, case, player(path)).frame_rate(seconds, warm_up=1)
    finally:
        stage.stop_programs()
