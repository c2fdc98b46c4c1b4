"""The engine: events with their time in, decisions out.

Whoever drives it (the simulator in virtual time, the daemon in real time) tells it what happened,
in this order within one instant: every `charge` and `complete`, then `advance` for replenishments,
then every `submit`; and then takes decisions with `dispatch` until it returns None. The engine
never reads a clock: time is the `now_ns` it is given, and it must not run backwards.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from fractions import Fraction

from headway.engine.admission import Answer, place
from headway.engine.choice import DEFAULT_POLICY, Choice, parse_policy
from headway.engine.cost_models import Conditions, CostModel, cost_models
from headway.engine.cost_models.exact import Exact
from headway.engine.dispatching import Dispatcher
from headway.engine.events import HOOKS, Measured, Observer
from headway.engine.extensions import ExtensionCalls, OnFailure
from headway.engine.holdoff import HoldOffs
from headway.engine.inheritance import Request
from headway.engine.launching import Launch
from headway.engine.ledger import Ledger
from headway.engine.model import (
    BACKGROUND_LEVEL,
    Gpu,
    Group,
    Measurement,
    Rank,
    Task,
)
from headway.engine.parties import Parties
from headway.engine.policies import Policy, policies
from headway.engine.priorities import Fixed, PriorityRule
from headway.engine.queue import GROUP, ReadyQueue
from headway.engine.ranks import Ranks
from headway.engine.reserves import BACKGROUND, DEFAULT_BACKGROUND, Reserve, ReserveSpec

MOST_PARTIES = 2
"""Of a task: its user's and its process's."""


class Engine:
    """Orders the groups of many tasks on one or more GPUs."""

    def __init__(
        self,
        *,
        gpus: int = 1,
        device: int | None = None,
        ticks: bool = False,
        limit: Fraction | None = None,
        longest_ns: int | None = None,
        background: ReserveSpec = DEFAULT_BACKGROUND,
        named: Iterable[Policy | CostModel] = (),
        observers: Iterable[Observer] = (),
        now_ns: int = 0,
        cost_model: str = Exact.name,
        on_failure: OnFailure | None = None,
    ) -> None:
        """`device`: there is one GPU, of this number, and tasks use no other; other engines serve
        the other GPUs. `ticks`: decisions are taken at ticks alone. `named` are policies and cost
        models with settings of their own; others get defaults.
        `cost_model` predicts for tasks that name none. `on_failure` hears of a policy or a cost
        model whose code fails; without, the error is raised."""
        self.now_ns = now_ns
        self.device = device
        self._ticks = ticks
        numbers = range(gpus) if device is None else (device,)
        self.gpus = [Gpu(number) for number in numbers]
        self.limit = limit
        self.longest_ns = longest_ns
        """Admission goes by analysis as well: the longest group of a task without a reserve."""
        self.tasks: dict[str, Task] = {}
        self.holdoffs = HoldOffs()
        self._policies: dict[str, Policy] = {}
        self._cost_models: dict[str, CostModel] = {}
        self._default_model = cost_model
        for item in named:
            if isinstance(item, Policy):
                self._policies[item.name] = item
                self.holdoffs.add(item)
            else:
                self._cost_models[item.name] = item
        self._order = 0
        self.ask = ExtensionCalls(self, on_failure)
        self.queue = ReadyQueue(self.ask.key)
        self._parties = Parties()
        self._entries = self.queue.entries
        self.any_ready: Sized = self._entries
        """Empty while no group is ready; what is in the queue is the engine's own business."""
        self.ledger = Ledger(self.queue, self.tell, background, device or 0)
        self.ranks = Ranks(self.queue, self.ledger, self.tell, device or 0)
        self._calls: dict[str, list[Callable[..., None]]] = {hook: [] for hook in HOOKS}
        self._on_submitted = self._calls["submitted"]
        self._on_dispatched = self._calls["dispatched"]
        self._on_completed = self._calls["completed"]
        dispatcher = Dispatcher(self.gpus, self.queue, self.holdoffs, self.ask, self._on_dispatched)
        self._dispatch = dispatcher.dispatch
        for observer in observers:
            self.attach(observer)
        self.tell("began", gpus)

    # -- observers ---------------------------------------------------------------------------

    def attach(self, observer: Observer) -> None:
        """Call the hooks that this observer overrides, from now on."""
        for hook in HOOKS:
            if getattr(type(observer), hook) is not getattr(Observer, hook):
                self._calls[hook].append(getattr(observer, hook))

    def detach(self, observer: Observer) -> None:
        """Call this observer no more."""
        for calls in self._calls.values():
            calls[:] = [call for call in calls if getattr(call, "__self__", None) is not observer]

    def tell(self, hook: str, *args: object, at_ns: int | None = None) -> None:
        """Pass on something that only the driver knows, such as a frame on the screen. It may be
        later than what the engine was told last."""
        for call in self._calls[hook]:
            call(*args, self.now_ns if at_ns is None else at_ns)

    # -- tasks -------------------------------------------------------------------------------

    def policy(self, name: str) -> Policy:
        """The policy of this name, one instance for all its tasks."""
        if name not in self._policies:
            self._policies[name] = policies()[name]()
            self.holdoffs.add(self._policies[name])
        return self._policies[name]

    def cost_model(self, name: str | None = None) -> CostModel:
        """The cost model of this name for a further task; None: the engine's usual one."""
        name = name or self._default_model
        if name not in self._cost_models:
            self._cost_models[name] = cost_models()[name]()
        return self._cost_models[name].for_task()

    def add_task(
        self,
        name: str,
        now_ns: int,
        *,
        policy: str | Choice = DEFAULT_POLICY,
        priority: PriorityRule | None = None,
        reserve: ReserveSpec | None = None,
        period_ns: int | None = None,
        pix: bool = False,
        rix: bool = False,
        predict: str | None = None,
    ) -> tuple[Task, Answer]:
        """Make a task known; the answer says whether its reserve was admitted.

        `predict` names the task's cost model, which an AE reserve may replace by its own. `pix` and
        `rix` matter for servers: which protocols its clients' requests follow.
        """
        if name in self.tasks:
            raise ValueError(f"a task called {name!r} exists already")
        self.now_ns = now_ns
        choice = parse_policy(policy) if isinstance(policy, str) else policy
        model = self.cost_model(predict)
        rule = priority or Fixed()
        task = Task(name, self._order, self.policy(choice.name), choice, rule, model)
        self._order += 1
        task.period_ns = period_ns
        task.device, task.ticks = self.device, self._ticks
        self.tasks[name] = task
        self.queue.add(task.policy)
        self.ranks.add(task, pix=pix, rix=rix)
        self._refresh_plain(task)
        self.tell("task_added", task)
        answer = self.set_reserve(task, reserve, now_ns)
        return task, answer

    def add_background_task(
        self,
        name: str,
        now_ns: int,
        *,
        policy: str | Choice = DEFAULT_POLICY,
        pix: bool = False,
    ) -> Task:
        """A task that no spec matches: lowest priority, Background reserve (TimeGraph §3)."""
        lowest = Fixed(BACKGROUND_LEVEL)
        task, _ = self.add_task(name, now_ns, policy=policy, priority=lowest, pix=pix)
        self.make_background(task, now_ns)
        return task

    def make_background(self, task: Task, now_ns: int) -> None:
        """Put a task among those that nobody vouched for."""
        self.now_ns = now_ns
        self._set_cost_model(task, None)
        self._join(task, self.ledger.background(now_ns))
        self.set_priority(task, Fixed(BACKGROUND_LEVEL), now_ns)

    def remove_task(self, task: Task, now_ns: int) -> None:
        """The task is gone, perhaps in the middle of something. Groups online still complete."""
        self.now_ns = now_ns
        self.withdraw(task, now_ns)
        for request in self.ranks.requests_of(task):
            self.leave(request, now_ns)
        pool_pays = task.reserve is not None and task.reserve.shared and self._is_online(task)
        if not pool_pays:  # else it stays a member until what is still running is done
            self.ledger.part(task)
        if task.policy.listens:
            self.ask.tell("removed", task.policy, task)
        task.alive = False
        if not self._is_online(task):  # else its parties know when what is still running is done
            self._parties.leave(task.parties)
        del self.tasks[task.name]
        self.ranks.remove(task)
        self.tell("task_removed", task)

    def _is_online(self, task: Task) -> bool:
        return any(group.task is task for gpu in self.gpus for group in gpu.online)

    def set_priority(self, task: Task, rule: PriorityRule, now_ns: int) -> None:
        """Give the task another priority, also while it waits."""
        self.now_ns = now_ns
        task.rule = rule
        self._refresh_plain(task)
        self.ranks.refresh(task)

    def stand_together(self, task: Task, parties: tuple[str, ...], now_ns: int) -> None:
        """Have a new task stand in the queue with the others of these parties, its user's first."""
        if len(parties) > MOST_PARTIES or task.parties or task.waiting is not None:
            raise ValueError(f"{task.name} cannot stand with {', '.join(parties)} as well")
        self.now_ns = now_ns
        place = f" (GPU {self.device})" if self.device else ""
        task.parties = self._parties.join(tuple(party + place for party in parties))
        for party in task.parties:
            self.tell("stands_with", task, party)

    def step_back(self, task: Task, steps: int, now_ns: int) -> None:
        """Have a task go behind its equals (1), behind everybody (2), or where its priority says
        (0), whatever priority it is given meanwhile. What it inherits still counts."""
        self.now_ns = now_ns
        task.steps_back = steps
        self.ranks.refresh(task)

    def set_policy(self, task: Task, policy: str | Choice, now_ns: int) -> None:
        """Give the task another policy, or other parameters, also while it waits."""
        self.now_ns = now_ns
        choice = parse_policy(policy) if isinstance(policy, str) else policy
        before, after = task.policy, self.policy(choice.name)
        was_ready = task.in_ready_queue
        if was_ready:
            self.queue.pull(task)
        if after is not before and before.listens:
            self.ask.tell("removed", before, task)
        task.policy, task.choice = after, choice
        self._refresh_plain(task)
        self.queue.add(after)
        group = task.waiting
        if group is not None:
            if after is not before:
                group.policy = after
                if after.listens:
                    self.ask.tell("submitted", after, group)
            if was_ready:
                self.queue.push(group)
        self.tell("policy_set", task)

    def set_foreground(self, tasks: Collection[Task], now_ns: int) -> None:
        """The program with these tasks owns the window a person looks at: they go first among the
        `*` tasks. None of them: the window belongs to somebody else."""
        self.now_ns = now_ns
        changed = [t for t in self.tasks.values() if t.foreground != (t in tasks)]
        for task in changed:
            task.foreground = not task.foreground
            self.ranks.refresh(task)
        for focused in tasks or (None,):
            self.tell("focused", focused)

    # -- reserves ----------------------------------------------------------------------------

    def set_reserve(self, task: Task, spec: ReserveSpec | None, now_ns: int) -> Answer:
        """Give the task a reserve, change the one it has, or (None) take it away.

        A new one that admission turns away makes the task Background; a change that it turns away
        changes nothing. Debt of a private reserve follows the task.
        """
        self.now_ns = now_ns
        current = task.reserve
        if spec is None:
            self._set_cost_model(task, None)
            self._join(task, None)
            self.ranks.refresh(task)
            return Answer(True)
        pool = self.ledger.pools.get(spec.shared) if spec.shared is not None else None
        if pool is not None and pool.spec != spec and pool.members:
            raise ValueError(f"the pool {spec.shared!r} exists with other numbers")
        gpu = None if pool is None else pool.gpu
        if pool is None or not pool.members:
            replaced = current if current is not None and len(current.members) == 1 else None
            answer = self._admit(spec, replaced, task)
            if not answer.accepted:
                if current is None:
                    self.make_background(task, now_ns)
                return answer
            gpu = answer.gpu
        self._set_cost_model(task, spec)
        if spec.shared is None and current is not None and not current.shared:
            self.ledger.change(current, spec, now_ns)
        elif pool is None:
            self._join(task, self.ledger.open(task.name, spec, now_ns))
        else:
            if pool.spec != spec:
                self.ledger.change(pool, spec, now_ns)
            self._join(task, pool)
        assert task.reserve is not None
        task.reserve.gpu = gpu
        self.ranks.refresh(task)
        return Answer(True)

    def change_pool(self, name: str, spec: ReserveSpec, now_ns: int) -> Answer:
        """Change a shared reserve for all its members; turned away, nothing changes."""
        self.now_ns = now_ns
        pool = self.ledger.pools[name]
        answer = self._admit(spec, pool)
        if answer.accepted:
            self.ledger.change(pool, spec, now_ns)
            pool.gpu = answer.gpu
            for task in [member for member in pool.members if member.alive]:
                self._set_cost_model(task, spec)
                self.ranks.refresh(task)
        return answer

    def _admit(
        self, spec: ReserveSpec, replaced: Reserve | None, task: Task | None = None
    ) -> Answer:
        """Background does not count: it is made of what is left."""
        if self.limit is None:
            return Answer(True)
        used = {t.reserve for t in self.tasks.values() if t.reserve is not None}
        background = self.ledger.pools.get(BACKGROUND)
        counted = [r for r in used if r is not replaced and r is not background]
        # Who was there before anybody counted has a place on the first one.
        numbers = range(len(self.gpus))
        active = [[r.spec for r in counted if (r.gpu or 0) == number] for number in numbers]
        home = None if replaced is None else replaced.gpu
        answer = place(spec, active, self.limit, home)
        if self.longest_ns is None or not answer.accepted:
            return answer
        return self._prove(spec, task, answer)

    def _prove(self, spec: ReserveSpec, task: Task | None, answer: Answer) -> Answer:
        """Accept only if no deadline may be missed for this reserve on its GPU."""
        from headway.engine.analysis.proof import objection  # few ask for it

        if task is None:
            return Answer(
                False, "a shared reserve cannot be changed while admission is by analysis"
            )
        placed = [
            t
            for t in self.tasks.values()
            if t.reserve is None or (t.reserve.gpu or 0) == answer.gpu
        ]
        why = objection(placed, task, spec, self.longest_ns or 0)
        return Answer(False, why) if why else answer

    def _join(self, task: Task, reserve: Reserve | None) -> None:
        if task.reserve is not reserve:
            self.ledger.join(task, reserve, self.ranks.requests_of(task), self.now_ns)
            self._refresh_plain(task)

    def _set_cost_model(self, task: Task, spec: ReserveSpec | None) -> None:
        """Have an AE reserve's cost model predict for the task, or else the task's own."""
        model, asks = task.own_model, spec is not None and spec.kind == "ae"
        if spec is not None and asks:
            same = task.cost_model.name == spec.predict
            model = task.cost_model if same else self.cost_model(spec.predict)
        changes = model is not task.cost_model
        task.use_cost_model(model)
        if (asks or changes) and task.waiting is not None:
            self._predict(task.waiting)
            self.tell("predicted", task.waiting)

    def _predict(self, group: Group) -> None:
        """Ask the task's cost model what a group will cost that was submitted just now."""
        task = group.task
        if task.learner is None:
            group.predicted_ns = group.bound_ns = group.exact_ns
        elif group.signature is not None:
            gpu = task.last_gpu or self.gpus[0]
            switches = gpu.last_task is not None and gpu.last_task is not task
            conditions = Conditions(gpu.index, task.share_permille, switches)
            group.predicted_ns, group.bound_ns = self.ask.predict(group, conditions)

    def measured(self, task: Task, launch: Launch, now_ns: int) -> None:
        """Launches under the task's lease were measured by themselves: its cost model predicts what
        it would have said of them, and learns."""
        took_ns, features = launch.each_ns, launch.features
        if task.learner is None or took_ns <= 0:
            return
        gpu = task.last_gpu or self.gpus[0]
        share = launch.share_permille
        work, conditions = Measurement(task, features), Conditions(gpu.index, share)
        expected_ns, bound_ns = self.ask.predict(work, conditions)
        self.ask.observe(work, conditions, took_ns)
        said = Measured(
            now_ns, task.name, tuple(features.items()), expected_ns, bound_ns, took_ns, share
        )
        self.tell("measured", said, at_ns=now_ns)

    def advance(self, now_ns: int, until_ns: int | None = None) -> None:
        """Replenish what is due by now, or only what was due by an earlier instant: what was
        executed after that is charged first."""
        self.now_ns = now_ns
        self.ledger.advance(now_ns if until_ns is None else until_ns)

    def next_timer_ns(self) -> int | None:
        """When `advance` or `dispatch` has something to do though nothing else happens."""
        times = [self.ledger.next_due_ns()]
        times += [self.ask.wake_ns(policy, self.now_ns) for policy in self.queue.wakers]
        if self._entries:
            times.append(self.holdoffs.next_ns(self.now_ns))
        return min((time for time in times if time is not None), default=None)

    def _refresh_plain(self, task: Task) -> None:
        task.plain = (
            task.policy.needs_idle
            and task.policy.takes_idle
            and not task.policy.orders
            and not task.policy.listens
            and task.reserve is None
            and not task.rule.per_group
        )

    # -- inheritance -------------------------------------------------------------------------

    def enter(self, client: Task, server: Task, now_ns: int) -> Request:
        """The client asks the server for something and, as a rule, waits for the answer."""
        if client is server or self.ranks.waits_for(server, client):
            raise ValueError(f"{server.name} would wait for itself through {client.name}")
        self.now_ns = now_ns
        return self.ranks.enter(client, server, now_ns)

    def leave(self, request: Request, now_ns: int) -> None:
        """The request was answered, in whatever order, or one of the two is gone."""
        self.now_ns = now_ns
        self.ranks.leave(request, now_ns)

    # -- groups ------------------------------------------------------------------------------

    def submit(self, group: Group, now_ns: int) -> None:
        """A group waits for its turn; its task sends no other until this one is dispatched."""
        task = group.task
        if task.waiting is not None:
            raise ValueError(f"{task.name} submitted {group} while {task.waiting} waits")
        self.now_ns = now_ns
        group.submitted_ns = group.ready_ns = now_ns
        task.waiting = group
        if task.learner is not None:
            self._predict(group)
        if task.plain and self.queue.short:
            for call in self._on_submitted:
                call(group, now_ns)
            insort(self._entries, (task.key, now_ns, now_ns, now_ns, task.order, group))
            task.in_ready_queue = True
            for party in task.parties:
                party.ready += 1
            return
        for call in self._on_submitted:
            call(group, now_ns)
        group.policy = task.policy
        if task.policy.listens:
            self.ask.tell("submitted", task.policy, group)
        if task.rule.per_group:
            self.ranks.refresh(task)
        self.ledger.wait(group, now_ns)

    def withdraw(self, task: Task, now_ns: int) -> None:
        """The task no longer wants what it waits for."""
        self.now_ns = now_ns
        group = task.waiting
        if group is None:
            return
        if task.in_ready_queue:
            self.queue.pull(task)
        task.waiting = None
        if task.reserve is not None:
            task.reserve.waiting.pop(task, None)
        self.tell("withdrawn", group)

    def best_ready_rank(self) -> Rank:
        """The rank of the most important ready task; call it only while one is ready."""
        return self.queue.best_rank()

    def ready(self) -> list[Group]:
        """The ready groups in the order in which they are asked."""
        return [entry[GROUP] for entry in self._entries]

    def in_order(self) -> Iterator[Group]:
        """The same one by one: for who needs the first of them only."""
        return (entry[GROUP] for entry in self._entries)

    def first_ready(self, count: int) -> list[Group]:
        """The first of them, so many at most."""
        return [entry[GROUP] for entry in self._entries[:count]]

    def dispatch(self, now_ns: int) -> Group | None:
        """Take one decision: the group that goes online now, or None if nothing changes."""
        if not self._entries:
            self.holdoffs.until_ns.clear()
            return None
        self.now_ns = now_ns
        return self._dispatch(now_ns)

    def charge(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None:
        """The group goes on, and its reserve pays now for what it executed until `until_ns` and was
        not charged for yet: for a period that is over, before that is replenished. `complete`
        charges the rest. Without a reserve there is nobody to pay."""
        if not any(group in gpu.online for gpu in self.gpus):
            raise ValueError(f"{group} is not online")
        most_ns = until_ns - group.dispatched_ns - group.charged_ns
        if not 0 < amount_ns <= most_ns or until_ns > now_ns:
            raise ValueError(f"{group} cannot have run for {amount_ns} of {most_ns} ns")
        self.now_ns = now_ns
        reserve = group.task.reserve
        if reserve is not None:
            group.charged_ns += amount_ns
            self.ledger.charge(reserve, amount_ns, until_ns)
            self.tell("charged", group, amount_ns, until_ns)

    def overrun(self, task: Task, amount_ns: int, now_ns: int) -> None:
        """A group of the task, to which the GPU was lost, went on for so long beside others: its
        reserve pays. Without a reserve there is nobody to pay."""
        self.now_ns = now_ns
        if task.reserve is not None and amount_ns > 0:
            self.ledger.charge(task.reserve, amount_ns, now_ns)
            self.tell("overran", task, amount_ns)

    def complete(self, group: Group, started_ns: int, now_ns: int) -> None:
        """The group is done; it executed from `started_ns` until now, after its `overhead_ns`."""
        self.now_ns = now_ns
        gpu = group.gpu
        gpu.idle_ns = now_ns
        online = gpu.online
        if online[0] is group:
            online.popleft()
        else:
            online.remove(group)
        group.started_ns = started_ns
        group.finished_ns = now_ns
        task = group.task
        if task.parties:
            self.queue.had(task, now_ns)
        executed_ns = now_ns - started_ns
        task.gpu_ns += executed_ns
        executed_ns += group.overhead_ns
        if task.learner is not None and group.signature is not None:
            self.ask.observe(
                group, Conditions(gpu.index, task.share_permille, group.switched), executed_ns
            )
        if not task.plain:
            if self.ledger.timers and self.ledger.timers[0][0] < now_ns:
                self.ledger.advance(now_ns - 1)  # the driver is late: those boundaries came first
            self._charge(group, executed_ns)
        for call in self._on_completed:
            call(group, now_ns)
        policy = task.policy
        if policy.listens and task.alive and group.policy is policy:
            self.ask.tell("finished", policy, group)
        if policy.orders:
            self.queue.move(task)
        if not task.alive and not self._is_online(task):
            self.ledger.part(task)
            self._parties.leave(task.parties)

    def rest(self, task: Task, now_ns: int) -> None:
        """The task has nothing more to send for now, so no GPU is kept for it by a hold-off."""
        self.now_ns = now_ns
        for gpu in self.gpus:
            if gpu.last_task is task:
                gpu.resting = task

    def _charge(self, group: Group, executed_ns: int) -> None:
        task = group.task
        if executed_ns < group.charged_ns:
            raise ValueError(f"{group} ran for {executed_ns} ns, and paid for {group.charged_ns}")
        if task.reserve is not None:
            self.ledger.charge(task.reserve, executed_ns - group.charged_ns, self.now_ns)
