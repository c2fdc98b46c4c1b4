"""Decisions at ticks only, as GERM takes them (TimeGraph §6.5): for comparison, and slower."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.command import headway
from tests.integration.daemon_client import running_daemon

pytestmark = pytest.mark.live

TICK_MS = 50
GROUPS = 8


def seconds_for_groups(folder: Path, *options: str) -> float:
    """What one client takes for its groups, one after the other."""
    with running_daemon(folder, *options) as daemon, daemon.client() as client:
        client.one_group()
        since = time.monotonic()
        for _ in range(GROUPS):
            client.one_group()
        return time.monotonic() - since


def test_a_group_takes_a_tick_where_decisions_wait_for_one(tmp_path: Path) -> None:
    ticks_s = seconds_for_groups(tmp_path / "ticks", "--tick", f"{TICK_MS}ms")
    events_s = seconds_for_groups(tmp_path / "events", "--no-leases")
    print(f"\n{GROUPS} groups: {events_s:.3f} s by events, {ticks_s:.3f} s by ticks")
    assert ticks_s >= (GROUPS - 1) * TICK_MS / 1000
    assert events_s < ticks_s / 2


def test_the_important_one_is_chosen_at_the_tick_and_a_death_is_too(tmp_path: Path) -> None:
    with (
        running_daemon(tmp_path / "run", "--tick", f"{TICK_MS}ms") as daemon,
        daemon.client("plain") as plain,
        daemon.client("vip") as vip,
    ):
        daemon.ask(do="set", task="vip", priority=9)
        with daemon.client("holder") as holder:
            holder.submit()
            holder.wait_grant()
            plain.submit()
            vip.submit()
        # The holder has left without a word.
        first_ns = vip.wait_grant()
        vip.complete()
        assert plain.wait_grant() > first_ns


@pytest.mark.parametrize("tick", ["0ms", "soon"])
def test_a_tick_that_is_none_is_turned_away(tick: str) -> None:
    result = headway("daemon", "--tick", tick)
    assert result.returncode != 0
    assert "--tick" in result.stderr
    assert "Traceback" not in result.stderr
