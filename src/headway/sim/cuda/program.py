"""A simulated program: one thread that launches, computes and waits, job after job."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol

from headway.engine.profile import DeviceProfile
from headway.sim.cuda.clock import Clock
from headway.sim.cuda.commands import Context, Row, Transfer
from headway.sim.cuda.interposer import Blocks, Steps
from headway.sim.cuda.work import (
    Computing,
    Copying,
    CudaPlan,
    Kernels,
    Step,
    Synchronising,
)

MIB = 2**20
AHEAD = 1024
"""So many launches may wait in a stream; then a launch waits for room, as in NVIDIA's driver."""


@dataclass(frozen=True, slots=True)
class DoneJob:
    """One job, as the program itself has measured it."""

    index: int
    due_ns: int
    """When it should have begun."""
    begun_ns: int
    ended_ns: int
    deadline_ns: int | None
    """How long it may take."""

    @property
    def response_ns(self) -> int:
        """From its begin to its end."""
        return self.ended_ns - self.begun_ns

    @property
    def missed(self) -> bool:
        return self.deadline_ns is not None and self.response_ns > self.deadline_ns


class Way(Protocol):
    """How a program's work gets to the GPU: through Headway's interposer, or as it is."""

    @property
    def window_ns(self) -> int:
        """No more work than this is to be on the GPU at once; 0: any."""

    def reach(
        self, number: int, kind: Hashable, cost_ns: int, count: int
    ) -> Generator[Blocks, None, int]: ...
    def sent(self, number: int) -> None: ...
    def synchronise(self, numbers: Iterable[int] | None) -> Steps: ...
    def say_begin(self, deadline_ns: int) -> None: ...
    def say_end(self) -> None: ...


class Unmanaged:
    """Nobody stands between the program and the driver."""

    window_ns = 0

    def __init__(self, clock: Clock, context: Context, profile: DeviceProfile) -> None:
        self._clock = clock
        self._context = context
        self._profile = profile

    def reach(
        self, number: int, kind: Hashable, cost_ns: int, count: int
    ) -> Generator[Blocks, None, int]:
        """All of it may go."""
        return count
        yield

    def sent(self, number: int) -> None:
        """The work is on its way."""

    def synchronise(self, numbers: Iterable[int] | None) -> Steps:
        """Wait for these lanes, or for all."""
        lanes = self._context.lanes if numbers is None else [self._context.lane(n) for n in numbers]
        for lane in lanes:
            yield lane.when_idle
        yield lambda go_on: self._clock.at(self._clock.now_ns + self._profile.seen_ns, go_on)

    def say_begin(self, deadline_ns: int) -> None:
        """Nobody hears it."""

    def say_end(self) -> None:
        """Nobody hears it."""


