"""A slow, plain token allocator, written straight from the protocols' rules.

Headway's own is compared with this one on random scenarios. It shares no code with it and keeps no
state but the places: everything else is looked up anew whenever it is needed. Names and quotations
are the rules' own: FQ and PQ are the FIFO queues and the priority queue; Q, F, G, X, R are rules.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Request:
    """What a request is now. `base` is its priority; ties go to the earlier in the file."""

    id: Any
    order: int
    hold: int
    priority: int
    asked: bool = False
    over: bool = False
    virtual: bool = False
    donee: "Request | None" = None
    ends: int | None = None

    @property
    def base(self) -> tuple[int, int]:
        return (self.priority, -self.order)


@dataclass
class Reference:
    """The allocator of one file."""

    k: int
    g: int
    m: int
    f: int | None
    cap: int | None
    order: str
    fq: list[list[Request]] = field(default_factory=list)
    pq: list[Request] = field(default_factory=list)
    donors: list[Request] = field(default_factory=list)
    holders: list[Request | None] = field(default_factory=list)
    grants: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fq = [[] for _ in range(self.k)]
        self.holders = [None] * self.k

    # "n_fq = requests in FQs that are not virtual; nominal(i) = len(FQ[i]), minus 1 if its holder
    # is virtual."
    def n_fq(self) -> int:
        return sum(not x.virtual for queue in self.fq for x in queue)

    def nominal(self, i: int) -> int:
        return sum(not x.virtual for x in self.fq[i])

    # "top = the m highest base priorities among all requests of this lock (FQ + PQ + donors,
    # without virtual)"
    def top(self, *more: Request) -> list[Request]:
        everyone = [x for queue in self.fq for x in queue if not x.virtual]
        everyone += [*self.pq, *self.donors, *more]
        return sorted(everyone, key=lambda x: x.base, reverse=True)[: self.m]

    def donor_of(self, x: Request) -> Request | None:
        return next((d for d in self.donors if d.donee is x), None)

    # "base priority of its donor if it has one, else its own"
    def rank(self, x: Request) -> tuple[int, int]:
        donor = self.donor_of(x)
        return x.base if donor is None else donor.base

    def effective(self, x: Request) -> Request:
        """Whose priority x has."""
        if x in self.pq or x in self.donors:
            return x
        place = next(queue for queue in self.fq if x in queue)
        if self.order == "priority":
            return self.paired(x)
        lends = [x, self.donor_of(x)]
        if place[0] is x:
            lends += [w for waiter in place for w in (waiter, self.donor_of(waiter))]
        return max((w for w in lends if w is not None), key=lambda w: w.base)

    # "holders by base priority ascending, waiters descending; pair them one by one while the waiter
    # outranks the holder"
    def paired(self, x: Request) -> Request:
        holders = sorted((queue[0] for queue in self.fq if queue), key=lambda h: h.base)
        waiters = [w for queue in self.fq for w in queue[1:]] + self.pq
        waiters.sort(key=lambda w: w.base, reverse=True)
        for holder, waiter in zip(holders, waiters, strict=False):
            if waiter.base < holder.base:
                break
            if holder is x:
                return waiter
        return x

    # "among FQs with nominal(i) < f the least (len(FQ[i]), tokens of that GPU held now, i)"
    def choose(self) -> int:
        def held(i: int) -> int:
            return sum(bool(self.fq[j]) for j in range(self.k) if j % self.g == i % self.g)

        free = [i for i in range(self.k) if self.f is None or self.nominal(i) < self.f]
        return min(free, key=lambda i: (len(self.fq[i]), held(i), i))

    def head(self) -> Request | None:
        return max(self.pq, key=lambda x: x.base, default=None)

    # "J becomes the donor of the x with the lowest rank"
    def donee_for(self, j: Request) -> Request | None:
        weaker = [x for queue in self.fq for x in queue if not x.virtual and self.rank(x) < j.base]
        return min(weaker, key=self.rank, default=None)

    def donate(self, j: Request, x: Request) -> None:
        before = self.donor_of(x)
        if before is not None:  # "D's donation ends and D goes to PQ"
            self.donors.remove(before)
            before.donee = None
            self.pq.append(before)
        j.donee = x
        self.donors.append(j)

    def q(self, j: Request) -> None:
        """Q1, Q2, Q3."""
        if self.order == "priority":
            has_room = self.n_fq() < self.k
        else:
            has_room = self.cap is None or self.n_fq() < self.cap
        if has_room:
            self.fq[self.choose()].append(j)
            return
        x = self.donee_for(j) if self.order == "donation" and j in self.top(j) else None
        if x is not None:
            self.donate(j, x)
        else:
            self.pq.append(j)

    def entrant(self, left: Request) -> Request | None:
        """F1, F2, F3: who takes the place of `left`, which is in no queue and no set any more."""
        own = self.donor_of(left)
        head = self.head()
        if own is not None:
            chosen: Request | None = own
        elif self.donors and not (head is not None and head in self.top()):
            chosen = max(self.donors, key=lambda d: d.base)
        else:
            chosen = head
        if chosen is None:
            return None
        if chosen in self.donors:
            self.donors.remove(chosen)
            chosen.donee = None
        else:
            self.pq.remove(chosen)
        return chosen

    # "the waiter of highest effective priority of all FQs moves to FQ[x]"
    def steal(self, i: int) -> None:
        waiters = [(queue, w) for queue in self.fq for w in queue[1:]]
        if not self.fq[i] and waiters:
            queue, w = max(waiters, key=lambda pair: self.effective(pair[1]).base)
            queue.remove(w)
            self.fq[i].append(w)

    def withdraw(self, j: Request) -> None:
        """X, or what 1.8 says of those that do not hold a token."""
        if j in self.pq:
            self.pq.remove(j)
            return
        if j in self.donors:
            self.donors.remove(j)
            j.donee = None
            return
        i = next(n for n, queue in enumerate(self.fq) if j in queue)
        was_holder = self.fq[i][0] is j
        self.fq[i].remove(j)
        if j.virtual:
            j.virtual = False
            self.steal(i)
            return
        entrant = self.entrant(j)
        if entrant is not None:
            self.fq[i].append(entrant)
        elif was_holder:
            self.steal(i)

    def repair(self) -> None:
        """R: "PQ's head is in top and Q2 finds an x for it -> it leaves PQ and donates"."""
        while self.order == "donation":
            head = self.head()
            if head is None or head not in self.top():
                return
            x = self.donee_for(head)
            if x is None:
                return
            self.pq.remove(head)
            self.donate(head, x)

    def is_waiting(self, j: Request) -> bool:
        return not any(queue and queue[0] is j for queue in self.fq)

    def event(self, do: str, j: Request, to: int | None, now: int) -> None:
        """One event, then R, then the grants."""
        if do == "request":
            j.asked = True
            self.q(j)
        elif do in ("release", "cancel"):
            self.withdraw(j)
            j.over = True
        elif do == "priority":
            assert to is not None
            if to < j.priority and self.is_waiting(j):
                self.withdraw(j)  # "withdrawn as if cancelled ..."
                self.repair()  # "... Then R"
                j.priority = to  # "and issued again"
                self.q(j)
            else:
                j.priority = to
        elif do == "vunlock":
            j.virtual = True
            entrant = self.entrant(j)
            if entrant is not None:
                self.fq[self.choose()].append(entrant)
        self.repair()
        for i, queue in enumerate(self.fq):  # G
            if (queue[0] if queue else None) is not self.holders[i]:
                self.holders[i] = queue[0] if queue else None
                if queue:
                    queue[0].ends = now + queue[0].hold
                    self.grants.append({"at": now, "id": queue[0].id, "token": i})


def run(file: dict[str, Any]) -> list[dict[str, Any]]:
    """The grants of a lock file.

    "At one instant: releases by token index, then cancellations and priority changes in the order
    given, then requests in the order given."
    """
    lock = Reference(*(file[key] for key in ("k", "g", "m", "f", "cap", "order")))
    if lock.order == "priority":
        lock.f, lock.cap = 1, lock.k
    requests = [
        Request(r["id"], n, r["hold"], r["priority"]) for n, r in enumerate(file["requests"])
    ]
    by_id = {r.id: r for r in requests}
    todo_events = list(file.get("events", []))
    todo_requests = list(range(len(requests)))
    now = 0
    while True:
        holders = [h for h in lock.holders if h is not None]
        times = [h.ends for h in holders if h.ends is not None]
        times += [e["at"] for e in todo_events]
        times += [file["requests"][n]["at"] for n in todo_requests]
        if not times:
            return sorted(lock.grants, key=lambda grant: (grant["at"], grant["token"]))
        now = min(times)
        done = next((h for h in lock.holders if h is not None and h.ends == now), None)
        if done is not None:
            lock.event("release", done, None, now)
            continue
        event = next((e for e in todo_events if e["at"] == now), None)
        if event is not None:
            todo_events.remove(event)
            j = by_id[event["id"]]
            meets = j.asked and not j.over
            if event["do"] == "vunlock":
                meets = meets and not lock.is_waiting(j) and not j.virtual
            if meets:
                lock.event(event["do"], j, event.get("to"), now)
            continue
        n = next(n for n in todo_requests if file["requests"][n]["at"] == now)
        todo_requests.remove(n)
        lock.event("request", requests[n], None, now)
