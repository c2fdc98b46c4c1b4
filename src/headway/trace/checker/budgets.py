"""Who may use how much: `budget`, `bandwidth` and the second half of `inheritance` (RIX).

Every budget is worked out anew from what the events say was executed, replenished and moved, and
compared with what they say the budget is; after a difference the books take the stated value, so
that one mistake is told once. `bandwidth` does not look at budgets at all: it only adds up charges.

A request that is pending, answered or lent anew moves budget, but the moves (`Moved`) do not name
the request. So they are collected until the event that tells what they were for:

    Entered, the move           what is left of the client's budget, or its part of a shared one
    the move, Left              its part, back to the client
    moves, Joined, moves        back before a task changes reserves, and lent again after it
    moves, Replenished, move    back before a lent reserve gets its capacity, and lent again

Nor does the stream say which servers follow RIX. One is taken to do so, or not, by the first
request whose client has something to lend; two servers that share a reserve should do the same.
"""

from __future__ import annotations

from collections import deque

from headway.engine.events import (
    Charged,
    Completed,
    Joined,
    Moved,
    Overran,
    Replenished,
    ReserveSet,
)
from headway.trace.checker.books import Books, GroupBook, RequestBook, ReserveBook, TaskBook
from headway.trace.checker.rules import Report

_BACKGROUND = "@background"
"""The pool that stays when its last member leaves."""


