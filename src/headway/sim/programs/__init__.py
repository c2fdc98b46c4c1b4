"""What simulated tasks do: one file per kind of program, found by the decorator.

A program is a state machine that the simulator steps. It is one thread: it sleeps in its submission
until the group is dispatched, so at any time it either waits for the gate, works on its CPU until a
known instant, or is blocked until the GPU or a server has done something.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from headway.engine.registry import Registry

if TYPE_CHECKING:
    from headway.engine.inheritance import Request
    from headway.engine.model import Group, Task
    from headway.engine.reading import Table

BLOCKED = -1
"""No next submission is known yet: something else must happen first."""


class World(ABC):
    """What a program can do to the world beside submitting groups."""

    @abstractmethod
    def wake(self, task: Task, due_ns: int) -> None:
        """Have a blocked task resumed at this instant."""

    @abstractmethod
    def show(self, task: Task) -> None:
        """A frame of this task reached the screen."""

    @abstractmethod
    def ask(self, work: Work) -> None:
        """Send a request to its server; `Program.answered` tells when it is done."""

    @abstractmethod
    def rendered(self, work: Work) -> None:
        """The frame that the request is about is ready."""

    @abstractmethod
    def answer(self, work: Work) -> None:
        """The server is done with a request."""


class Work:
    """A request to a server: what it must do on the GPU, and for which client."""

    def __init__(self, client: Task, server: str, cost_ns: int | None, *, ready: bool) -> None:
        self.client = client
        self.server = server
        self.cost_ns = cost_ns
        """GPU time of the server's groups for it; None where the server's own number applies."""
        self.ready = ready
        """The frame is rendered, so the server may start; before that it has to wait for it."""
        self.failed = False
        """The server is gone: nobody did it, or will."""
        self.request: Request | None = None
        """The engine's side of it, once it is pending."""


class Program(ABC):
    """The behaviour of one task."""

    kind: ClassVar[str]
    hears_completions: ClassVar[bool] = False
    endless: ClassVar[bool] = True
    """Whether it goes on for as long as it is simulated."""
    draws_frames: ClassVar[bool] = False
    """Whether a server can show what it draws."""
    period_ns: int | None = None
    server: str | None = None
    """The task that shows its frames."""

    def attach(self, world: World, task: Task) -> None:
        """Called once, before the run."""
        self.world = world
        self.task = task

    @classmethod
    @abstractmethod
    def read(cls, table: Table, seed: int) -> Program:
        """Make one from its table in a scenario file."""

    @abstractmethod
    def start(self) -> int:
        """When it first wants to be resumed, or BLOCKED."""

    @abstractmethod
    def resume(self, now_ns: int) -> Group | None:
        """Its time has come: the group that it submits now, if it submits one."""

    @abstractmethod
    def dispatched(self, group: Group, now_ns: int) -> int:
        """The gate opened. When is it to be resumed (a past time means now), or BLOCKED?"""

    def unsent(self, now_ns: int) -> int:
        """Jobs that it had no chance to submit by now though their deadlines have passed."""
        return 0

    def completed(self, group: Group, now_ns: int) -> int:
        """The GPU is done with a group; only called if `hears_completions`."""
        return BLOCKED

    def asked(self, work: Work, now_ns: int) -> None:
        """A client sent a request (servers only)."""

    def rendered(self, work: Work, now_ns: int) -> None:
        """The frame of a pending request is ready (servers only)."""

    def abandoned(self, work: Work, now_ns: int) -> None:
        """The client of a pending request is gone (servers only)."""

    def answered(self, work: Work, now_ns: int) -> None:
        """The server has done what this task asked for, or died (`work.failed`)."""


program = Registry[type[Program]]("program", __name__, "kind")
"""The decorator that makes a kind of program known by the key that scenario files use."""


def programs() -> dict[str, type[Program]]:
    """Every known kind of program by its key."""
    return program.all()
