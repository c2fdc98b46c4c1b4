"""The engine: events with their time in, decisions out.

Whoever drives it (the simulator in virtual time, the daemon in real time) tells it what happened,
in this order within one instant: every `complete`, then `advance` for replenishments, then every
`submit`; and then takes decisions with `dispatch` until it returns None. The engine never reads a
clock: time is the `now_ns` it is given, and it must not run backwards.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from fractions import Fraction
from heapq import heappop, heappush

from headway.engine.admission import Answer, admit
from headway.engine.events import HOOKS, Observer
from headway.engine.inheritance import Links, Request, inherited_rank, returned_ns
from headway.engine.model import BACKGROUND_LEVEL, Gpu, Group, Rank, Task
from headway.engine.policies import Policy, policies
from headway.engine.predictors import Context, Predictor, predictors
from headway.engine.priorities import Fixed, PriorityRule
from headway.engine.reserves import BACKGROUND, DEFAULT_BACKGROUND, Reserve, ReserveSpec

_Entry = tuple[int, int, int, Group]


class Engine:
    """Orders the groups of many tasks on one or more GPUs."""

    def __init__(
        self,
        *,
        gpus: int = 1,
        limit: Fraction | None = None,
        background: ReserveSpec = DEFAULT_BACKGROUND,
        named: Iterable[Policy | Predictor] = (),
        observers: Iterable[Observer] = (),
    ) -> None:
        """`named` are policies and predictors with settings of their own; others get defaults."""
        self.now_ns = 0
        self.gpus = [Gpu(index) for index in range(gpus)]
        self._only_gpu = self.gpus[0] if gpus == 1 else None
        self.limit = limit
        self.tasks: dict[str, Task] = {}
        self.pools: dict[str, Reserve] = {}
        self._background_spec = background
        self._policies = {p.name: p for p in named if isinstance(p, Policy)}
        self._predictors = {p.name: p for p in named if isinstance(p, Predictor)}
        self._links: dict[Task, Links] = {}
        self._requests = 0
        self._order = 0
        self.queue: list[_Entry] = []
        self.eager = 0
        """Ready groups that may be admitted by a GPU that is busy: none, and nobody is asked."""
        self.wakers: dict[Policy, int] = {}
        """Ready groups per policy that asks to be woken."""
        self._custom_keys = False
        self.timers: list[tuple[int, int, Reserve]] = []
        self._timer_count = 0
        self._calls: dict[str, list[Callable[..., None]]] = {hook: [] for hook in HOOKS}
        self._on_submitted = self._calls["submitted"]
        self._on_dispatched = self._calls["dispatched"]
        self._on_completed = self._calls["completed"]
        for observer in observers:
            self.attach(observer)

    # -- observers ---------------------------------------------------------------------------

    def attach(self, observer: Observer) -> None:
        """Call the hooks that this observer overrides, from now on."""
        for hook in HOOKS:
            if getattr(type(observer), hook) is not getattr(Observer, hook):
                self._calls[hook].append(getattr(observer, hook))

    def tell(self, hook: str, *args: object) -> None:
        """Pass on something that only the driver knows, such as a frame on the screen."""
        for call in self._calls[hook]:
            call(*args, self.now_ns)

    # -- tasks -------------------------------------------------------------------------------

    def policy(self, name: str) -> Policy:
        """The policy of this name, one instance for all its tasks."""
        if name not in self._policies:
            self._policies[name] = policies()[name]()
        return self._policies[name]

    def predictor(self, name: str) -> Predictor:
        """The predictor of this name, one instance for all its tasks."""
        if name not in self._predictors:
            self._predictors[name] = predictors()[name]()
        return self._predictors[name]

    def add_task(
        self,
        name: str,
        now_ns: int,
        *,
        policy: str = "prt",
        priority: PriorityRule | None = None,
        reserve: ReserveSpec | None = None,
        period_ns: int | None = None,
        pix: bool = False,
        rix: bool = False,
    ) -> tuple[Task, Answer]:
        """Make a task known; the answer says whether its reserve was admitted.

        `pix` and `rix` matter for servers: which protocols its clients' requests follow.
        """
        if name in self.tasks:
            raise ValueError(f"a task called {name!r} exists already")
        self.now_ns = now_ns
        task = Task(name, self._order, self.policy(policy), priority or Fixed())
        self._order += 1
        task.period_ns = period_ns
        self.tasks[name] = task
        self._links[task] = Links(pix=pix, rix=rix)
        self._custom_keys |= type(task.policy).key is not Policy.key
        self._refresh_rank(task, quiet=True)
        self._refresh_plain(task)
        self.tell("task_added", task)
        answer = self.set_reserve(task, reserve, now_ns)
        return task, answer

    def add_background_task(self, name: str, now_ns: int, *, policy: str = "prt") -> Task:
        """A task that no spec matches: lowest priority, Background reserve (TimeGraph §3)."""
        task, _ = self.add_task(name, now_ns, policy=policy, priority=Fixed(BACKGROUND_LEVEL))
        self.make_background(task, now_ns)
        return task

    def make_background(self, task: Task, now_ns: int) -> None:
        """Put a task among those that nobody vouched for."""
        self._join(task, self._background())
        self.set_priority(task, Fixed(BACKGROUND_LEVEL), now_ns)

    def remove_task(self, task: Task, now_ns: int) -> None:
        """The task is gone, perhaps in the middle of something. Groups online still complete."""
        self.now_ns = now_ns
        if task.waiting is not None:
            self.withdraw(task, now_ns)
        links = self._links[task]
        for request in [*links.asking.values(), *links.serving.values()]:
            self.leave(request, now_ns)
        self._leave_reserve(task)
        task.alive = False
        del self.tasks[task.name], self._links[task]
        self.tell("task_removed", task)

    def set_priority(self, task: Task, rule: PriorityRule, now_ns: int) -> None:
        """Give the task another priority, also while it waits."""
        self.now_ns = now_ns
        task.rule = rule
        self._refresh_plain(task)
        self._refresh_rank(task)

    def set_policy(self, task: Task, name: str, now_ns: int) -> None:
        """Give the task another policy, also while it waits."""
        self.now_ns = now_ns
        was_ready = task.in_ready_queue
        if was_ready:
            self._pull(task)
        task.policy = self.policy(name)
        task.key = task.policy.key(task)
        self._refresh_plain(task)
        self._custom_keys |= type(task.policy).key is not Policy.key
        if was_ready and task.waiting is not None:
            self._push(task.waiting)

    def set_foreground(self, task: Task | None, now_ns: int) -> None:
        """This task owns the window a person looks at: it goes first among the `*` tasks."""
        self.now_ns = now_ns
        changed = [t for t in self.tasks.values() if t.foreground != (t is task)]
        for other in changed:
            other.foreground = other is task
            self._refresh_rank(other)
        self.tell("focused", task)

    # -- reserves ----------------------------------------------------------------------------

    def set_reserve(self, task: Task, spec: ReserveSpec | None, now_ns: int) -> Answer:
        """Give the task a reserve, change the one it has, or (None) take it away.

        A new one that admission turns away makes the task Background; a change that it turns away
        changes nothing. Debt of a private reserve follows the task.
        """
        self.now_ns = now_ns
        current = task.reserve
        if spec is None:
            self._join(task, None)
            return Answer(True)
        others = [r.spec for r in self._reserves() if r is not current or current.shared]
        pool = self.pools.get(spec.shared) if spec.shared is not None else None
        if pool is not None and pool.spec != spec:
            raise ValueError(f"the pool {spec.shared!r} exists with other numbers")
        if pool is None:
            answer = admit(spec, others, self.limit)
            if not answer.accepted:
                if current is None:
                    self.make_background(task, now_ns)
                return answer
        self._set_predictor(task, spec)
        if pool is None and current is not None and not current.shared and spec.shared is None:
            current.change(spec, now_ns)
            self._arm(current, now_ns)
            self.tell("reserve_set", current)
            self._recheck(current)
        else:
            if pool is None:
                pool = Reserve(spec.shared or task.name, spec, now_ns)
                if spec.shared is not None:
                    self.pools[spec.shared] = pool
                self.tell("reserve_set", pool)
            self._join(task, pool)
        self._refresh_rank(task)
        return Answer(True)

    def change_pool(self, name: str, spec: ReserveSpec, now_ns: int) -> Answer:
        """Change a shared reserve for all its members; turned away, nothing changes."""
        self.now_ns = now_ns
        pool = self.pools[name]
        answer = admit(spec, [r.spec for r in self._reserves() if r is not pool], self.limit)
        if answer.accepted:
            pool.change(spec, now_ns)
            self._arm(pool, now_ns)
            self.tell("reserve_set", pool)
            self._recheck(pool)
            for task in pool.members:
                self._set_predictor(task, spec)
                self._refresh_rank(task)
        return answer

    def _set_predictor(self, task: Task, spec: ReserveSpec) -> None:
        task.predictor = self.predictor(spec.predict) if spec.kind == "ae" else None
        self._refresh_plain(task)

    def _reserves(self) -> set[Reserve]:
        """Every reserve that admission counts: the Background one is made of what is left."""
        used = {t.reserve for t in self.tasks.values() if t.reserve is not None}
        return {r for r in used if r.name != BACKGROUND}

    def _background(self) -> Reserve:
        if BACKGROUND not in self.pools:
            self.pools[BACKGROUND] = Reserve(BACKGROUND, self._background_spec, self.now_ns)
            self.tell("reserve_set", self.pools[BACKGROUND])
        return self.pools[BACKGROUND]

    def _join(self, task: Task, reserve: Reserve | None) -> None:
        current = task.reserve
        if current is reserve:
            return
        was_ready = task.in_ready_queue
        if was_ready:
            self._pull(task)
        links = self._links[task]
        requests = [*links.asking.values(), *links.serving.values()]
        for request in requests:
            self._give_back(request)
        debt_ns = min(current.budget_ns, 0) if current is not None and not current.shared else 0
        self._leave_reserve(task)
        task.reserve = reserve
        self._refresh_plain(task)
        if reserve is not None:
            reserve.members.append(task)
            reserve.budget_ns += debt_ns
            self._arm(reserve, self.now_ns)
        self.tell("joined", task)
        if debt_ns and reserve is not None:
            self.tell("reserve_set", reserve)
        if task.waiting is not None:
            self._queue(task.waiting)
        for request in requests:
            self._lend(request)
            self._settle(request)

    def _leave_reserve(self, task: Task) -> None:
        reserve = task.reserve
        if reserve is None:
            return
        reserve.members.remove(task)
        reserve.waiting.pop(task, None)
        task.reserve = None
        if not reserve.members:
            reserve.next_ns = None
            if reserve.shared and reserve.budget_ns >= 0 and reserve.name != BACKGROUND:
                del self.pools[reserve.name]

    def _arm(self, reserve: Reserve, from_ns: int) -> None:
        """Have the reserve replenished at its first boundary after `from_ns`."""
        if reserve.next_ns is not None or reserve.is_settled:
            return
        elapsed = from_ns - reserve.anchor_ns
        reserve.next_ns = reserve.anchor_ns + (elapsed // reserve.period_ns + 1) * reserve.period_ns
        self._timer_count += 1
        heappush(self.timers, (reserve.next_ns, self._timer_count, reserve))

    def advance(self, now_ns: int) -> None:
        """Replenish what is due by now."""
        self.now_ns = now_ns
        timers = self.timers
        while timers and timers[0][0] <= now_ns:
            due_ns, _, reserve = heappop(timers)
            if reserve.next_ns != due_ns:
                continue
            lent = list(reserve.lent)
            for request in lent:
                self._give_back(request)
            periods = (now_ns - due_ns) // reserve.period_ns + 1
            reserve.replenish(periods)
            for request in lent:
                self._lend(request)
            self.tell("replenished", reserve)
            reserve.next_ns = None
            self._arm(reserve, now_ns)
            self._recheck(reserve)

    def next_timer_ns(self) -> int | None:
        """When `advance` or `dispatch` has something to do though nothing else happens."""
        timers = self.timers
        while timers and timers[0][2].next_ns != timers[0][0]:
            heappop(timers)
        due_ns = timers[0][0] if timers else None
        for waker in self.wakers:
            wake_ns = waker.wake_ns(self.now_ns)
            if wake_ns is not None and (due_ns is None or wake_ns < due_ns):
                due_ns = wake_ns
        return due_ns

    def _recheck(self, reserve: Reserve) -> None:
        """The budget changed: who waits on it may have become ready, or no longer be."""
        for task, group in reserve.waiting.items():
            lets_through = reserve.lets_through(group)
            if lets_through != task.in_ready_queue:
                if lets_through:
                    self._push(group)
                else:
                    self._pull(task)

    def _refresh_plain(self, task: Task) -> None:
        task.plain = (
            task.policy.needs_idle
            and task.policy.takes_idle
            and task.reserve is None
            and task.predictor is None
            and not task.rule.per_group
        )

    # -- ranks and inheritance ---------------------------------------------------------------

    def _refresh_rank(self, task: Task, *, quiet: bool = False) -> None:
        """Work out the rank anew, with what is inherited, and carry it on to servers."""
        task.base_rank = task.rule.rank(task, task.waiting)
        rank = inherited_rank(task.base_rank, self._links[task])
        if rank == task.rank and not quiet:
            return
        was_ready = task.in_ready_queue
        if was_ready:
            self._pull(task)
        task.rank = rank
        task.key = task.policy.key(task)
        if was_ready and task.waiting is not None:
            self._push(task.waiting)
        if not quiet:
            self.tell("ranked", task)
        for request in self._links[task].asking.values():
            self._refresh_rank(request.server)

    def enter(self, client: Task, server: Task, now_ns: int) -> Request:
        """The client asks the server for something and, as a rule, waits for the answer."""
        if client is server or self._is_behind(client, server):
            raise ValueError(f"{server.name} would wait for itself through {client.name}")
        self.now_ns = now_ns
        self._requests += 1
        request = Request(self._requests, client, server)
        self._links[server].serving[request.number] = request
        self._links[client].asking[request.number] = request
        self.tell("entered", request)
        self._refresh_rank(server)
        self._lend(request)
        self._settle(request)
        return request

    def leave(self, request: Request, now_ns: int) -> None:
        """The request was answered, in whatever order, or one of the two is gone."""
        self.now_ns = now_ns
        client, server = request.client, request.server
        links = self._links.get(server)
        if links is None or links.serving.pop(request.number, None) is None:
            return
        self._links[client].asking.pop(request.number)
        self._give_back(request)
        self._settle(request)
        self._refresh_rank(server)
        self.tell("left", request)

    def _is_behind(self, client: Task, server: Task) -> bool:
        """Does the server already wait, directly or not, for this client?"""
        asked = [r.server for r in self._links[server].asking.values()]
        return any(s is client or self._is_behind(client, s) for s in asked)

    def _lend(self, request: Request) -> None:
        """RIX rule 1: the server gets what is left of the client's budget."""
        giver, taker = request.client.reserve, request.server.reserve
        if giver is None or taker is None or giver is taker:
            return
        if not self._links[request.server].rix:
            return
        amount_ns = max(giver.budget_ns, 0)
        giver.lent.append(request)
        taker.inherited[request] = amount_ns
        self._move(giver, taker, amount_ns)

    def _give_back(self, request: Request) -> None:
        """RIX rule 3: the client gets its part of what the server has left."""
        taker, giver = request.client.reserve, request.server.reserve
        if giver is None or taker is None or request not in giver.inherited:
            return
        total_ns = sum(giver.inherited.values())
        lent_ns = giver.inherited.pop(request)
        taker.lent.remove(request)
        self._move(giver, taker, returned_ns(lent_ns, total_ns, giver.budget_ns))

    def _move(self, giver: Reserve, taker: Reserve, amount_ns: int) -> None:
        if amount_ns:
            giver.budget_ns -= amount_ns
            taker.budget_ns += amount_ns
            self.tell("moved", giver, taker, amount_ns)

    def _settle(self, request: Request) -> None:
        for reserve in (request.client.reserve, request.server.reserve):
            if reserve is not None:
                self._arm(reserve, self.now_ns)
                self._recheck(reserve)

    # -- groups ------------------------------------------------------------------------------

    def submit(self, group: Group, now_ns: int) -> None:
        """A group waits for its turn; its task sends no other until this one is dispatched."""
        task = group.task
        if task.waiting is not None:
            raise ValueError(f"{task.name} submitted {group} while {task.waiting} waits")
        self.now_ns = now_ns
        group.submitted_ns = now_ns
        task.waiting = group
        if task.plain:
            for call in self._on_submitted:
                call(group, now_ns)
            insort(self.queue, (task.key, now_ns, task.order, group))
            task.in_ready_queue = True
            return
        if task.predictor is not None:
            gpu = task.last_gpu or self.gpus[0]
            context = Context(gpu.last_task is not task, group.exact_ns)
            group.prediction = task.predictor.predict(group.signature, context)
            group.predicted_ns = group.prediction.cost_ns
        for call in self._on_submitted:
            call(group, now_ns)
        if task.rule.per_group:
            self._refresh_rank(task)
        self._queue(group)

    def _queue(self, group: Group) -> None:
        reserve = group.task.reserve
        if reserve is not None:
            reserve.waiting[group.task] = group
            self._arm(reserve, self.now_ns)
            if not reserve.lets_through(group):
                return
        self._push(group)

    def _push(self, group: Group) -> None:
        task = group.task
        insort(self.queue, (task.key, group.submitted_ns, task.order, group))
        task.in_ready_queue = True
        policy = task.policy
        if not policy.takes_idle:
            self.wakers[policy] = self.wakers.get(policy, 0) + 1
        if not policy.needs_idle:
            self.eager += 1

    def _pull(self, task: Task) -> None:
        group = task.waiting
        if group is not None:
            entry = (task.key, group.submitted_ns, task.order, group)
            self._take(bisect_left(self.queue, entry))

    def _take(self, place: int) -> None:
        task = self.queue.pop(place)[3].task
        task.in_ready_queue = False
        policy = task.policy
        if not policy.takes_idle:
            self.wakers[policy] -= 1
            if not self.wakers[policy]:
                del self.wakers[policy]
        if not policy.needs_idle:
            self.eager -= 1

    def withdraw(self, task: Task, now_ns: int) -> None:
        """The task no longer wants what it waits for."""
        self.now_ns = now_ns
        if task.in_ready_queue:
            self._pull(task)
        task.waiting = None
        if task.reserve is not None:
            task.reserve.waiting.pop(task, None)

    def best_ready_rank(self) -> Rank:
        """The rank of the most important ready task; call it only while one is ready."""
        if self._custom_keys:
            return min(entry[3].task.rank for entry in self.queue)
        return self.queue[0][3].task.rank

    def ready(self) -> list[Group]:
        """The ready groups in the order in which they are asked."""
        return [entry[3] for entry in self.queue]

    def dispatch(self, now_ns: int) -> Group | None:
        """Take one decision: the group that goes online now, or None if nothing changes."""
        ready = self.queue
        if not ready:
            return None
        self.now_ns = now_ns
        gpu = self._only_gpu
        if gpu is not None:
            if gpu.online:
                if not self.eager:
                    return None
            else:
                group = ready[0][3]
                task = group.task
                if task.plain:  # _take and _go, written out: the way nearly every group goes
                    del ready[0]
                    task.in_ready_queue = False
                    task.waiting = None
                    group.gpu = task.last_gpu = gpu
                    group.dispatched_ns = now_ns
                    last = gpu.last_task
                    if last is not task:
                        group.switched = last is not None
                        gpu.last_task = task
                    gpu.online.append(group)
                    for call in self._on_dispatched:
                        call(group, now_ns)
                    return group
            for place, entry in enumerate(ready):
                group = entry[3]
                if group.task.policy.admits(group, gpu, self):
                    self._take(place)
                    self._go(group, gpu)
                    return group
            return None
        for place, entry in enumerate(ready):
            group = entry[3]
            for choice in self._preferred(group.task):
                if group.task.policy.admits(group, choice, self):
                    self._take(place)
                    self._go(group, choice)
                    return group
        return None

    def _preferred(self, task: Task) -> list[Gpu]:
        """The task's last GPU first (its data is there), then idle ones, then by index."""
        last = task.last_gpu
        return sorted(self.gpus, key=lambda g: (g is not last, len(g.online), g.index))

    def _go(self, group: Group, gpu: Gpu) -> None:
        task = group.task
        task.waiting = None
        if task.reserve is not None:
            del task.reserve.waiting[task]
        group.gpu = task.last_gpu = gpu
        group.dispatched_ns = self.now_ns
        last = gpu.last_task
        if last is not task:
            group.switched = last is not None
            gpu.last_task = task
        gpu.online.append(group)
        for call in self._on_dispatched:
            call(group, self.now_ns)

    def complete(self, group: Group, started_ns: int, now_ns: int) -> None:
        """The group is done; it executed from `started_ns` until now."""
        self.now_ns = now_ns
        online = group.gpu.online
        if online[0] is group:
            online.popleft()
        else:
            online.remove(group)
        group.started_ns = started_ns
        group.finished_ns = now_ns
        task = group.task
        executed_ns = now_ns - started_ns
        task.gpu_ns += executed_ns
        if not task.plain:
            self._charge(group, executed_ns)
        for call in self._on_completed:
            call(group, now_ns)

    def _charge(self, group: Group, executed_ns: int) -> None:
        task = group.task
        reserve = task.reserve
        if reserve is not None:
            reserve.budget_ns -= executed_ns
            # A boundary at this very instant comes after the completion, hence the minus one.
            self._arm(reserve, self.now_ns - 1)
            if reserve.waiting:
                self._recheck(reserve)
        if group.prediction is not None and task.predictor is not None:
            context = Context(group.switched, group.exact_ns)
            task.predictor.observe(group.prediction, executed_ns, context)
