"""The books: who is charged to which reserve, what is lent to whom, and when it is replenished."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from headway.engine.inheritance import Request, returned_ns
from headway.engine.model import Group, Task
from headway.engine.queue import ReadyQueue
from headway.engine.reserves import BACKGROUND, POOL_MARK, Reserve, ReserveSpec

MAX_STEPS = 1000
"""Periods that are made up for one by one after a long sleep."""


class Ledger:
    """All reserves in use. Whoever waits on a budget enters the ready queue when it allows it."""

    def __init__(
        self,
        queue: ReadyQueue,
        tell: Callable[..., None],
        background: ReserveSpec,
        device: int = 0,
    ) -> None:
        """`device`: the GPU that the reserves are for, where each has an engine of its own."""
        self._place = f" (GPU {device})" if device else ""
        self._queue = queue
        self._tell = tell
        self._background_spec = background
        self.pools: dict[str, Reserve] = {}
        self.timers: list[tuple[int, int, Reserve]] = []
        """Replenishments to come; an entry counts only if its reserve still says the same time."""
        self._timer_count = 0

    def open(self, owner: str, spec: ReserveSpec, now_ns: int) -> Reserve:
        """A new reserve, full: named after its pool, with a mark, or after the task it is for.
        Pools of one name on several GPUs are several."""
        name = owner if spec.shared is None else f"{POOL_MARK}{spec.shared}{self._place}"
        reserve = Reserve(name, spec, now_ns)
        if spec.shared is not None:
            self.pools[spec.shared] = reserve
        self._tell("reserve_set", reserve)
        return reserve

    def background(self, now_ns: int) -> Reserve:
        """The Background reserve, made when it is first needed."""
        if BACKGROUND not in self.pools:
            self.open(BACKGROUND, self._background_spec, now_ns)
        return self.pools[BACKGROUND]

    def change(self, reserve: Reserve, spec: ReserveSpec, now_ns: int) -> None:
        """Give a reserve other numbers while it is in use."""
        reserve.change(spec, now_ns)
        self._tell("reserve_set", reserve)
        self.update(reserve, now_ns)

    def join(
        self, task: Task, reserve: Reserve | None, requests: Iterable[Request], now_ns: int
    ) -> None:
        """Charge a task to another reserve. Debt of a private one follows the task, also through a
        time without any; what is lent through its requests is returned and lent again."""
        current = task.reserve
        if task.in_ready_queue:
            self._queue.pull(task)
        for request in requests:
            self.give_back(request)
        if current is not None and not current.shared:
            task.debt_ns += min(current.budget_ns, 0)
        self.part(task)
        task.reserve = reserve
        debt_ns = 0
        if reserve is not None:
            reserve.members.append(task)
            debt_ns, task.debt_ns = task.debt_ns, 0
            reserve.budget_ns += debt_ns
            self.update(reserve, now_ns)
        self._tell("joined", task)
        if debt_ns and reserve is not None:
            self._tell("reserve_set", reserve)
        if task.waiting is not None:
            self.wait(task.waiting, now_ns)
        for request in requests:
            self.lend(request)
            self.settle(request, now_ns)
        if current is not None and current.members:
            self.update(current, now_ns)

    def part(self, task: Task) -> None:
        """The task is charged to nobody any more."""
        reserve = task.reserve
        if reserve is None:
            return
        reserve.members.remove(task)
        reserve.waiting.pop(task, None)
        task.reserve = None
        self._forget_if_over(reserve)

    def _forget_if_over(self, reserve: Reserve) -> None:
        """Without members a pool stays until it is full again: nobody gains by leaving it."""
        name = reserve.spec.shared
        if reserve.members or name == BACKGROUND:
            return
        if name is None:
            reserve.next_ns = None
        elif reserve.is_settled and self.pools.get(name) is reserve:
            reserve.next_ns = None
            del self.pools[name]

    # -- budgets -----------------------------------------------------------------------------

    def wait(self, group: Group, now_ns: int) -> None:
        """A group was submitted: it is ready now, or when its reserve lets it through."""
        reserve = group.task.reserve
        if reserve is not None:
            reserve.waiting[group.task] = group
            self._arm(reserve, now_ns)
            if not reserve.lets_through(group):
                return
        group.ready_ns = now_ns
        self._queue.push(group)

    def charge(self, reserve: Reserve, executed_ns: int, now_ns: int) -> None:
        """A group executed for so long, until now."""
        reserve.budget_ns -= executed_ns
        # A boundary at this very instant comes after the charge, hence the minus one.
        self._arm(reserve, now_ns - 1)
        if reserve.waiting:
            self._recheck(reserve, now_ns)

    def advance(self, now_ns: int) -> None:
        """Replenish what is due by now."""
        timers = self.timers
        while timers and timers[0][0] <= now_ns:
            due_ns, _, reserve = heappop(timers)
            if reserve.next_ns != due_ns:
                continue
            lent = list(reserve.lent)
            for request in lent:
                self.give_back(request)
            # Late, and nobody else's budget is in play: all missed periods at once. Else one by
            # one, in the order in which they were due, unless it is too late for that to matter.
            late = (now_ns - due_ns) // reserve.period_ns
            at_once = late if not (lent or reserve.inherited) or late > MAX_STEPS else 0
            reserve.replenish(at_once + 1)
            reserve.next_ns = None
            done_ns = reserve.replenished_ns = due_ns + at_once * reserve.period_ns
            self._tell("replenished", reserve)
            for request in lent:
                self.lend(request)
                self.settle(request, done_ns)
            self.update(reserve, done_ns)
            self._forget_if_over(reserve)

    def next_due_ns(self) -> int | None:
        """When the next replenishment is due."""
        timers = self.timers
        while timers and timers[0][2].next_ns != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else None

    def update(self, reserve: Reserve, now_ns: int) -> None:
        """The budget changed: set the timer, and see who may go."""
        self._arm(reserve, now_ns)
        self._recheck(reserve, now_ns)

    def _arm(self, reserve: Reserve, from_ns: int) -> None:
        """Have the reserve replenished at its first boundary after `from_ns`, but once at each: a
        charge may come in the instant of a replenishment, and after it."""
        if reserve.next_ns is not None or reserve.is_settled:
            return
        from_ns = max(from_ns, reserve.replenished_ns)
        elapsed = max(0, from_ns - reserve.anchor_ns)  # the first comes after a whole period
        reserve.next_ns = reserve.anchor_ns + (elapsed // reserve.period_ns + 1) * reserve.period_ns
        self._timer_count += 1
        heappush(self.timers, (reserve.next_ns, self._timer_count, reserve))

    def _recheck(self, reserve: Reserve, now_ns: int) -> None:
        for task, group in reserve.waiting.items():
            lets_through = reserve.lets_through(group)
            if lets_through != task.in_ready_queue:
                if lets_through:
                    group.ready_ns = now_ns
                    self._queue.push(group)
                else:
                    self._queue.pull(task)

    # -- inheritance -------------------------------------------------------------------------

    def lend(self, request: Request) -> None:
        """RIX rule 1: the server gets what is left of the client's budget, or of its part of it."""
        giver, taker = request.client.reserve, request.server.reserve
        if not request.rix or giver is None or taker is None or giver is taker:
            return
        amount_ns = giver.to_lend_ns(request.client)
        giver.lent.append(request)
        taker.inherited[request] = amount_ns
        self._move(giver, taker, amount_ns)

    def give_back(self, request: Request) -> None:
        """RIX rule 3: the client gets its part of what the server has left."""
        taker, giver = request.client.reserve, request.server.reserve
        if giver is None or taker is None or request not in giver.inherited:
            return
        total_ns = sum(giver.inherited.values())
        lent_ns = giver.inherited.pop(request)
        taker.lent.remove(request)
        self._move(giver, taker, returned_ns(lent_ns, total_ns, giver.budget_ns))

    def settle(self, request: Request, now_ns: int) -> None:
        """Budget may have moved between the two."""
        for reserve in (request.client.reserve, request.server.reserve):
            if reserve is not None:
                self.update(reserve, now_ns)

    def _move(self, giver: Reserve, taker: Reserve, amount_ns: int) -> None:
        if amount_ns:
            giver.budget_ns -= amount_ns
            taker.budget_ns += amount_ns
            self._tell("moved", giver, taker, amount_ns)
