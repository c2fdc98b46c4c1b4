"""Commands on their way to a simulated GPU: lanes of kernels, copies, gates and marks.

A *lane* is what a stream is: it runs its commands one after the other. A *context* is one process
on a device, with its lanes, its gate and its share of the multiprocessors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.sim.cuda.clock import Clock
    from headway.sim.cuda.devices import Device

Call = Callable[[], None]
WHOLE = 1000
"""All multiprocessors, in thousandths."""


@dataclass(eq=False, slots=True)
class Row:
    """Kernels of one kind that follow each other on a lane, as a loop launches them.

    A kernel has `blocks`, of which `per_sm` run on a multiprocessor at once, for `block_ns`. So on
    s multiprocessors it takes ceil(blocks / (s * per_sm)) waves of that time (CudaMon, Figure 3).
    """

    lane: Lane
    kernels: int
    block_ns: int
    blocks: int
    per_sm: int = 1
    pace_ns: int = 0
    """The program launches no faster than this, so they begin no faster."""
    gap_ns: int = 0
    """Between the end of one and the begin of the next."""
    nominal_ns: int = 0
    """What each takes of the whole device: what its context's GPU time grows by."""
    interleave: int = 0
    """By how many thousandths a block takes longer for each other block on its multiprocessor."""
    graph: bool = False
    """Of one graph, which keeps the context in which it was captured."""

    @property
    def share(self) -> int:
        """Thousandths of the multiprocessors that it may occupy."""
        context = self.lane.context
        return context.client_share if self.graph else context.share

    def context_of(self) -> Context:
        """Whose kernels they are."""
        return self.lane.context


@dataclass(eq=False, slots=True)
class Transfer:
    """A copy, which occupies a copy engine and no multiprocessors."""

    lane: Lane
    to_device: bool
    left_ns: int


@dataclass(eq=False, slots=True)
class Gate:
    """Has the GPU wait until the context's gate is open, as stream memory operations do."""

    takes_ns: int
    reached: Call | None = None
    """What stands before it is done."""
    passed: Call | None = None
    """Its context's gate is open. None: it is a mark, which nothing waits at."""


Command = Row | Transfer | Gate


class Context:
    """One process on a device."""

    def __init__(self, name: str, device: Device, *, share: int = WHOLE, priority: int = 0) -> None:
        self.name = name
        self.device = device
        self.share = share
        """Thousandths of the multiprocessors that its kernels may occupy together; takes effect
        with the next blocks. Only where programs run side by side."""
        self.client_share = share
        """What MPS lets its graphs occupy as well, which green contexts do not confine."""
        self.whole = 0
        """Graphs so far that had more than the context's share for that."""
        self.priority = priority
        """As CUDA_MPS_CLIENT_PRIORITY: blocks of clients with a smaller number go first."""
        self.open = True
        """Whether its gate is."""
        self.gpu_ns = 0
        """Kernel time so far, each kernel counted with what it takes on the whole device."""
        self.copied_ns = 0
        """Time of copy engines so far."""
        self.lanes: list[Lane] = []

    def lane(self, number: int) -> Lane:
        """Its lane of this number."""
        while len(self.lanes) <= number:
            self.lanes.append(Lane(self))
        return self.lanes[number]

    def set_open(self, on: bool) -> None:
        """Open its gate, or close it."""
        self.open = on
        if on:
            for lane in self.lanes:
                lane.go_on()

    def executed_ns(self) -> int:
        """GPU time so far, with what is done of rows that go on."""
        rows = [lane.queue[0] for lane in self.lanes if lane.queue]
        return self.gpu_ns + sum(
            self.device.done(row) * row.nominal_ns for row in rows if isinstance(row, Row)
        )

    def end(self) -> None:
        """Its process is gone."""
        for lane in self.lanes:
            lane.drop()

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is on the GPU, or waits there."""
        return all(lane.is_idle for lane in self.lanes)


@dataclass(eq=False)
class Lane:
    """The commands of one stream, in order."""

    context: Context
    queue: deque[Command] = field(default_factory=deque)
    launched: int = 0
    """Kernels and copies in it that are not done."""
    gone: bool = False
    """Its process is."""
    _coming: int = 0
    """Commands that were sent and are not in the queue yet."""
    _runs: bool = False
    """The first command executes, or passes its gate."""
    _idle_calls: list[Call] = field(default_factory=list)
    _room_calls: list[Call] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        return self.context.device.clock

    def send(self, command: Command, delay_ns: int) -> None:
        """A command reaches the GPU so much later; what was sent before it does so before it."""
        self._coming += 1

        def arrive() -> None:
            self._coming -= 1
            if not self.gone:
                self.put(command)

        self.clock.at(self.clock.now_ns + delay_ns, arrive)

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent is done."""
        return not self.queue and not self._coming

    def put(self, command: Command) -> None:
        """A command has reached the GPU."""
        if isinstance(command, Row):
            self.launched += command.kernels
        elif isinstance(command, Transfer):
            self.launched += 1
        self.queue.append(command)
        self.go_on()

    def drop(self) -> None:
        """Its process is gone: what has begun goes on, and nothing after that."""
        self.gone = True
        while len(self.queue) > self._runs:
            self.queue.pop()
        self._idle_calls, self._room_calls = [], []

    def when_idle(self, call: Call) -> None:
        """Call this once everything in the lane is done."""
        if self.is_idle:
            call()
        else:
            self._idle_calls.append(call)

    def when_room(self, call: Call) -> None:
        """Call this when something in the lane is done."""
        self._room_calls.append(call)

    def go_on(self) -> None:
        """Begin the first command if it can begin."""
        while self.queue and not self._runs:
            command = self.queue[0]
            if isinstance(command, Gate):
                if not self._begin_gate(command):
                    return
                continue
            self._runs = True
            device = self.context.device
            if isinstance(command, Row):
                device.execute(command)
            else:
                device.copy(command)

    def _begin_gate(self, gate: Gate) -> bool:
        if gate.reached is not None:
            reached, gate.reached = gate.reached, None
            reached()
        if gate.passed is not None and not self.context.open:
            return False
        self._runs = True
        self.context.device.pause(self, gate.takes_ns)
        return True

    def done(self) -> None:
        """The device is done with the first command."""
        command = self.queue.popleft()
        self._runs = False
        if isinstance(command, Row):
            self.launched -= command.kernels
            self.context.gpu_ns += command.kernels * command.nominal_ns
        elif isinstance(command, Transfer):
            self.launched -= 1
        elif command.passed is not None:
            command.passed()
        self.go_on()
        if self._room_calls:
            calls, self._room_calls = self._room_calls, []
            for call in calls:
                call()
        if self._idle_calls and self.is_idle:
            calls, self._idle_calls = self._idle_calls, []
            for call in calls:
                call()
