"""The daemon of a simulation: the engine's arbiter, and how soon the daemon reacts.

Decisions are the engine's own objects'; here is only what the daemon's loop is in real time: pages
that are looked at, messages that take a while, timers, and a beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.engine.controllers import controllers
from headway.engine.controllers.slowdown import Slowdown
from headway.engine.core import Engine
from headway.engine.model import Task
from headway.engine.profile import DeviceProfile
from headway.engine.shares import LEAST_PERMILLE, Range
from headway.engine.turns import leases
from headway.engine.turns.arbiter import Arbiter, Bounds
from headway.engine.turns.client import Client
from headway.engine.turns.spaces import Spaces
from headway.engine.turns.windows import DEFAULT_SPLIT_NS, DEFAULT_WINDOW_NS, Windows
from headway.sim.cuda.clock import Clock, Entry
from headway.sim.cuda.commands import Context
from headway.sim.cuda.interposer import Interposer
from headway.sim.cuda.page import Page
from headway.sim.cuda.work import CudaPlan

BEAT_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Management:
    """How Headway is set up in a simulation."""

    kind: str = "headway"
    """What there is of Headway: all of it; `shares`, which a controller moves without a gate; or
    `none`."""
    window_ns: int = DEFAULT_WINDOW_NS
    split_ns: int = DEFAULT_SPLIT_NS
    hold_ns: int = 60_000_000
    slowdown: float = 0.1
    controller: str = Slowdown.name
    restart_ns: int | None = None
    """Another share takes a restart of so long. None: the next kernel has it."""
    few_restarts: bool = True
    """Restarts are as few as the daemon has; else every change is made, as in CudaMon."""
    spaces: bool = True
    """Programs get shares of the multiprocessors as well; else they are gated in time alone."""
    tick_ns: int | None = None
    polls: bool = True
    """The daemon looks at pages all the time, rather than sleeping until it hears something."""
    reacts_ns: int = 10_000
    """How long it takes to notice something and to decide, if it polls,"""
    wakes_ns: int = 50_000
    """and if it sleeps."""


class SimulatedClient(Client):
    """One simulated program at the gate."""

    interposer: Interposer


class Manager:
    """Serves simulated programs as the daemon serves real ones."""

    def __init__(
        self, clock: Clock, engine: Engine, profile: DeviceProfile, how: Management
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._profile = profile
        self._how = how
        bounds = Bounds(
            hold_ns=how.hold_ns,
            tick_ns=how.tick_ns,
            slowdown=how.slowdown,
            window_ns=how.window_ns,
        )
        self.arbiter = Arbiter(engine, lambda client: None, bounds, profile=profile)
        self.windows = Windows(how.split_ns, how.window_ns)
        self.spaces = Spaces(self._record)
        self.spaces.choose(controllers()[how.controller]())
        engine.attach(self.spaces)
        engine.attach(self.windows)
        self._poll: Entry | None = None
        self._timer: Entry | None = None
        self._ticked_ns = -1
        self._delay_ns = how.reacts_ns if how.polls else how.wakes_ns
        self._clients: list[SimulatedClient] = []
        self.arbiter.set_polling(how.polls, 0)
        clock.at(BEAT_NS, self._beat)

    def add(self, task: Task, context: Context, plan: CudaPlan) -> SimulatedClient:
        """A program has connected, and takes turns."""
        clock, now_ns = self._clock, self._clock.now_ns
        client = SimulatedClient(len(self._clients), now_ns, self.spaces.controller)
        self._clients.append(client)
        client.task, client.deadline_ns, client.slowdown = task, plan.goal_ns, plan.slowdown
        task.shares = Range(LEAST_PERMILLE if self._how.spaces else plan.share, plan.share)
        client.company.side_by_side = context.device.side_by_side
        page = Page(clock, context, self._profile.open_ns)
        client.port = page
        client.interposer = Interposer(clock, context, self._profile, page, _Line(self, client))
        self.arbiter.add(client)
        self.windows.arrived(client)
        self.spaces.arrived(client)
        self.arbiter.takes_turns(client, now_ns)
        self._decided()
        return client

    def remove(self, client: SimulatedClient) -> None:
        """A program is gone, which is heard after everything that it had said."""

        def gone(now_ns: int) -> None:
            if client.task is not None:
                self.spaces.gone(client)
                self.arbiter.remove(client, now_ns)
                self.windows.gone(client)

        self.hear(gone)

    def _record(self, hook: str, *words: object, at_ns: int) -> None:
        self._engine.tell(hook, *words, at_ns=at_ns)

    def change(self, client: SimulatedClient, change: Callable[[], None]) -> None:
        """Change a program's priority or reserve, as `headway set` does."""
        now_ns = self._clock.now_ns
        self.arbiter.settle(now_ns)
        change()
        self.arbiter.take_back(client, now_ns)
        self.arbiter.decide(now_ns)
        self._decided()

    def hear(self, call: Callable[[int], None]) -> None:
        """A message is on its way, and handled with its time."""

        def handle() -> None:
            call(self._clock.now_ns)
            self._decided()

        self._clock.at(self._clock.now_ns + self._delay_ns, handle)

    def notice(self) -> None:
        """Something changed in a page: it is seen with the next look."""
        if self._poll is None:
            self._poll = self._clock.at(self._clock.now_ns + self._delay_ns, self._look)

    def _look(self) -> None:
        self._poll = None
        for _ in range(self.arbiter.rounds):
            self.arbiter.poll(self._clock.now_ns)
        self._decided()

    def _tick(self) -> None:
        self._timer, self._ticked_ns = None, self._clock.now_ns
        self.arbiter.tick(self._clock.now_ns)
        self._decided()

    def _beat(self) -> None:
        now_ns = self._clock.now_ns
        for holder in list(self.arbiter.online.clients):
            leases.report_passed(self._engine, holder, now_ns)
        for client in self._clients:
            if client.task is not None:
                self.arbiter.look_at_jobs(client, now_ns)
        self.spaces.publish(now_ns)
        self._decided()
        self._clock.at(now_ns + BEAT_NS, self._beat)

    def _decided(self) -> None:
        """Something was decided: when is there more to do?"""
        while self.windows.is_stale:
            self.windows.tell()
        now_ns = self._engine.now_ns = self._clock.now_ns
        due_ns = self.arbiter.next_timer_ns()
        self._clock.cancel(self._timer)
        self._timer = None
        if (
            due_ns is not None and due_ns <= now_ns == self._ticked_ns
        ):  # it was seen to, and goes on
            due_ns = now_ns + self._how.reacts_ns
        if due_ns is not None:
            self._timer = self._clock.at(due_ns, self._tick)
        look_ns = self.arbiter.next_poll_ns
        if self._how.polls and look_ns is not None and self._poll is None:
            self._poll = self._clock.at(max(look_ns, now_ns + self._delay_ns), self._look)


class _Line:
    """A program's way to the daemon."""

    def __init__(self, manager: Manager, client: SimulatedClient) -> None:
        self._manager = manager
        self._client = client

    def asked(self, seq: int, ask: int) -> None:
        manager, client = self._manager, self._client
        manager.hear(lambda now_ns: manager.arbiter.asked(client, seq, 0, ask, now_ns))

    def released(self, *, rests: bool) -> None:
        manager, client = self._manager, self._client
        manager.hear(lambda now_ns: manager.arbiter.released(client, now_ns, rests=rests))

    def notice(self) -> None:
        self._manager.notice()
