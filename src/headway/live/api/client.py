"""Talking to the daemon from the command line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headway.live.wire import paths

START_S = 10.0


class NoDaemon(ConnectionError):
    """Nobody answers; one line."""


class Refused(ValueError):
    """The daemon said no; its words."""


def ask(folder: Path, request: dict[str, Any], *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Send one request and return its answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(paths.control_socket(folder)))
            connection.sendall(json.dumps(request).encode() + b"\n")
            data = bytearray()
            while not data.endswith(b"\n"):
                part = connection.recv(65536)
                if not part:
                    raise NoDaemon(f"{folder}: the daemon closed the connection")
                data += part
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise NoDaemon(f"no daemon answers in {folder} ({why})") from None
    answer: dict[str, Any] = json.loads(data)
    if not answer.get("ok"):
        raise Refused(str(answer.get("error")))
    return answer


def is_running(folder: Path) -> bool:
    try:
        ask(folder, {"do": "status"})
    except NoDaemon:
        return False
    return True


def start(folder: Path, *options: str) -> None:
    """Start a private daemon that ends with its last client, and wait until it answers."""
    log = folder / "daemon.log"
    paths.prepare(folder)
    with log.open("ab") as out:
        subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "headway", "daemon", "--until-idle", *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "HEADWAY_DIR": str(folder), "LD_PRELOAD": ""},
        )
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if is_running(folder):
            return
        time.sleep(0.01)
    raise NoDaemon(f"the daemon did not start; {log} may say why")
