"""Programs that always have another group."""

from __future__ import annotations

import random

from headway.engine.model import Group
from headway.engine.reading import Table
from headway.sim.programs import BLOCKED, Program, program
from headway.sim.programs.periodic import MAX_COUNT

MAX_DEPTH = 100_000


@program("greedy")
class Greedy(Program):
    """Submits group after group, with at most `depth` on the GPU at a time."""

    hears_completions = True
    default_cost = (1_000_000, 1_000_000)
    default_depth = 1

    def __init__(
        self,
        cost: tuple[int, int],
        depth: int = 1,
        cpu_ns: int = 0,
        count: int = MAX_COUNT,
        seed: int = 0,
    ) -> None:
        self._cost = cost
        self._depth = depth
        self._cpu_ns = cpu_ns
        self._count = count
        self._random = random.Random(seed)
        self._index = 0
        self._online = 0
        self._full = False

    @property
    def longest_ns(self) -> int:
        """What a group costs at most."""
        return self._cost[1]

    @property
    def depth(self) -> int:
        """How many groups are on the GPU at a time, where the policy lets them."""
        return self._depth

    @classmethod
    def read(cls, table: Table, seed: int) -> Greedy:
        return cls(
            table.durations("cost", cls.default_cost, least=1),
            table.integer("depth", cls.default_depth, least=1, most=MAX_DEPTH),
            table.duration("cpu", 0),
            table.integer("count", MAX_COUNT, least=1, most=MAX_COUNT),
            table.integer("seed", seed),
        )

    def start(self) -> int:
        return 0

    def resume(self, now_ns: int) -> Group:
        low, high = self._cost
        cost_ns = low if low == high else self._random.randint(low, high)
        group = Group(self.task, self._index, cost_ns, signature=(self.kind, self.task.name))
        self._index += 1
        return group

    def dispatched(self, group: Group, now_ns: int) -> int:
        self._online += 1
        if self._index >= self._count:
            return BLOCKED
        if self._online >= self._depth:
            self._full = True
            return BLOCKED
        return now_ns + self._cpu_ns

    def completed(self, group: Group, now_ns: int) -> int:
        self._online -= 1
        if not self._full:
            return BLOCKED
        self._full = False
        return now_ns + self._cpu_ns


@program("bomb")
class Bomb(Greedy):
    """Clearspd: clears the screen as often as the driver takes it, to nobody's use."""

    default_cost = (1_000_000, 1_000_000)
    default_depth = 32
