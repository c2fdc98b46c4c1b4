"""The interposer of a simulated program: mechanism alone, as `shim/stream` has it.

Where nobody is more important the program passes under its lease; else its work goes to the GPU in
pieces, each behind a gate there. What the daemon decides is read from the page, and obeyed. What
kernels cost is known from their third launch on, as in the interposer, which learns it.

Whatever may wait is a generator: it yields a function that is given the call to go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol

from headway.engine.profile import DeviceProfile
from headway.sim.cuda.clock import Clock
from headway.sim.cuda.commands import Context, Gate, Lane
from headway.sim.cuda.page import LaneWords, Page

Blocks = Callable[[Callable[[], None]], object]
"""Given the call to go on with, has it called when that is possible."""
Steps = Generator[Blocks, None, None]

KNOWN = 3
"""So many launches tell what a kind of work costs."""
IN_FLIGHT = 512
"""So many pieces of a lane may be."""
ASK_AGAIN_NS = 1_000_000
BOOKS_NS = 2_000_000
"""How soon somebody looks whether pieces wait for a turn that nobody knows of."""


class Daemon(Protocol):
    """The other end, as the interposer knows it."""

    def asked(self, seq: int, ask: int) -> None:
        """A message: the program wants a turn."""

    def released(self, *, rests: bool) -> None:
        """A message: it no longer uses its lease."""

    def notice(self) -> None:
        """Something changed in the page, which is looked at all the time."""


@dataclass(slots=True)
class _Piece:
    """Work behind one gate, as long as more may be added to it."""

    seq: int
    sum_ns: int = 0
    works: int = 0
    unknown: bool = False
    left_ns: int = 0
    """What the GPU has yet to do of it, as predicted, when that was last looked at,"""
    looked_ns: int = 0
    added_ns: int = 0
    """and what was added since."""
    runs: bool = False


class _Stream:
    """One lane, and the pieces on it."""

    def __init__(self, lane: Lane, words: LaneWords) -> None:
        self.lane = lane
        self.words = words
        self.piece: _Piece | None = None
        self.sums_ns: dict[int, int] = {}
        """What pieces take that were given and are not done."""


class Interposer:
    """One program's way through its gate."""

    def __init__(
        self, clock: Clock, context: Context, profile: DeviceProfile, page: Page, daemon: Daemon
    ) -> None:
        self._clock = clock
        self._context = context
        self._profile = profile
        self._daemon = daemon
        self.page = page
        self._streams: list[_Stream] = []
        self._seen: dict[Hashable, int] = {}
        """How often kinds of work were launched, up to KNOWN."""
        self._seq = 0
        self._asking = self._began_early = self._job = False
        self._asked_ns = -ASK_AGAIN_NS
        self._turn_ns: int | None = None
        self._finished_ns = 0
        self._books = False

    @property
    def window_ns(self) -> int:
        """No more work than this is to be on the GPU at once; 0: any."""
        return self.page.window_ns

    # -- what goes through -------------------------------------------------------------------

    def reach(
        self, number: int, kind: Hashable, cost_ns: int, count: int
    ) -> Generator[Blocks, None, int]:
        """The program is about to send so many of a kind: how many of them may go now."""
        page, called_ns, leased = self.page, self._clock.now_ns, self.page.lease
        page.records.works(called_ns, page.rest_ns, page.passed)
        stream = self._stream(number)
        while True:
            if page.window_ns or (page.busy and page.gated):
                if (yield from self._begin_pieces()):
                    known = self._seen.get(kind, 0) >= KNOWN
                    may = yield from self._add(stream, cost_ns, count, known=known)
                    break
            elif (yield from self._begin_turn()):
                page.unmarked, may = True, count
                break
        page.records.works(self._clock.now_ns, page.rest_ns, page.passed)
        if not leased:
            page.records.held(self._clock.now_ns - called_ns)
        if self._turn_ns is None:
            self._turn_ns = self._clock.now_ns
        self._seen[kind] = min(KNOWN, self._seen.get(kind, 0) + may)
        page.passed += may
        return may

    def sent(self, number: int) -> None:
        """The work is on its way: where it is long, or nobody knows how long, it ends its piece."""
        stream = self._stream(number)
        piece = stream.piece
        if piece is None:
            return
        width_ns = self._width_ns
        last_long = piece.works == 1 and piece.sum_ns >= 2 * width_ns
        if piece.unknown or (last_long and not self._is_left_alone(piece)):
            self._end_piece(stream)

    def synchronise(self, numbers: Iterable[int] | None) -> Steps:
        """Wait for these lanes, or for all; if nothing is left to do, the program pauses."""
        page, since_ns = self.page, self._clock.now_ns
        streams = self._streams if numbers is None else [self._stream(n) for n in numbers]
        if page.wants_mark and not self._job and not page.gated:
            self._mark_end()
        page.waiting = True
        self._notice()
        for stream in streams:
            if stream.piece is not None and not self._is_left_alone(stream.piece):
                self._end_piece(stream)
        self._keep_books()
        for stream in streams:
            yield stream.lane.when_idle
        yield lambda go_on: self._clock.at(self._clock.now_ns + self._profile.seen_ns, go_on)
        page.waiting = False
        page.records.waited(self._clock.now_ns - since_ns)
        if self._context.is_idle and not self._job:
            self._rest()

    def say_begin(self, deadline_ns: int) -> None:
        """The program says that its job begins."""
        self._job = True
        self.page.records.say_begin(self._clock.now_ns, deadline_ns)

    def say_end(self) -> None:
        """The program says that its job is over."""
        self.page.records.say_end(self._clock.now_ns)
        self._job = False
        if self._context.is_idle:
            self._rest()

    # -- turns -------------------------------------------------------------------------------

    @property
    def _width_ns(self) -> int:
        return self.page.window_ns or self.page.longest_ns

    def _stream(self, number: int) -> _Stream:
        while len(self._streams) <= number:
            lane = self._context.lane(len(self._streams))
            self.page.lanes.append(LaneWords())
            self._streams.append(_Stream(lane, self.page.lanes[-1]))
        return self._streams[number]

    def _notice(self) -> None:
        if self.page.polled:
            self._daemon.notice()

    def _announce(self) -> None:
        """Ask for a turn without waiting for the answer."""
        self._seq += 1
        self.page.asks += 1
        if self.page.polled:
            self._daemon.notice()
        else:
            self._daemon.asked(self._seq, self.page.asks)

    def _begin_turn(self) -> Generator[Blocks, None, bool]:
        """Wait until the program may go without pieces; False: it is to go in pieces by now."""
        page = self.page
        while not page.window_ns:
            self._began_early = self._began_early and page.at_once
            if self._began_early or page.lease:
                page.busy = True
                return True
            if page.busy and page.gated:
                return False
            if page.busy:
                yield from self._drain()
            elif page.at_once:
                page.busy = self._began_early = True
                self._announce()
            else:
                self._seq += 1
                self._asking = True
                self._daemon.asked(self._seq, 0)
                yield self._when_leased
                self._asking = False
        return False

    def _when_leased(self, go_on: Callable[[], None]) -> None:
        def soon() -> None:
            self._clock.at(self._clock.now_ns, go_on)

        self.page.on_lease = soon

    def _drain(self) -> Steps:
        """The turn was taken back: wait for what is in flight, then give it."""
        page = self.page
        page.unmarked, page.marked = False, True
        for stream in self._streams:
            yield stream.lane.when_idle
        page.marked = False
        if page.busy and not page.lease:
            self._let_go(last=False)

    def _let_go(self, *, last: bool) -> None:
        """Nothing of the program is on the GPU: the turn may go to somebody else."""
        page = self.page
        self._began_early = False
        page.last_ns = self._finished_ns
        page.gated = page.busy = False
        if self._asking:
            return
        wanted = page.wanted and (not last or page.records.tells(page.tell_after))
        if not wanted and page.lease:
            return
        if not last or not page.polled:
            self._daemon.released(rests=last)
        else:
            self._daemon.notice()

    def _rest(self) -> None:
        """All work was waited for: a pause begins, and perhaps the job is over."""
        page, now_ns = self.page, self._clock.now_ns
        if not page.window_ns and not page.gated and self._turn_ns is not None:
            page.used_ns += max(0, now_ns - max(self._turn_ns, self._finished_ns))
        for stream in self._streams:
            words = stream.words
            page.used_ns += sum(stream.sums_ns.values())
            stream.sums_ns.clear()
            stream.piece = None
            words.opened = words.closed = words.ended = words.given
        page.end_marks += 1
        page.records.pause(now_ns, page.passed)
        self._finished_ns, self._turn_ns = now_ns, None
        page.unmarked = page.marked = False
        self._let_go(last=True)

    def _mark_end(self) -> None:
        """A mark behind the last work tells the daemon of its end before the program can."""
        page = self.page
        page.end_marks += 1
        busy = [stream for stream in self._streams if not stream.lane.is_idle]
        if len(busy) != 1:
            return
        number = page.end_marks

        def written() -> None:
            page.end_marked = number
            self._notice()

        gate = Gate(self._profile.mark_ns, reached=written)
        busy[0].lane.send(gate, self._profile.start_ns)

    # -- pieces ------------------------------------------------------------------------------

    def _begin_pieces(self) -> Generator[Blocks, None, bool]:
        """The turn is one of pieces, or becomes one; nobody waits for it but the GPU."""
        page = self.page
        if page.busy and (page.gated or page.lease):
            page.gated = True
            return True
        if page.busy:
            yield from self._drain()
        if page.busy:
            return False
        page.gated = page.busy = True
        if not page.lease and not self._asking:
            self._announce()
        return True

    def _add(
        self, stream: _Stream, cost_ns: int, count: int, *, known: bool
    ) -> Generator[Blocks, None, int]:
        """Put work into a piece; how much of it fits."""
        page = self.page
        may = self._fits(stream, cost_ns, count, known=known)
        if not may:
            while stream.words.given - stream.words.closed >= IN_FLIGHT:
                self._keep_books()
                yield stream.lane.when_room
            self._begin_piece(stream)
            self._ask_again()
            may = max(1, self._fits(stream, cost_ns, count, known=known))
        piece = stream.piece
        assert piece is not None
        if not piece.works:
            piece.looked_ns = self._clock.now_ns
        width_ns = self._width_ns
        piece.sum_ns += may * cost_ns
        piece.works += may
        piece.added_ns += may * cost_ns
        piece.unknown |= not known
        longest_ns = width_ns if piece.works == may else page.piece_ns
        page.piece_ns = max(cost_ns, longest_ns)
        return may

    def _fits(self, stream: _Stream, cost_ns: int, count: int, *, known: bool) -> int:
        """How many may join the open piece; the first work of a piece may, however long it is."""
        piece, width_ns = stream.piece, self._width_ns
        if piece is None or piece.unknown or (piece.works and not known):
            return 0
        begun = stream.words.opened >= piece.seq
        if begun and not self.page.lease:
            return 0
        most_ns = width_ns + width_ns // 8
        if not piece.works:
            return min(count, max(1, most_ns // cost_ns)) if known else 1
        room = (most_ns - piece.sum_ns) // cost_ns
        if room > 0:
            return min(count, room)
        longest_ns = self.page.longest_ns
        others_busy = any(not s.lane.is_idle for s in self._streams if s is not stream)
        if others_busy or piece.sum_ns >= longest_ns:
            return 0
        left_ns = self._left_ns(stream, piece)
        if not left_ns:
            most_ns = 2 * width_ns - 1
        room = min((most_ns - left_ns) // cost_ns, -(-(longest_ns - piece.sum_ns) // cost_ns))
        return min(count, room) if room > 0 else 0

    def _left_ns(self, stream: _Stream, piece: _Piece) -> int:
        """What of the open piece the GPU has yet to do, as predicted."""
        now_ns = self._clock.now_ns
        ran_ns = now_ns - piece.looked_ns if piece.runs else 0
        piece.left_ns = max(0, piece.left_ns - ran_ns) + piece.added_ns
        piece.added_ns, piece.looked_ns = 0, now_ns
        piece.runs = stream.words.opened >= piece.seq
        return piece.left_ns

    def _begin_piece(self, stream: _Stream) -> None:
        """Behind the work so far the next piece begins."""
        words, before = stream.words, stream.piece
        if self.page.unmarked:
            self._mark_before(stream)
        if before is not None:
            self._send_off(stream, before)
        words.given += 1
        seq = words.given
        stream.piece = _Piece(seq)

        def reached() -> None:
            if before is not None:
                self._close(stream, before.seq)

        def passed() -> None:
            words.opened = max(words.opened, seq)

        gate = Gate(self._profile.gate_ns, reached=reached, passed=passed)
        stream.lane.send(gate, self._profile.start_ns)

    def _end_piece(self, stream: _Stream) -> None:
        """Nothing more is added to the open piece: a mark behind it tells its end."""
        piece = stream.piece
        assert piece is not None
        self._send_off(stream, piece)
        stream.piece = None
        gate = Gate(self._profile.mark_ns, reached=lambda: self._close(stream, piece.seq))
        stream.lane.send(gate, self._profile.start_ns)

    def _send_off(self, stream: _Stream, piece: _Piece) -> None:
        stream.words.ended = piece.seq
        stream.sums_ns[piece.seq] = piece.sum_ns

    def _close(self, stream: _Stream, seq: int) -> None:
        """The GPU has done a piece."""
        words, now_ns = stream.words, self._clock.now_ns
        words.closed = max(words.closed, seq)
        self.page.used_ns += stream.sums_ns.pop(seq, 0)
        self._finished_ns = max(self._finished_ns, now_ns)
        if not self.page.lease:
            self._notice()

    def _mark_before(self, stream: _Stream) -> None:
        """Work that went without a mark gets one before the first piece."""
        page = self.page
        page.unmarked, page.marked = False, True

        def written() -> None:
            page.marked = False
            self._notice()

        stream.lane.send(Gate(self._profile.mark_ns, reached=written), self._profile.start_ns)

    def _is_left_alone(self, piece: _Piece) -> bool:
        """Nothing stands behind one kernel that is longer than a time slice."""
        return piece.works == 1 and piece.sum_ns >= self._profile.slice_ns

    def _ask_again(self) -> None:
        """A piece came just after the gate had closed, when nobody knew of it."""
        page, now_ns = self.page, self._clock.now_ns
        if page.lease or self._asking or page.waits or now_ns - self._asked_ns < ASK_AGAIN_NS:
            return
        self._asked_ns = now_ns
        self._announce()

    def _keep_books(self) -> None:
        """While pieces wait, somebody sees now and then that the daemon knows."""
        if self._books or not self.page.pending:
            return
        self._books = True

        def look() -> None:
            self._books = False
            if self.page.pending:
                self._ask_again()
                self._keep_books()

        self._clock.at(self._clock.now_ns + BOOKS_NS, look)
