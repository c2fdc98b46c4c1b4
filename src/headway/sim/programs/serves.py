"""A window server: work on the GPU on other tasks' behalf."""

from __future__ import annotations

from headway.engine.model import Group
from headway.engine.reading import Table
from headway.sim.programs import BLOCKED, Program, Work, program


@program("serves")
class Server(Program):
    """Blits its clients' finished frames to the screen, one request at a time (PIX/RIX §3).

    It takes the next request in the order of arrival or by the client's rank, waits until that
    frame is rendered, submits the blit and answers when it is done. `pix` and `rix` switch the two
    inheritance protocols on.
    """

    hears_completions = True
    endless = False

    def __init__(self, order: str, blit_ns: int, groups: int, *, pix: bool, rix: bool) -> None:
        self._by_rank = order == "priority"
        self._blit_ns = blit_ns
        self._groups = groups
        self.pix = pix
        self.rix = rix
        self._queue: list[Work] = []
        self._current: Work | None = None
        self._index = 0
        self._left = 0
        """Groups of the current request that are not done yet; 0 while none was submitted."""
        self._unsent = 0

    @property
    def by_rank(self) -> bool:
        """Whether the strongest client is served next, and not the oldest request."""
        return self._by_rank

    @property
    def groups(self) -> int:
        """Into how many groups the work for a frame is cut."""
        return self._groups

    @property
    def blit_ns(self) -> int:
        """What a frame costs whose client does not say."""
        return self._blit_ns

    @classmethod
    def read(cls, table: Table, seed: int) -> Server:
        return cls(
            table.choice("order", ("fifo", "priority"), "fifo"),
            table.duration("blit", 500_000, least=1),
            table.integer("groups", 1, least=1, most=1000),
            pix=table.boolean("pix", False),
            rix=table.boolean("rix", False),
        )

    def start(self) -> int:
        return BLOCKED

    def asked(self, work: Work, now_ns: int) -> None:
        self._queue.append(work)
        if not self._left:
            self._choose(now_ns)

    def rendered(self, work: Work, now_ns: int) -> None:
        if work is self._current and not self._left:
            self._begin(now_ns)

    def abandoned(self, work: Work, now_ns: int) -> None:
        if work is self._current and not self._left:
            self._current = None
            self._choose(now_ns)

    def _choose(self, now_ns: int) -> None:
        """Take the request that is served next; one that has not begun may be put back."""
        if self._current is not None:
            if not self._by_rank:
                return
            self._queue.insert(0, self._current)
            self._current = None
        self._queue = [work for work in self._queue if work.client.alive]
        if not self._queue:
            return
        best = self._queue[0]
        if self._by_rank:
            best = min(self._queue, key=lambda work: work.client.rank)
        self._queue.remove(best)
        self._current = best
        if best.ready:
            self._begin(now_ns)

    def _begin(self, now_ns: int) -> None:
        self._left = self._unsent = self._groups
        self.world.wake(self.task, now_ns)

    def resume(self, now_ns: int) -> Group | None:
        work = self._current
        if work is None:
            return None
        self._unsent -= 1
        total_ns = self._blit_ns if work.cost_ns is None else work.cost_ns
        part_ns = max(1, total_ns * (self._groups - self._unsent) // self._groups)
        part_ns -= total_ns * (self._groups - self._unsent - 1) // self._groups
        signature = (self.kind, self.task.name, total_ns)
        group = Group(self.task, self._index, max(1, part_ns), signature=signature)
        self._index += 1
        return group

    def dispatched(self, group: Group, now_ns: int) -> int:
        return now_ns if self._unsent else BLOCKED

    def completed(self, group: Group, now_ns: int) -> int:
        self._left -= 1
        work = self._current
        if not self._left and work is not None:
            self._current = None
            self.world.answer(work)
            if not self._left and self._current is None:
                self._choose(now_ns)
        return BLOCKED
