"""A daemon that several users share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.api.client import ask
from tests.integration.daemon_client import (
    Actor,
    DaemonProcess,
    as_user,
    running_daemon,
)

ANN, BOB = 20_001, 20_002
SPEC = f"""
[allow]
uids = [{ANN}, {BOB}]
priority = 5
channels = 20

[[task]]
name = "player"
reserve = {{ capacity = "5ms", period = "20ms", shared = "video" }}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user can look into."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        (Path(made) / "spec.toml").write_text(SPEC)
        yield Path(made)


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    with running_daemon(folder / "run", "--spec", str(folder / "spec.toml")) as daemon:
        yield daemon
        assert daemon.status()["restarts"] == 0
        assert daemon.log.read_text() == ""


def asks(daemon: DaemonProcess, uid: int, **request: object) -> Any:
    """What the daemon answers this user; a refusal comes back as its text."""
    return as_user(uid, lambda: ask(daemon.folder, request))


def start(daemon: DaemonProcess, uid: int, name: str, **chosen: object) -> Actor:
    """A program of this user, as `headway run` would start it."""
    answer = asks(daemon, uid, do="run", name=name, **chosen)
    actor = Actor(daemon, name, answer["token"], uid)
    actor.do("connect")
    return actor
