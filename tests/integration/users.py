"""Other users, for tests that run as root."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest

NOBODY = 65534
VICTIM = 54321
"""A user that no machine has."""
_READS = "+dac_read_search"
"""These users may read what is root's, Python included, and write nothing of it."""


def as_user(uid: int) -> list[str]:
    """What makes the command behind it another user's."""
    who = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    return ["setpriv", *who, "--inh-caps", _READS, "--ambient-caps", _READS, "--"]


@functools.cache
def why_not() -> str:
    """Why nobody else can be played here; empty if it can be."""
    if os.geteuid() != 0:
        return "only root can become another user"
    if shutil.which("setpriv") is None:
        return "there is no setpriv (util-linux)"
    done = subprocess.run([*as_user(VICTIM), "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"setpriv cannot: {done.stderr.decode()}"


def need_users() -> None:
    """Skip the test, with the reason, where nobody else can be played."""
    if why_not():
        pytest.skip(why_not())
