"""The daemon's memory barrier, and where it stands."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator

import pytest

from headway.live.wire import fence, pages
from headway.live.wire.layout import CLIENT_PAGE, PAGE

BARRIERS = {
    "x86_64": (bytes.fromhex("f0 48 83 0c 24"), bytes.fromhex("0f ae f0")),  # lock or; mfence
    "aarch64": (bytes.fromhex("bf 3b 03 d5"),),  # dmb ish
}


def test_the_barrier_is_the_processors_own() -> None:
    found = ctypes.cast(fence.fence, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert found is not None
    assert any(barrier in ctypes.string_at(found, 32) for barrier in BARRIERS[platform.machine()])


@pytest.fixture
def made() -> Iterator[pages.Pages]:
    both = pages.Pages()
    yield both
    both.close()


WRITES: dict[str, Callable[[pages.Pages], object]] = {
    "a lease": lambda p: p.set_lease(True),
    "no lease": lambda p: p.set_lease(False),
    "wanted": lambda p: p.set_wanted(True),
    "waits": lambda p: p.set_waits(True),
    "polled": lambda p: p.set_polled(True),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_is_written_comes_before_the_barrier_and_reading_after_it(
    what: str, made: pages.Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the client does it the other way round, one of the two sees the other."""
    made.set_lease(what == "no lease")
    page = bytearray(PAGE)
    with open(f"/proc/self/fd/{made.daemon_fd}", "rb") as file:  # noqa: PTH123 - a descriptor
        before = file.read()
        seen: list[bytes] = []

        def look() -> None:
            file.seek(0)
            file.readinto(page)
            seen.append(bytes(page))

        monkeypatch.setattr(pages, "fence", look)
        WRITES[what](made)
        look()
    assert len(seen) == 2, "one barrier"
    assert before != seen[0] == seen[1], "nothing is written after it"


def test_a_copy_of_a_page_reads_the_marks_after_what_says_that_they_are_all(
    made: pages.Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client counts a mark and says then that no work is without one. Whoever saw the second
    without the first would take the GPU for free."""
    with open(f"/proc/self/fd/{made.client_fd}", "r+b", buffering=0) as file:  # noqa: PTH123
        file.seek(CLIENT_PAGE.at("busy"))
        file.write((1).to_bytes(4, "little"))  # busy

        def mark() -> None:
            file.seek(CLIENT_PAGE.at("issued"))
            file.write((1).to_bytes(4, "little"))

        monkeypatch.setattr(pages, "fence", mark)
        assert made.report.drains
