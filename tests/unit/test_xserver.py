"""Finding the X server of a process, from what the kernel says."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from pathlib import Path

import pytest

from headway.live.desktop.xserver import display_of, listeners_of, name_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (":1", ":1"),
        (":12.0", ":12"),
        ("unix:3", ":3"),
        ("", ""),
        ("elsewhere:1", ""),
        ("localhost:10.0", ""),
        (":", ""),
        (":1/../../x", ""),
        (":123456789", ""),
        ("/tmp/socket", ""),
    ],
)
def test_only_displays_of_this_machine_count(value: str, expected: str) -> None:
    assert display_of_one_with(A="DISPLAY=:9", DISPLAY=value) == expected


def display_of_one_with(**env: str) -> str:
    """What is found for a process in this environment, once it has that."""
    with subprocess.Popen(["sleep", "60"], env=env) as process:
        while not Path(f"/proc/{process.pid}/environ").read_bytes():
            time.sleep(0.001)
        found = display_of(process.pid)
        process.kill()
    return found


def test_a_process_without_a_display_or_that_is_gone_has_none() -> None:
    with subprocess.Popen(["true"], env={}) as process:
        process.wait()
    assert display_of(process.pid) == ""
    assert name_of(process.pid) == "server"
    assert display_of_one_with(XDISPLAY=":1") == ""


def test_who_listens_on_a_display_is_told_by_the_kernel() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        number = bind_display(server)
        assert listeners_of(f":{number}") == []  # nobody listens yet
        server.listen(1)
        (found,) = listeners_of(f":{number}")
        assert (found.pid, found.uid) == (os.getpid(), os.getuid())
        for _ in range(5):  # nobody accepts: a full queue must not make the daemon wait
            listeners_of(f":{number}")
    assert listeners_of(f":{number}") == []


def bind_display(server: socket.socket) -> int:
    """A display that nobody has; in the abstract namespace, so that no file is left."""
    while True:
        number = random.randrange(20_000, 60_000)
        try:
            server.bind(f"\0/tmp/.X11-unix/X{number}")
        except OSError:
            continue
        return number
