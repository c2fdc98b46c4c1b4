"""Files that people name for output: nothing that other users may have put in their place is
followed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.view.errors import UserError
from headway.view.files import check_writable, whole_or_nothing
from headway.view.traces.writer import TraceWriter

NOBODY = 65534


def write(path: Path) -> None:
    with whole_or_nothing(str(path)) as partial:
        partial.write_text("new")


def trace(path: Path) -> None:
    TraceWriter(path).discard()


WAYS: tuple[Callable[[Path], None], ...] = (write, trace, lambda path: check_writable(str(path)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hops", [1, 2])
def test_a_link_that_another_user_put_there_is_not_followed(
    tmp_path: Path, way: Callable[[Path], None], hops: int
) -> None:
    """To a file that only this user may change, from a folder where anybody may make links."""
    precious, link = tmp_path / "precious", tmp_path / "t.pftrace"
    precious.write_text("old")
    planted = link if hops == 1 else tmp_path / "next"
    if hops == 2:
        link.symlink_to(planted)
    planted.symlink_to(precious)
    os.lchown(planted, NOBODY, NOBODY)
    with pytest.raises(UserError, match=f"symbolic link of user {NOBODY}"):
        way(link)
    assert precious.read_text() == "old"


def test_a_link_of_ones_own_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to("real")
    write(link)
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_what_was_planted_under_the_name_of_the_part_is_not_written_to(tmp_path: Path) -> None:
    precious, target = tmp_path / "precious", tmp_path / "t.toml"
    precious.write_text("old")
    (tmp_path / f"t.toml.{os.getpid()}.part").symlink_to(precious)
    write(target)
    assert precious.read_text() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("way", WAYS)
def test_a_device_is_not_replaced(tmp_path: Path, way: Callable[[Path], None]) -> None:
    """Root could."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path):
        with pytest.raises(UserError, match=r"it is|found a folder"):
            way(path)
    assert fifo.is_fifo()


def test_a_circle_of_links_is_one_line(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(UserError, match="links"):
        write(one)
