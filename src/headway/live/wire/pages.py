"""The two pages a client shares with the daemon, each a sealed memfd.

The daemon's page is sealed against future writes after the daemon has mapped it, so a client can
read it and nothing else, whatever it tries with the descriptor. Neither can be resized, so reading
the client's page can never fault.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from headway.engine.launching import Launch
from headway.engine.rendering import Row
from headway.engine.rendering.published import Published
from headway.engine.turns.port import JobReport
from headway.live.wire.fence import fence
from headway.live.wire.layout import (
    CLIENT_PAGE,
    COEFFICIENT,
    COEFFICIENTS,
    DAEMON_PAGE,
    JOB,
    JOBS,
    LAUNCHED,
    LAUNCHES,
    MAGIC,
    PAGE,
    PAUSES,
    ROW,
    ROWS,
    VERSION,
)
from headway.live.wire.protocol import (
    ITS_END,
    ITS_MARK,
    ClientPage,
    parse_client_page,
    parse_job,
)
from headway.live.wire.records import Word

MARKS_AT = CLIENT_PAGE.at("issued")
"""A copy of a page is made in two parts: what stands before this, and the rest after it."""
_GIVEN, _OPENED, _CLOSED = (
    (place.start, place.stop - place.start)
    for place in map(CLIENT_PAGE.slice, ("given", "opened", "closed"))
)
_ROW = ROW.select(*Row._fields)
_LAUNCHED = LAUNCHED.select(*Launch._fields)
_COSTS = COEFFICIENT.names[1:]
F_ADD_SEALS = 1033
MOST_LEASES = 2**32 - 1
"""Then their numbers begin again."""
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 1, 2, 4, 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MAP_FAILED = ctypes.c_void_p(-1).value


def _memfd(name: str) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, PAGE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _map(fd: int, protection: int) -> int:
    """An address. Python's own mmap would keep a copy of the descriptor open for every page, and
    descriptors are what bounds how many clients there can be."""
    address: int | None = _libc.mmap(None, PAGE, protection, mmap.MAP_SHARED, fd, 0)
    if address is None or address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address


class _Words:
    """Words that only clients use that take turns: there may be a thousand of the others."""

    __slots__ = (
        "asks",
        "at_once",
        "end_marked",
        "end_marks",
        "gated",
        "jobs",
        "open",
        "paused",
        "pauses",
        "piece",
        "polled",
        "rest",
        "tell_after",
        "waiting",
        "waits",
        "wanted",
    )

    def __init__(self, daemon: int, client: int) -> None:
        self.at_once = DAEMON_PAGE.word(daemon, "at_once")
        self.wanted = DAEMON_PAGE.word(daemon, "wanted")
        self.waits = DAEMON_PAGE.word(daemon, "waits")
        self.polled = DAEMON_PAGE.word(daemon, "polled")
        self.rest = DAEMON_PAGE.word(daemon, "rest_ns")
        self.tell_after = DAEMON_PAGE.word(daemon, "tell_after")
        self.asks = CLIENT_PAGE.word(client, "asks")
        self.paused = CLIENT_PAGE.word(client, "paused")
        self.jobs = CLIENT_PAGE.word(client, "jobs")
        self.pauses = CLIENT_PAGE.words(client, "pauses")
        self.gated = CLIENT_PAGE.word(client, "gated")
        self.open = CLIENT_PAGE.word(client, "open")
        self.piece = CLIENT_PAGE.word(client, "piece_ns")
        self.waiting = CLIENT_PAGE.word(client, "waiting")
        self.end_marks = CLIENT_PAGE.word(client, "end_marks")
        self.end_marked = CLIENT_PAGE.word(client, "end_marked")


Heart = Word
"""Where a client sees when the daemon last showed that it lives; gone when its page is closed."""


class Pages:
    """Both pages of one client, as the daemon sees them."""

    def __init__(self, pid: int = 0) -> None:
        self._pid = pid
        self.daemon_fd = self.client_fd = -1
        self._daemon = self._client = 0
        self._lease: Word | None = None
        self._leases = 0
        self._held = False
        """Under a lease, pieces that have not begun wait all the same."""
        self._turns: _Words | None = None
        try:
            self.daemon_fd = _memfd("headway-daemon")
            self.client_fd = _memfd("headway-client")
            self._daemon = _map(self.daemon_fd, mmap.PROT_READ | mmap.PROT_WRITE)
            self._client = _map(self.client_fd, mmap.PROT_READ | mmap.PROT_WRITE)
            self._seal()
        except OSError:
            self.close()
            raise
        DAEMON_PAGE.word(self._daemon, "magic").value = MAGIC
        DAEMON_PAGE.word(self._daemon, "version").value = VERSION
        # Aligned 32- and 64-bit stores: a client never sees half of one.
        self.heart = DAEMON_PAGE.word(self._daemon, "heartbeat_ns")
        self._lease = DAEMON_PAGE.word(self._daemon, "lease")
        self._split = DAEMON_PAGE.word(self._daemon, "split_ns")
        self._window = DAEMON_PAGE.word(self._daemon, "window_ns")
        self._longest = DAEMON_PAGE.word(self._daemon, "longest_ns")
        self._deadline = DAEMON_PAGE.word(self._daemon, "deadline_ns")
        self._server = DAEMON_PAGE.word(self._daemon, "server")
        self._busy = CLIENT_PAGE.word(self._client, "busy")
        self._passed = CLIENT_PAGE.word(self._client, "passed")
        self._frames = CLIENT_PAGE.word(self._client, "frames")
        self._last = CLIENT_PAGE.word(self._client, "last_ns")
        self._used = CLIENT_PAGE.word(self._client, "used_ns")
        self._rows = CLIENT_PAGE.word(self._client, "rows")
        self._launches = CLIENT_PAGE.word(self._client, "launches")

    @property
    def _words(self) -> _Words:
        """While the pages are there."""
        if self._turns is None:
            self._turns = _Words(self._daemon, self._client)
            self._turns.open.value = self._is_open
        return self._turns

    @property
    def _is_open(self) -> bool:
        return self._lease is not None and self._lease.value != 0 and not self._held

    def _seal(self) -> None:
        fixed = SEAL_SHRINK | SEAL_GROW | SEAL_SEAL
        fcntl.fcntl(self.daemon_fd, F_ADD_SEALS, fixed | SEAL_FUTURE_WRITE)
        fcntl.fcntl(self.client_fd, F_ADD_SEALS, fixed)

    def set_split(self, split_ns: int) -> None:
        """Groups of more than this are split from now on; 0: none."""
        if self._daemon:
            self._split.value = split_ns

    def set_window(self, window_ns: int, longest_ns: int) -> None:
        """No more predicted work than a window may be in flight; 0: any. A piece of a program that
        is slower than the GPU may become so long."""
        if self._daemon:
            self._longest.value = longest_ns
            self._window.value = window_ns

    @property
    def window_ns(self) -> int:
        return self._window.value if self._daemon else 0

    def set_slice(self, slice_ns: int) -> None:
        """The GPU's time slice: the interposer puts no mark behind a longer group."""
        if self._daemon:
            DAEMON_PAGE.word(self._daemon, "slice_ns").value = slice_ns

    def set_share(self, permille: int) -> None:
        """The program may use so many thousandths of the multiprocessors beside others."""
        if self._daemon:
            DAEMON_PAGE.word(self._daemon, "share").value = permille

    @property
    def share(self) -> int:
        """How many its work is confined to, as it says; 0: it says nothing."""
        return CLIENT_PAGE.word(self._client, "share").value if self._client else 0

    @property
    def whole(self) -> int:
        """Groups that had all multiprocessors though they were to have fewer, as it says."""
        return CLIENT_PAGE.word(self._client, "whole").value if self._client else 0

    @property
    def unconfined(self) -> int:
        """Why the last group that could not be confined could not, of `Unconfined`; 0: none."""
        return CLIENT_PAGE.word(self._client, "unconfined").value if self._client else 0

    def set_deadline(self, deadline_ns: int) -> None:
        if self._daemon:
            self._deadline.value = deadline_ns

    def set_at_once(self, on: bool) -> None:
        """A turn may begin with the asking for it."""
        if self._daemon and self._words.at_once.value != on:
            self._words.at_once.value = on

    def set_wanted(self, on: bool, *, marks: bool = False) -> None:
        """Others wait for the turn to be over, and perhaps for a mark that says so before its
        program can; as with a lease, what is read after is newer."""
        wanted = (ITS_MARK if marks else ITS_END) if on else 0
        if self._daemon and self._words.wanted.value != wanted:
            self._words.wanted.value = wanted
            fence()

    def set_lease(self, on: bool) -> None:
        """Nothing read after this is older than what is written here: the client does the same the
        other way round, so one of the two sees the other."""
        if self._daemon and self._lease is not None:
            if on:
                self._leases = self._leases % MOST_LEASES + 1
            self._lease.value = self._leases if on else 0
            if self._turns is not None:
                self._turns.open.value = self._is_open
            fence()

    @property
    def shows_lease(self) -> bool:
        return bool(self._daemon and self._lease is not None and self._lease.value)

    def open_early(self) -> None:
        """Pieces may begin, unless they are held back: a lease will follow at once."""
        if self._daemon and not self._held:
            self._words.open.value = 1

    def hold_back(self, on: bool) -> None:
        """Whether pieces wait though there is a lease; it counts for the next one, too, until
        something else is said. The lease has another number then: by the same one the client knows
        that its gate was open all the time, and what it used."""
        if self._held != on:
            self._held = on
            if self._daemon and self._lease is not None and self._lease.value:
                self.set_lease(True)

    def keep_lease(self) -> None:
        """It was closed in advance, and for nothing."""
        if self._daemon and self._lease is not None and not self._lease.value:
            self.set_lease(True)

    def set_waits(self, on: bool) -> None:
        """The daemon knows that the client wants a turn; as with a lease, what is read after this
        is newer."""
        if self._daemon and self._words.waits.value != on:
            self._words.waits.value = on
            fence()

    def set_polled(self, on: bool) -> None:
        """Somebody looks at the client's page all the time; what is read after this is newer."""
        if self._daemon:
            self._words.polled.value = on
            fence()

    # What decisions look at, without copying the page.

    @property
    def gated(self) -> bool:
        return bool(self._client and self._words.gated.value)

    @property
    def waiting(self) -> bool:
        """It waits for the GPU."""
        return bool(self._client and self._words.waiting.value)

    @property
    def end_reached(self) -> bool:
        """It waits for the last of its work, and the GPU has done that."""
        if not self._client or not self._words.waiting.value:
            return False
        return self._words.end_marked.value == self._words.end_marks.value != 0

    @property
    def trails(self) -> bool:
        """Pieces are on the GPU, or may be."""
        return bool(self._client) and self._copy(_OPENED) != self._copy(_CLOSED)

    @property
    def pending(self) -> bool:
        """Pieces wait for the gate."""
        return self.gated and self._copy(_GIVEN) != self._copy(_OPENED)

    def _copy(self, part: tuple[int, int]) -> bytes:
        return ctypes.string_at(self._client + part[0], part[1])

    @property
    def piece_ns(self) -> int:
        """What may be in flight of the piece to which it last added something, as predicted."""
        return self._words.piece.value if self._client else 0

    @property
    def wanted(self) -> bool:
        return bool(self._daemon and self._words.wanted.value)

    @property
    def asks(self) -> int:
        return self._words.asks.value if self._client else 0

    @property
    def paused(self) -> int:
        return self._words.paused.value if self._client else 0

    @property
    def jobs_begun(self) -> int:
        return self._words.jobs.value if self._client else 0

    def job(self, number: int) -> JobReport:
        if not self._client:
            return JobReport()
        at = CLIENT_PAGE.at("job", number % JOBS)
        return parse_job(ctypes.string_at(self._client + at, JOB.size))

    @property
    def pauses(self) -> Sequence[int]:
        """Counted by their length."""
        return list(self._words.pauses) if self._client else [0] * PAUSES

    def set_jobs(self, rest_ns: int, tell_after: int) -> None:
        """Pauses that are longer end a job; with its so-manieth pause a job is taken to be over."""
        if self._daemon:
            self._words.rest.value = rest_ns
            self._words.tell_after.value = tell_after

    @property
    def busy(self) -> bool:
        """What is read after this is no older: a client says what it used before it says that it is
        no longer busy."""
        busy = bool(self._client and self._busy.value)
        fence()
        return busy

    @property
    def passed(self) -> int:
        return self._passed.value if self._client else 0

    @property
    def last_ns(self) -> int:
        """When it was last done, as it says."""
        return self._last.value if self._client else 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """Groups, frames and GPU time under leases."""
        if not self._client:
            return 0, 0, 0
        return self._passed.value, self._frames.value, self._used.value

    @property
    def used_ns(self) -> int:
        return self._used.value if self._client else 0

    @property
    def rows(self) -> Sequence[Row]:
        """What its context monitor counted of the group that it asks for."""
        count = min(self._rows.value, ROWS) if self._client else 0
        if not count:
            return ()
        data = ctypes.string_at(self._client + CLIENT_PAGE.at("row"), count * ROW.size)
        return [Row._make(values) for values in _ROW.iter_unpack(data)]

    @property
    def launches(self) -> int:
        """How many records of launches it has made."""
        return self._launches.value if self._client else 0

    def launched(self, number: int) -> Launch:
        """One of the last of them, of which 0 was the first."""
        if not self._client:
            return Launch(0, 0, 0, 0, 0, 0, 0, 0)
        at = CLIENT_PAGE.at("launched", number % LAUNCHES)
        return Launch._make(_LAUNCHED.unpack(ctypes.string_at(self._client + at, LAUNCHED.size)))

    @property
    def unfollowed(self) -> int:
        """What its context monitor could not follow: of enum hw_unfollowed."""
        return CLIENT_PAGE.word(self._client, "unfollowed").value if self._client else 0

    def set_costs(self, group_cost: int, places: Sequence[Published | None]) -> None:
        """What commands cost from now on, in 1/1024 ns, each at the place where the client looks
        for it (engine/rendering/published.py)."""
        if not self._daemon:
            return
        for index, found in enumerate(places[:COEFFICIENTS]):
            if found is not None:
                at = self._daemon + DAEMON_PAGE.at("coefficient", index)
                COEFFICIENT.word(at, "kind").value = 0  # nobody reads half of one
                for name, value in zip(_COSTS, found[1:], strict=True):
                    COEFFICIENT.word(at, name).value = value
                fence()
                COEFFICIENT.word(at, "kind").value = found.kind
        DAEMON_PAGE.word(self._daemon, "group_cost").value = group_cost

    def set_server(self, what: int) -> None:
        """What the client does around a swap: AWAIT, TELL and YIELD added up."""
        if self._daemon:
            self._server.value = what

    @property
    def report(self) -> ClientPage:
        """A copy of what the client says; zeros once the page is gone. Marks are read last: a
        client counts a mark before it says that no work is without one."""
        if not self._client:
            return parse_client_page(bytes(CLIENT_PAGE.size))
        head = ctypes.string_at(self._client, MARKS_AT)
        fence()
        marks = ctypes.string_at(self._client + MARKS_AT, CLIENT_PAGE.size - MARKS_AT)
        return parse_client_page(head + marks)

    @property
    def counters(self) -> bytes:
        """What the client has counted, to compare."""
        return ctypes.string_at(self._client, MARKS_AT) if self._client else b""

    def is_stopped(self) -> bool:
        """Somebody has stopped the client's process, as Ctrl-Z does."""
        try:
            state = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in ("T", "t")

    def close_fds(self) -> None:
        """The client has its own by now."""
        for fd in (self.daemon_fd, self.client_fd):
            if fd >= 0:
                os.close(fd)
        self.daemon_fd = self.client_fd = -1

    def close(self) -> None:
        """A client that still maps them finds no lease there, and what waits on the GPU may go."""
        self.close_fds()
        if self._lease is not None and self._client:  # it may be closed again
            self.set_lease(False)
            if self._turns is not None:
                self._turns.open.value = 1
        for address in (self._daemon, self._client):
            if address:
                _libc.munmap(address, PAGE)
        self._daemon = self._client = 0
