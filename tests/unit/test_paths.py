"""Where a daemon is looked for, and what on the way there is refused. Other users' folders are made
by root, who may give away what is its own."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.wire import paths
from headway.live.wire.paths import PathError

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of this user alone, with a short name: a socket's may have 107 bytes."""
    for name in ("HEADWAY_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        yield Path(folder)


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_of_this_user_below_tmp_is_fine_and_is_made_for_this_user_alone(
    place: Path,
) -> None:
    folder = place / "one" / "two"
    with pytest.raises(FileNotFoundError):
        paths.check(folder)
    paths.prepare(folder)
    paths.check(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700


@as_root
@pytest.mark.parametrize("which", ["run", "", "run/deep"])
def test_a_folder_that_another_user_put_there_is_refused(place: Path, which: str) -> None:
    folder = place / "run" / "deep"
    folder.mkdir(parents=True)
    os.chown(place / which, NOBODY, NOBODY)
    for refuses in (paths.check, paths.prepare):
        with pytest.raises(PathError, match=rf"{place / which}: belongs to user {NOBODY}"):
            refuses(folder)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_where_others_may_write_is_refused(place: Path, mode: int) -> None:
    folder = place / "run"
    folder.mkdir()
    folder.chmod(mode)
    for refuses in (paths.check, paths.prepare):
        with pytest.raises(PathError, match="others may write there; run chmod go-w"):
            refuses(folder)
    below = folder / "below"
    below.mkdir()
    if mode & 0o1000:  # sticky: what is ours there stays ours
        paths.check(below)
        return
    with pytest.raises(PathError, match="others may write there"):
        paths.check(below)


@pytest.mark.parametrize("which", ["run", "run/deep"])
def test_a_symbolic_link_on_the_way_is_refused(place: Path, which: str) -> None:
    real = place / "real" / "deep"
    real.mkdir(parents=True)
    link = place / which
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(real if which.endswith("deep") else real.parent)
    for refuses in (paths.check, paths.prepare):
        with pytest.raises(PathError, match=f"{link}: found a symbolic link"):
            refuses(place / "run" / "deep")
    with pytest.raises(PathError):
        paths.prepare(place / "run" / "deep" / "new")
    assert not (real / "new").exists()


def test_a_file_in_the_place_of_a_folder_is_refused(place: Path) -> None:
    (place / "run").touch()
    with pytest.raises(PathError, match="found a file"):
        paths.check(place / "run")


def test_a_name_that_is_too_long_for_a_socket_is_refused_before_anybody_waits(place: Path) -> None:
    with pytest.raises(PathError, match="expected at most 107"):
        paths.prepare(place / ("x" * 100))


def test_a_folder_that_cannot_be_made_is_one_line() -> None:
    with pytest.raises(PathError, match="/dev/null"):
        paths.prepare(Path("/dev/null/headway"))


# -- which folder ----------------------------------------------------------------------------------


def test_the_runtime_folder_of_this_user_is_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    assert paths.choose() == (place / "headway", "")
    monkeypatch.setenv("HEADWAY_DIR", str(place / "own"))
    assert paths.choose() == (place / "own", "")


def test_a_relative_folder_is_made_whole(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("HEADWAY_DIR", "here/../run")
    assert paths.choose() == (place / "run", "")


@pytest.mark.parametrize("value", ["", "relative", "/no/such/folder"])
def test_a_runtime_folder_that_is_not_there_is_none(
    place: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert paths.choose() == (paths.fallback(), "")


@as_root
def test_an_inherited_runtime_folder_of_another_user_is_not_used_and_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    os.chown(place, NOBODY, NOBODY)
    found, problem = paths.choose()
    assert found == paths.fallback()
    expected = f"{place}: belongs to user {NOBODY}, expected this user's own"
    assert problem == f"XDG_RUNTIME_DIR is not used: {expected}"


# -- sockets ---------------------------------------------------------------------------------------


@pytest.fixture
def listening(place: Path) -> Iterator[Path]:
    path = paths.control_socket(place)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


def test_a_socket_of_this_user_is_connected_to(listening: Path) -> None:
    with paths.connect(listening, socket.SOCK_STREAM, 5.0) as connection:
        assert paths.credentials(connection) == (os.getpid(), os.geteuid(), os.getegid())


@as_root
def test_a_socket_of_another_user_is_refused(listening: Path) -> None:
    os.chown(listening, NOBODY, NOBODY)
    with pytest.raises(PathError, match="belongs to user"):
        paths.connect(listening, socket.SOCK_STREAM, 5.0)


def test_a_link_to_a_socket_is_refused(listening: Path) -> None:
    moved = listening.with_name("moved")
    listening.rename(moved)
    listening.symlink_to(moved)
    with pytest.raises(PathError, match="expected a socket"):
        paths.connect(listening, socket.SOCK_STREAM, 5.0)


@as_root
def test_who_listens_counts_not_whose_the_socket_is(place: Path) -> None:
    """A socket that was given to this user by whoever listens there."""
    path = paths.control_socket(place)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.seteuid(NOBODY)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        with pytest.raises(PathError, match=f"user {NOBODY} listens there"):
            paths.connect(path, socket.SOCK_STREAM, 5.0)