class Program:
    """Runs a plan."""

    def __init__(
        self,
        plan: CudaPlan,
        clock: Clock,
        context: Context,
        way: Way,
        heard: Callable[[DoneJob], None],
        ended: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._context = context
        self._profile = context.device.profile
        self._way = way
        self._heard = heard
        self._ended = ended
        self._random = random.Random(plan.seed)
        self._steps: Steps | None = self._life()
        self.due_ns = plan.offset_ns
        """When its next job should begin, or the one that it does."""
        self.begun_ns: int | None = None
        """When the job began that it does."""
        self._restart: tuple[int, Callable[[], None]] | None = None

    def start(self) -> None:
        """Have it begin when its first job is due."""
        self._clock.at(self._plan.offset_ns, self._go_on)

    def kill(self) -> None:
        """The program dies here; what is on the GPU goes on."""
        self._steps = None

    def restart(self, takes_ns: int, back: Callable[[], None]) -> None:
        """Have it end with its job, and begin its next one when it is back, so much later."""
        self._restart = takes_ns, back

    @property
    def is_overdue(self) -> bool:
        """Whether the job that it does should be done by now."""
        begun_ns, deadline_ns = self.begun_ns, self._plan.deadline_ns
        if begun_ns is None or deadline_ns is None or self.is_over:
            return False
        return begun_ns + deadline_ns < self._clock.now_ns

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was killed."""
        return self._steps is None

    def _go_on(self) -> None:
        """Run until something has to be waited for."""
        while self._steps is not None:
            try:
                blocks = next(self._steps)
            except StopIteration:
                self._steps = None
                self._ended()
                return
            wait = _Wait(self._go_on)
            blocks(wait.end)
            if not wait.over:
                wait.returned = True
                return

    def _pass(self, time_ns: int) -> Steps:
        if time_ns > 0:
            yield lambda go_on: self._clock.at(self._clock.now_ns + time_ns, go_on)

    def _vary(self, cost_ns: int, spread: float) -> int:
        swing = int(cost_ns * spread)
        return max(1, cost_ns + self._random.randint(-swing, swing)) if swing else cost_ns

    # -- its life ----------------------------------------------------------------------------

    def _life(self) -> Steps:
        plan, index = self._plan, 0
        self.due_ns = due_ns = plan.offset_ns
        while plan.jobs is None or index < plan.jobs:
            begun_ns = self.begun_ns = self._clock.now_ns
            if plan.tells:
                self._way.say_begin(plan.deadline_ns or 0)
            for number, step in enumerate(plan.steps):
                yield from self._do(number, step)
            if (index + 1) % plan.sync_every == 0:
                yield from self._way.synchronise(None)
            if plan.tells:
                self._way.say_end()
            now_ns = self._clock.now_ns
            self._heard(DoneJob(index, due_ns, begun_ns, now_ns, plan.deadline_ns))
            index, self.begun_ns = index + 1, None
            if self._restart is not None:
                yield from self._come_back()
            due_ns = self.due_ns = self._next_ns(due_ns, index)
            if plan.jobs is None or index < plan.jobs:
                yield from self._pass(due_ns - self._clock.now_ns)
        yield from self._way.synchronise(None)

    def _come_back(self) -> Steps:
        assert self._restart is not None
        (takes_ns, back), self._restart = self._restart, None
        yield from self._pass(takes_ns)
        back()

    def _next_ns(self, due_ns: int, index: int) -> int:
        """When the job of this number is due. Who is late is so by a period at most: jobs do not
        pile up."""
        plan, now_ns = self._plan, self._clock.now_ns
        if plan.rest_ns is not None:
            return now_ns + int(self._random.expovariate(1 / plan.rest_ns))
        if plan.period_ns is None or index % plan.burst:
            return now_ns
        between_ns = period_ns = plan.burst * plan.period_ns
        if plan.poisson:
            between_ns = int(self._random.expovariate(1 / period_ns))
        return max(due_ns + between_ns, now_ns - period_ns)

    def _do(self, number: int, step: Step) -> Steps:
        if isinstance(step, Computing):
            yield from self._pass(self._vary(step.cost_ns, step.spread))
        elif isinstance(step, Synchronising):
            yield from self._way.synchronise(None if step.stream is None else [step.stream])
        elif isinstance(step, Copying):
            yield from self._copy(number, step)
        elif step.graph:
            yield from self._launch(number, step, step.count, one=True)
        elif step.cpu_ns or step.spread:
            for _ in range(step.count):
                yield from self._pass(step.cpu_ns)
                yield from self._launch(number, step, 1)
        else:
            yield from self._launch(number, step, step.count)

    # -- what it sends -----------------------------------------------------------------------

    def _launch(self, number: int, step: Kernels, count: int, *, one: bool = False) -> Steps:
        """Send so many kernels; if `one`, by a single launch."""
        profile, lane = self._profile, self._context.lane(step.stream)
        gap_ns = profile.gap_ns
        each_ns = step.cost_ns + gap_ns
        left = count
        while left:
            while lane.launched >= AHEAD:
                yield lane.when_room
            if one:
                yield from self._way.reach(step.stream, number, each_ns * count - gap_ns, 1)
                may = count
            else:
                may = yield from self._way.reach(step.stream, number, each_ns, min(left, AHEAD))
            launch_ns = 0 if one else profile.launch_ns
            yield from self._pass(profile.launch_ns)
            lane.send(self._row(step, may, launch_ns), profile.start_ns)
            self._way.sent(step.stream)
            left -= may
            yield from self._pass((may - 1) * launch_ns)

    def _row(self, step: Kernels, count: int, pace_ns: int) -> Row:
        sms = self._profile.multiprocessors
        cost_ns = self._vary(step.cost_ns, step.spread)
        blocks = sms if step.blocks is None else step.blocks
        waves = -(-blocks // (step.per_sm * sms))
        lane = self._context.lane(step.stream)
        block_ns = max(1, cost_ns // waves)
        gap_ns = self._profile.gap_ns
        interleave = round(1000 * step.interleave)
        context = self._context
        context.whole += step.graph and context.share < context.client_share
        row = Row(lane, count, block_ns, blocks, step.per_sm, pace_ns, gap_ns, cost_ns, interleave)
        row.graph = step.graph
        return row

    def _copy(self, number: int, step: Copying) -> Steps:
        """Send a copy: in parts, where no more than a window is to be on the GPU at once."""
        profile, lane = self._profile, self._context.lane(step.stream)
        local = step.to == "itself"
        rate = profile.local_bytes_per_us if local else profile.copy_bytes_per_us
        left = step.size
        while left:
            size = min(left, self._part(rate)) if self._way.window_ns else left
            left -= size
            part_ns = max(1, size * 1000 // rate)
            yield from self._way.reach(step.stream, (number, size), part_ns, 1)
            yield from self._pass(profile.launch_ns)
            if local:
                sms = profile.multiprocessors
                lane.send(Row(lane, 1, part_ns, sms, nominal_ns=part_ns), profile.start_ns)
            else:
                lane.send(Transfer(lane, step.to == "device", part_ns), profile.start_ns)
            self._way.sent(step.stream)
        if step.waits:
            yield from self._way.synchronise([step.stream])

    def _part(self, rate: int) -> int:
        """How many bytes take no longer than a window: whole MiB, at least one."""
        return max(1, self._way.window_ns * rate // 1000 // MIB) * MIB


class _Wait:
    """What a program waits for, which may be over at once."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on
        self.over = self.returned = False

    def end(self) -> None:
        """What it waits for has happened."""
        self.over = True
        if self.returned:
            self._go_on()