class Budgets:
    """Keeps the accounts of the reserves."""

    def __init__(self, books: Books, report: Report, tolerance_ns: int) -> None:
        self._books = books
        self._report = report
        self._tolerance_ns = tolerance_ns
        self._moves: deque[Moved] = deque()
        """Seen, and not yet explained."""
        self._to_lend: deque[RequestBook] = deque()
        """Requests whose clients' budgets should go to the servers in the moves that follow."""
        self._debtor: ReserveBook | None = None
        """A task just brought its debt into this reserve; the next event states what it came to."""

    # -- reserves and their members ----------------------------------------------------------

    def states_debt(self, event: ReserveSet) -> bool:
        """Whether it belongs to the `Joined` before it, rather than being news of its own."""
        return self._debtor is not None and event.reserve == self._debtor.name

    def reserve_set(self, event: ReserveSet) -> None:
        """A reserve was made or changed, or somebody brought debt into it."""
        reserve = self._books.reserves.get(event.reserve)
        if reserve is None or self._is_gone(reserve):
            self._make(event)
            return
        if reserve is self._debtor:
            self._debtor = None
            self._compare(reserve, event.budget_ns, event.ns, "with the debt that joined it")
            return
        self._pass(reserve, event.ns)
        reserve.gained_ns = event.ns
        reserve.kind = event.policy
        reserve.capacity_ns = event.capacity_ns
        anchor_ns = reserve.anchor_ns
        if event.period_ns != reserve.period_ns:
            anchor_ns = event.ns
            reserve.period_ns = event.period_ns
            reserve.passed = reserve.replenished = reserve.begun = 0
        if event.anchor_ns != anchor_ns:
            self._report(
                event.ns,
                "budget",
                f"the boundaries of {reserve.name} count from {event.anchor_ns} ns after a change,"
                f" not from {anchor_ns} ns",
            )
        reserve.anchor_ns = event.anchor_ns
        # A change gives nothing before the next replenishment, or asking would be refilling.
        reserve.budget_ns = min(reserve.budget_ns, reserve.capacity_ns + reserve.inherited_ns)
        reserve.note_wanted()
        self._compare(reserve, event.budget_ns, event.ns, "after a change")

    def _make(self, event: ReserveSet) -> None:
        reserve = ReserveBook(
            event.reserve,
            event.policy,
            event.capacity_ns,
            event.period_ns,
            event.capacity_ns,
            event.anchor_ns,
            event.shared,
        )
        reserve.passed = reserve.replenished = reserve.begun = reserve.boundary(event.ns)
        self._books.reserves[event.reserve] = reserve
        self._compare(reserve, event.budget_ns, event.ns, "at its start")

    def _is_gone(self, reserve: ReserveBook) -> bool:
        """Whether a reserve went with its last member: all but pools that are not full, so that
        nobody gains by leaving one and coming back."""
        if reserve.members:
            return False
        is_full = reserve.budget_ns == reserve.capacity_ns and not reserve.inherited
        return not reserve.shared or (is_full and reserve.name != _BACKGROUND)

    def joined(self, event: Joined, task: TaskBook) -> None:
        """A task's groups are charged to another reserve from now on."""
        requests = [*task.asking.values(), *task.serving.values()]
        for request in requests:
            self._give_back(request, event.ns)
        old, new = task.reserve, None
        if event.reserve is not None:
            new = self._reserve(event.reserve, event.ns)
        if old is not None and not old.shared:
            task.debt_ns += min(old.budget_ns, 0)
        self.leave(task, event.ns)
        if new is not None:
            self._pass(new, event.ns)
            new.members.add(task)
            new.budget_ns += task.debt_ns
            new.note_wanted()
            self._debtor = new if task.debt_ns else None
            task.debt_ns = 0
        task.reserve = new
        task.joined_ns = event.ns
        self._to_lend.extend(requests)

    def leave(self, task: TaskBook, ns: int) -> None:
        """A task is no longer a member of its reserve."""
        reserve = task.reserve
        task.reserve = None
        if reserve is not None:
            self._pass(reserve, ns)
            reserve.members.discard(task)
            if self._is_gone(reserve) and self._books.reserves.get(reserve.name) is reserve:
                del self._books.reserves[reserve.name]

    def _reserve(self, name: str, ns: int) -> ReserveBook | None:
        reserve = self._books.reserves.get(name)
        if reserve is None:
            self._report(ns, "sequence", f"no reserve is called {name}")
        return reserve

    # -- groups ------------------------------------------------------------------------------

    def submitted(self, group: GroupBook) -> None:
        """A group waits: under AE what replenishments do depends on what it will cost."""
        task = group.task
        if task.reserve is not None:
            self._pass(task.reserve, group.submitted_ns)
        task.waiting = group
        if task.reserve is not None:
            task.reserve.note_wanted()

    def dispatched(self, group: GroupBook, ns: int) -> None:
        """A group leaves the waiting ones; it is not yet in an online list."""
        if not self._tolerance_ns:  # at this very instant replenishments come before decisions
            self._find_missed(ns)
        reserve = group.task.reserve
        if reserve is None:
            return
        group.reserve = reserve
        if not reserve.lets_through(group):
            needs = "more than 0" if reserve.kind == "pe" else f"{group.predicted_ns}"
            self._report(
                ns,
                "budget",
                f"{group} went online with {reserve.budget_ns} ns left in {reserve.name}; it needs"
                f" {needs}",
            )
        online = sum(g.reserve is reserve for gpu in self._books.gpus.values() for g in gpu.online)
        reserve.most_online = max(reserve.most_online, online + 1)

    def charged(self, event: Charged, group: GroupBook) -> None:
        """A group goes on; its task's reserve pays for what it executed until a while ago, and no
        later than for the period that this was in."""
        reserve = self._payer(event, group)
        if reserve is None:
            return
        if reserve.boundary(event.until_ns - 1) < reserve.replenished:
            self._report(
                event.ns,
                "budget",
                f"{group} was charged for the time until {event.until_ns} ns after {reserve.name}"
                " was replenished for the time from there on",
            )
        self._pay(reserve, event.amount_ns, event.until_ns)
        # It was not as full as it seemed at the boundaries since then: they are to come.
        behind = min(reserve.passed, reserve.boundary(event.until_ns - 1))
        reserve.passed = max(behind, reserve.replenished)
        self._compare(reserve, event.budget_ns, event.ns, f"after a part of {group}")
        self._count(reserve, group, event.amount_ns, group.charged_ns, event.ns)

    def overran(self, event: Overran, task: TaskBook) -> None:
        """A group went on beside others, after it had completed to them."""
        reserve = task.reserve
        if reserve is None or reserve.name != event.reserve:
            name = reserve.name if reserve is not None else "nobody"
            self._report(
                event.ns, "budget", f"{task.name} overran on {event.reserve}, not on {name}"
            )
            return
        self._pay(reserve, event.amount_ns, event.ns)
        self._compare(reserve, event.budget_ns, event.ns, f"after {task.name} overran")

    def completed(self, event: Completed, group: GroupBook) -> None:
        """A group executed; its task's reserve pays what was not paid before."""
        reserve = self._payer(event, group)
        if reserve is None:
            return
        executed_ns = event.ns - event.started_ns + event.overhead_ns
        rest_ns = executed_ns - group.charged_ns
        self._pay(reserve, rest_ns, event.ns)
        self._compare(reserve, event.budget_ns, event.ns, f"after {group}")
        self._count(reserve, group, rest_ns, executed_ns, event.ns)

    def _payer(self, event: Charged | Completed, group: GroupBook) -> ReserveBook | None:
        """The reserve that pays, if it is the one that the stream says."""
        reserve = group.task.reserve
        name = reserve.name if reserve is not None else None
        if event.reserve != name:
            self._report(
                event.ns,
                "budget",
                f"{group} was charged to {event.reserve or 'nobody'}, not to {name or 'nobody'}",
            )
            if event.reserve in self._books.reserves:
                self._books.reserves[event.reserve].budget_ns = event.budget_ns
            return None
        return reserve

    def _pay(self, reserve: ReserveBook, amount_ns: int, until_ns: int) -> None:
        # A boundary at this very instant comes after the charge.
        reserve.pass_boundaries(until_ns - 1)
        reserve.begin_periods(reserve.boundary(until_ns - 1))
        reserve.budget_ns -= amount_ns

    def _count(
        self, reserve: ReserveBook, group: GroupBook, paid_ns: int, whole_ns: int, ns: int
    ) -> None:
        if group.reserve is reserve:  # no reserve answers for what another let through
            reserve.longest_ns = max(reserve.longest_ns, whole_ns)
            reserve.ahead_ns += paid_ns
            self._check_bandwidth(reserve, ns)

    # -- replenishment -----------------------------------------------------------------------

    def replenished(self, event: Replenished) -> None:
        """A boundary; a budget that is lent was returned before it and is lent again after it."""
        reserve = self._reserve(event.reserve, event.ns)
        if reserve is None:
            return
        reserve.gained_ns = event.ns
        boundary = reserve.boundary(event.due_ns)
        off_ns = event.due_ns - reserve.anchor_ns - boundary * reserve.period_ns
        # Who was late by periods makes up for each, and is late for the last of them.
        late_ns = (event.ns - reserve.anchor_ns) % reserve.period_ns
        if off_ns or event.due_ns > event.ns or late_ns > self._tolerance_ns:
            self._report(
                event.ns,
                "budget",
                f"{reserve.name} was replenished {late_ns} ns after its boundary, for the one at"
                f" {event.due_ns} ns",
            )
        if boundary <= reserve.replenished:
            self._report(
                event.ns, "budget", f"{reserve.name} was replenished again within one period"
            )
        lent = list(reserve.lent)
        for request in lent:
            self._give_back(request, event.ns)
        reserve.begin_periods(boundary)
        reserve.budget_ns = reserve.budget_after_ns(max(1, boundary - reserve.passed))
        reserve.passed = reserve.replenished = max(boundary, reserve.replenished)
        self._compare(reserve, event.budget_ns, event.ns, "after replenishment")
        self._to_lend.extend(lent)

    def _find_missed(self, ns: int) -> None:
        """Replenishments that were due before, or at, an instant at which it is too late."""
        for reserve in self._books.reserves.values():
            if reserve.due_ns > ns:
                continue
            reserve.pass_boundaries(ns)
            if reserve.due_ns <= ns and any(task.waiting for task in reserve.members):
                self._report(
                    ns,
                    "budget",
                    f"{reserve.name} was not replenished at {reserve.due_ns} ns though a group"
                    " waits for it",
                )
                reserve.passed = reserve.boundary(ns)

    def end_instant(self, next_ns: int) -> None:
        """Time goes on: what was due by now should have happened."""
        self._find_missed(next_ns - self._tolerance_ns - 1)

    def _pass(self, reserve: ReserveBook, ns: int) -> None:
        """Something is about to change, so settle what the time before it came to. Only a
        completion comes before a boundary at the same instant."""
        reserve.pass_boundaries(ns)
        reserve.begin_periods(reserve.boundary(ns - 1))

    # -- requests ----------------------------------------------------------------------------

    def moved(self, event: Moved) -> None:
        """Budget went from one reserve to another; what for will show."""
        self._moves.append(event)

    def entered(self, request: RequestBook) -> None:
        """The client's budget should follow, if its server takes any."""
        self._to_lend.append(request)

    def left(self, request: RequestBook, ns: int) -> None:
        """The client should have got its part back."""
        self._give_back(request, ns)

    def settle(self, ns: int) -> None:
        """The moves that follow a request or a change of reserves are all there."""
        self._debtor = None
        while self._to_lend:
            self._lend(self._to_lend.popleft(), ns)

    def finish(self, ns: int) -> None:
        """Whatever moved must be explained by now."""
        while self._moves:
            move = self._moves.popleft()
            self._report(
                ns,
                "inheritance",
                f"{move.amount_ns} ns moved from {move.giver} to {move.taker}, which no request"
                " explains",
            )
            giver = self._reserve(move.giver, ns)
            taker = self._reserve(move.taker, ns)
            if giver is not None and taker is not None:
                self._pass(giver, ns)
                self._pass(taker, ns)
                self._move(giver, taker, move.amount_ns)

    def _lend(self, request: RequestBook, ns: int) -> None:
        """RIX rule 1. Whether the server follows it shows when there is something to lend."""
        giver, taker, server = request.client.reserve, request.server.reserve, request.server
        if giver is None or taker is None or giver is taker or server.rix is False:
            return
        self._pass(giver, ns)
        self._pass(taker, ns)
        amount_ns = giver.to_lend_ns(request.client)
        if amount_ns:
            if server.rix is None:
                server.rix = self._is_next(giver, taker, amount_ns)
                if not server.rix:
                    for other in server.serving.values():
                        _drop(other)
                    return
            amount_ns = self._expect(giver, taker, amount_ns, ns)
        request.held_ns = amount_ns
        giver.lent.append(request)
        taker.inherited.add(request)

    def _give_back(self, request: RequestBook, ns: int) -> None:
        """RIX rule 3: the client's part of what the server has left, by equation (1)."""
        taker, giver = request.client.reserve, request.server.reserve
        if taker is None or giver is None or request not in giver.inherited:
            return
        total_ns = giver.inherited_ns
        left_ns = max(min(total_ns, giver.budget_ns), 0)
        amount_ns = left_ns * request.held_ns // total_ns if total_ns else 0
        self._pass(giver, ns)
        self._pass(taker, ns)
        _drop(request)
        self._expect(giver, taker, amount_ns, ns)

    def _is_next(self, giver: ReserveBook, taker: ReserveBook, amount_ns: int) -> bool:
        if not self._moves:
            return False
        move = self._moves[0]
        return (move.giver, move.taker, move.amount_ns) == (giver.name, taker.name, amount_ns)

    def _expect(self, giver: ReserveBook, taker: ReserveBook, amount_ns: int, ns: int) -> int:
        """This much should be the next move; the answer is what it was."""
        if not amount_ns:
            return 0
        moved_ns = 0
        if self._moves and (self._moves[0].giver, self._moves[0].taker) == (giver.name, taker.name):
            moved_ns = self._moves.popleft().amount_ns
        if moved_ns != amount_ns:
            self._report(
                ns,
                "inheritance",
                f"{moved_ns} ns moved from {giver.name} to {taker.name}, not {amount_ns}",
            )
        taker.gained_ns = ns
        self._move(giver, taker, moved_ns)
        self._check_bandwidth(giver, ns)
        return moved_ns

    def _move(self, giver: ReserveBook, taker: ReserveBook, amount_ns: int) -> None:
        giver.budget_ns -= amount_ns
        giver.ahead_ns += amount_ns
        taker.budget_ns += amount_ns
        taker.ahead_ns -= amount_ns

    # -- comparisons -------------------------------------------------------------------------

    def _compare(self, reserve: ReserveBook, stated_ns: int, ns: int, when: str) -> None:
        if stated_ns != reserve.budget_ns:
            self._report(
                ns,
                "budget",
                f"{reserve.name} has {stated_ns} ns left {when}, not {reserve.budget_ns}",
            )
            reserve.budget_ns = stated_ns

    def _check_bandwidth(self, reserve: ReserveBook, ns: int) -> None:
        allowed_ns = reserve.allowed_ahead_ns
        if self._tolerance_ns:  # a late replenishment lets one more group through before it
            allowed_ns += reserve.longest_ns
        if reserve.ahead_ns > allowed_ns:
            self._report(
                ns,
                "bandwidth",
                f"{reserve.name} is {reserve.ahead_ns} ns ahead of {reserve.capacity_ns} ns every"
                f" {reserve.period_ns} ns; {allowed_ns} ns can be explained",
            )
            reserve.ahead_ns = allowed_ns


def _drop(request: RequestBook) -> None:
    """The request holds nothing any more."""
    request.held_ns = 0
    for task in (request.client, request.server):
        if task.reserve is not None:
            task.reserve.inherited.discard(request)
            if request in task.reserve.lent:
                task.reserve.lent.remove(request)
