"""The simulator: the engine in virtual time.

It keeps the order of the scenario contract within an instant: every completion, every
replenishment, every submission, then decisions until none changes anything; a group that becomes
due through a decision is submitted at that instant. Programs (`programs/`) say what a task does
next; the device says how long the GPU takes for it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from headway.engine.core import Engine
from headway.engine.inheritance import Request
from headway.engine.model import Group, Task
from headway.engine.units import MAX_NS
from headway.sim.programs import BLOCKED, Program, Work, World

NEVER = MAX_NS
Progress = Callable[[int], bool]
PROGRESS_EVERY = 4096
"""Instants between two calls of the progress callback."""


@dataclass(frozen=True, slots=True)
class Device:
    """What the GPU and its manager cost beside the groups themselves."""

    count: int = 1
    switch_ns: int = 0
    """Lost when the GPU goes from one task's group to another task's."""
    decide_ns: int = 0
    """Lost per scheduling decision, unless the GPU executes something meanwhile."""
    charges_overhead: bool = True
    """Whether reserves pay for both: from the dispatch of a group on, or the completion of the one
    before it, as TimeGraph does (§5.2), and not from its start on."""
    jitter: float = 0.0
    """Costs vary evenly by this fraction up and down."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens to the system at an instant, such as a change of focus."""

    at_ns: int
    do: Callable[[Simulator], None]


