"""Programs that draw frames: games, desktop widgets, video players."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from headway.engine.model import Group
from headway.engine.reading import Table
from headway.sim.programs import BLOCKED, Program, Work, program
from headway.sim.programs.periodic import MAX_COUNT

NS_PER_S = 1_000_000_000
MAX_GROUPS = 10_000
SCENE = 1000
"""A scene is a number from 0 (fewest groups a frame) to this (most)."""


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The most that a frame takes."""

    groups: int
    cost_ns: int
    """Of one group."""
    cpu_ns: int
    prepare_ns: int
    ahead: int
    blit_ns: int | None


class Frames(Program):
    """Draws frames of one or more groups, with CPU work (`cpu`) before each group and more of it
    (`prepare`: game logic, culling) before the first of a frame.

    The program runs at most `ahead` frames ahead of the screen. With a server it sends a request
    when the last group of a frame is dispatched, and the frame is shown when the server answers
    (PIX/RIX §3, Figure 6); without one, when its last group is done.
    """

    hears_completions = True
    draws_frames = True
    default_groups: ClassVar[tuple[int, int]] = (1, 1)
    default_cost: ClassVar[tuple[int, int]] = (1_000_000, 1_000_000)
    default_cpu: ClassVar[tuple[int, int]] = (0, 0)
    default_ahead: ClassVar[int] = 1
    default_fps: ClassVar[int | None] = None
    scene_step: ClassVar[int] = 0
    """How fast the scene changes, as the largest step from one frame to the next."""

    def __init__(
        self,
        *,
        groups: tuple[int, int],
        cost: tuple[int, int],
        cpu: tuple[int, int],
        prepare: tuple[int, int] = (0, 0),
        ahead: int,
        fps: int | None,
        count: int,
        blit_ns: int | None,
        seed: int,
    ) -> None:
        self._groups, self._cost, self._cpu = groups, cost, cpu
        self._prepare = prepare
        self._ahead, self._fps, self._count, self._blit_ns = ahead, fps, count, blit_ns
        self._random = random.Random(seed)
        self._scene = SCENE // 2
        self._frame = 0
        self._left = 0
        """Groups of this frame that are still to be submitted."""
        self._place = 0
        self._index = 0
        self._behind = 0
        """Frames sent and not yet on the screen."""
        self._stalled = False
        self._sent: dict[int, Work] = {}
        """Requests whose frame is not rendered yet, by the index of its last group."""
        if fps is not None:
            self.period_ns = NS_PER_S // fps

    @property
    def limits(self) -> FrameLimits:
        """What a frame is at most."""
        return FrameLimits(
            self._groups[1],
            self._cost[1],
            self._cpu[1],
            self._prepare[1],
            self._ahead,
            self._blit_ns,
        )

    @classmethod
    def read(cls, table: Table, seed: int) -> Frames:
        fps = table.integer("fps", cls.default_fps or 0, least=1, most=1_000_000)
        return cls(
            groups=table.integers("groups", cls.default_groups, least=1, most=MAX_GROUPS),
            cost=table.durations("cost", cls.default_cost, least=1),
            cpu=table.durations("cpu", cls.default_cpu),
            prepare=table.durations("prepare", (0, 0)),
            ahead=table.integer("ahead", cls.default_ahead, least=1, most=1000),
            fps=fps or None,
            count=table.integer("count", MAX_COUNT, least=1, most=MAX_COUNT),
            blit_ns=table.duration("blit", least=1) if "blit" in table else None,
            seed=table.integer("seed", seed),
        )

    def start(self) -> int:
        return self._next_frame(0)

    def _between(self, bounds: tuple[int, int]) -> int:
        low, high = bounds
        return low if low == high else self._random.randint(low, high)

    def _next_frame(self, now_ns: int) -> int:
        """Begin a frame if there is one to begin: when is its first group submitted?"""
        if self._frame >= self._count:
            return BLOCKED
        if self._behind >= self._ahead:
            self._stalled = True
            return BLOCKED
        begin_ns = now_ns
        if self._fps is not None:
            begin_ns = max(begin_ns, self._frame * NS_PER_S // self._fps)
        if self.scene_step:
            step = self._random.randint(-self.scene_step, self.scene_step)
            self._scene = min(SCENE, max(0, self._scene + step))
        low, high = self._groups
        self._left = low + ((high - low) * self._scene + SCENE // 2) // SCENE
        self._place = 0
        self._frame += 1
        return begin_ns + self._between(self._prepare) + self._between(self._cpu)

    def resume(self, now_ns: int) -> Group | None:
        self._left -= 1
        group = Group(
            self.task,
            self._index,
            self._between(self._cost),
            signature=(self.kind, self.task.name, self._place),
            frame=not self._left and self.server is None,
        )
        self._place += 1
        self._index += 1
        return group

    def dispatched(self, group: Group, now_ns: int) -> int:
        if self._left:
            return now_ns + self._between(self._cpu)
        self._behind += 1
        if self.server is not None:
            work = Work(self.task, self.server, self._blit_ns, ready=False)
            self._sent[group.index] = work
            self.world.ask(work)
        return self._next_frame(now_ns)

    def completed(self, group: Group, now_ns: int) -> int:
        if group.frame:
            return self._on_screen(now_ns)
        work = self._sent.pop(group.index, None)
        if work is None:
            return BLOCKED
        if work.request is None:  # no server was there to ask: rendered is all it gets
            return self._on_screen(now_ns)
        self.world.rendered(work)
        return BLOCKED

    def answered(self, work: Work, now_ns: int) -> None:
        if not work.failed:
            self.world.show(self.task)
        due_ns = self._on_screen(now_ns)
        if due_ns != BLOCKED:
            self.world.wake(self.task, due_ns)

    def _on_screen(self, now_ns: int) -> int:
        self._behind -= 1
        if not self._stalled:
            return BLOCKED
        self._stalled = False
        return self._next_frame(now_ns)


@program("widget")
class Widget(Frames):
    """The Engine demo: one regular frame after the other, as fast as it can."""

    default_cost = (2_000_000, 2_000_000)
    default_cpu = (500_000, 500_000)


@program("game")
class Game(Frames):
    """Frames of several groups whose number follows a scene, with CPU time between them."""

    default_groups = (4, 12)
    default_cost = (300_000, 900_000)
    default_cpu = (100_000, 300_000)
    default_ahead = 2
    scene_step = 60


@program("video")
class Video(Frames):
    """A player: a frame at its time, 24 a second; a late frame is shown late, none is dropped."""

    default_cost = (4_000_000, 4_000_000)
    default_cpu = (2_000_000, 2_000_000)
    default_fps = 24


@program("xclient")
class XClient(Frames):
    """A program that never touches the GPU itself: the server draws for it (PIX/RIX §3).

    `cost` is the GPU time the server spends on a frame.
    """

    hears_completions = False

    def resume(self, now_ns: int) -> Group | None:
        if self.server is not None:
            self._behind += 1
            work = Work(self.task, self.server, self._between(self._cost), ready=True)
            self.world.ask(work)
            if work.failed:  # nobody draws for it any more
                return None
        due_ns = self._next_frame(now_ns)
        if due_ns != BLOCKED:
            self.world.wake(self.task, due_ns)
        return None