class Simulator(World):
    """Runs programs on an engine until nothing is left to do, or until a given time."""

    def __init__(
        self,
        engine: Engine,
        programs: Mapping[Task, Program],
        device: Device,
        actions: Iterable[Action] = (),
    ) -> None:
        self.engine = engine
        self.device = device
        self._programs = programs
        self._calendar: list[tuple[int, int, Program]] = []
        """When tasks want to submit, by time and then by order in the file."""
        self._actions = sorted(actions, key=lambda action: action.at_ns)[::-1]
        """The next one last; those of one instant in the order of the file."""
        self._free_ns = [0] * len(engine.gpus)
        """When each GPU has done all that is online."""
        self._jitter = random.Random(device.seed) if device.jitter else None
        self._pending: dict[Request, Work] = {}
        self._open_end = False
        """The run ends with its last group, whatever timers there are."""
        self.now_ns = 0
        for task, program in programs.items():
            program.attach(self, task)

    def run(self, until_ns: int | None = None, *, progress: Progress | None = None) -> bool:
        """Simulate up to and including `until_ns`; tells whether it came to its end.

        `progress` is called now and then with the time; it ends the run by returning False. What
        was observed so far stays valid then: a run only ever stops between two instants.
        """
        self._open_end = until_ns is None
        last_ns = NEVER - 1 if until_ns is None else until_ns
        for task, program in self._programs.items():
            due_ns = program.start()
            if due_ns != BLOCKED:
                self.wake(task, due_ns)
        finished = self._loop(last_ns, progress)
        if finished and until_ns is not None:
            self.now_ns = self.engine.now_ns = until_ns
        self._tell_overdue()
        self.engine.tell("ended", finished)
        return finished

    def _tell_overdue(self) -> None:
        """Jobs that are not done have missed their deadlines as well."""
        now_ns = self.now_ns
        groups = [group for gpu in self.engine.gpus for group in gpu.online]
        groups += [task.waiting for task in self._programs if task.waiting is not None]
        late = Counter(
            group.task
            for group in groups
            if group.deadline_ns is not None and group.deadline_ns <= now_ns
        )
        for task, program in self._programs.items():
            jobs = late[task] + program.unsent(now_ns) if task.alive else 0
            if jobs:
                self.engine.tell("overdue", task, jobs)

    def _loop(self, last_ns: int, progress: Progress | None) -> bool:  # noqa: C901
        """One turn per instant; written out in one piece because calls cost more than the work."""
        engine = self.engine
        gpus = engine.gpus
        online = gpus[0].online if len(gpus) == 1 else None
        device = self.device
        plain_device = not (device.switch_ns or device.decide_ns or self._jitter or online is None)
        free_ns = self._free_ns
        calendar = self._calendar
        actions = self._actions
        queue = engine.queue
        timers, wakers, waiting = engine.ledger.timers, queue.wakers, engine.any_ready
        kept = engine.holdoffs.until_ns
        dispatch, submit, complete = engine.dispatch, engine.submit, engine.complete
        programs = self._programs
        countdown = PROGRESS_EVERY
        while True:
            if online is None:
                done_ns = min((g.online[0].finished_ns for g in gpus if g.online), default=NEVER)
            else:
                done_ns = online[0].finished_ns if online else NEVER
            now_ns = calendar[0][0] if calendar else NEVER
            if done_ns < now_ns:
                now_ns = done_ns
            if timers or wakers or kept or actions:
                now_ns = self._earliest(now_ns)
            if now_ns > last_ns:
                return True
            self.now_ns = now_ns
            if progress is not None:
                countdown -= 1
                if not countdown:
                    countdown = PROGRESS_EVERY
                    if not progress(now_ns):
                        return False
            if done_ns == now_ns:
                if online is None:
                    self._complete(now_ns)
                else:
                    group = online[0]
                    complete(group, group.started_ns, now_ns)
                    if programs[group.task].hears_completions:
                        self._tell(group, now_ns)
            if timers and timers[0][0] <= now_ns:
                engine.advance(now_ns)
            while actions and actions[-1].at_ns <= now_ns:
                actions.pop().do(self)
            while calendar and calendar[0][0] == now_ns:
                program = heappop(calendar)[2]
                made = program.resume(now_ns) if program.task.alive else None
                if made is not None:
                    submit(made, now_ns)
            while waiting and (not online or queue.eager):
                decided = dispatch(now_ns)
                if decided is None:
                    break
                if plain_device:
                    start_ns = free_ns[0]
                    if start_ns < now_ns:
                        start_ns = now_ns
                    decided.started_ns = start_ns
                    decided.finished_ns = free_ns[0] = start_ns + decided.exact_ns
                else:
                    self._start(decided, now_ns)
                task = decided.task
                program = programs[task]
                due_ns = program.dispatched(decided, now_ns)
                if due_ns > now_ns:
                    heappush(calendar, (due_ns, task.order, program))
                elif due_ns != BLOCKED:
                    made = program.resume(now_ns)
                    if made is not None:
                        submit(made, now_ns)

    def _complete(self, now_ns: int) -> None:
        """Several GPUs: a cost is never zero, so at most one group is done on each."""
        for gpu in self.engine.gpus:
            if gpu.online and gpu.online[0].finished_ns == now_ns:
                group = gpu.online[0]
                self.engine.complete(group, group.started_ns, now_ns)
                self._tell(group, now_ns)

    def _tell(self, group: Group, now_ns: int) -> None:
        program = self._programs[group.task]
        if program.hears_completions and group.task.alive:
            due_ns = program.completed(group, now_ns)
            if due_ns != BLOCKED:
                self.wake(group.task, due_ns)

    def _earliest(self, now_ns: int) -> int:
        """The next instant, with timers and actions; NEVER if all there is to do is done."""
        engine = self.engine
        engine.now_ns = self.now_ns  # policies say from there when they want to be asked again
        if self._actions and self._actions[-1].at_ns < now_ns:
            now_ns = self._actions[-1].at_ns
        if now_ns == NEVER and self._open_end and not any(t.waiting for t in self._programs):
            return NEVER
        timer_ns = engine.next_timer_ns()
        return now_ns if timer_ns is None else min(now_ns, timer_ns)

    def _start(self, group: Group, now_ns: int) -> None:
        """Work out when a group that just went online executes."""
        device = self.device
        index = group.gpu.index
        begin_ns = start_ns = now_ns
        if device.decide_ns and group.task.policy.decides:
            start_ns += device.decide_ns
        free_ns = self._free_ns[index]
        if free_ns > start_ns:
            start_ns = free_ns
        if group.switched:
            start_ns += device.switch_ns
        if device.charges_overhead:
            group.overhead_ns = start_ns - max(begin_ns, free_ns)
        cost_ns = group.exact_ns
        if self._jitter is not None:
            swing = int(cost_ns * device.jitter)
            cost_ns = max(1, cost_ns + self._jitter.randint(-swing, swing))
        group.started_ns = start_ns
        group.finished_ns = self._free_ns[index] = start_ns + cost_ns

    def wake(self, task: Task, due_ns: int) -> None:
        due_ns = max(due_ns, self.now_ns)
        heappush(self._calendar, (due_ns, task.order, self._programs[task]))

    def show(self, task: Task) -> None:
        self.engine.tell("shown", task)

    def ask(self, work: Work) -> None:
        server = self.engine.tasks.get(work.server)
        if server is None:  # it died: nobody will ever answer
            work.failed = True
            return
        work.request = self.engine.enter(work.client, server, self.now_ns)
        self._pending[work.request] = work
        self._programs[server].asked(work, self.now_ns)

    def rendered(self, work: Work) -> None:
        work.ready = True
        if work.request in self._pending:
            self._programs[work.request.server].rendered(work, self.now_ns)

    def answer(self, work: Work) -> None:
        if work.request in self._pending:
            del self._pending[work.request]
            self.engine.leave(work.request, self.now_ns)
            if work.client.alive:
                self._programs[work.client].answered(work, self.now_ns)

    def kill(self, task: Task) -> None:
        """The task dies here, whatever it is doing; what is online still runs."""
        pending = [w for r, w in self._pending.items() if task in (r.client, r.server)]
        self.engine.remove_task(task, self.now_ns)
        for work in pending:
            request = work.request
            work.failed = True
            self.answer(work)
            if request is not None and request.server.alive:
                self._programs[request.server].abandoned(work, self.now_ns)
