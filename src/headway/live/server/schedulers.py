"""The schedulers: an engine and an arbiter for each GPU in use, and what is counted there.

GPUs share nothing, so neither do their schedulers: reserves, admission, the Background reserve,
online lists, windows and statistics are those of one GPU. A connection belongs to one GPU from its
first message on; a program with work on several GPUs has a connection for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from headway.engine.choice import DEFAULT_POLICY
from headway.engine.core import Engine
from headway.engine.cost_models.recent import Recent
from headway.engine.events import Observer
from headway.engine.model import Task
from headway.engine.registry import ExtensionError
from headway.engine.settings import with_holdoff
from headway.engine.turns.conduct import Conduct, Record, Standing
from headway.engine.turns.windows import Windows
from headway.live.devices.calibrations import calibrated
from headway.live.devices.discovery import Found
from headway.live.devices.inventory import Device, Inventory
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from headway.live.gate.conduct import Lines
from headway.live.server.loop import log
from headway.live.server.specfile import SpecFile
from headway.live.watch.stats import Stats


@dataclass(frozen=True)
class Scheduler:
    """What decides for one GPU, and knows what happened there."""

    device: Device
    engine: Engine
    arbiter: Arbiter
    windows: Windows
    stats: Stats


@dataclass(frozen=True)
class Setting:
    """What the schedulers of a daemon have in common."""

    spec_file: SpecFile
    bounds: Bounds
    split_ns: int
    holdoff_ns: int
    software_gpu: bool
    observers: Callable[[], tuple[Observer, ...]]
    """Those of every engine."""
    grant: Callable[[Channel], None]
    expel: Callable[[Channel], None]
    """Ends the connection of a process that is unmanaged from now on."""
    look_later: Callable[[Channel], None]
    """Has the launches read, between decisions, that a program measured."""


class Schedulers:
    """The schedulers of all GPUs in use. The first GPU's is there from the start: work of programs
    that cannot say where their work goes is taken to go there."""

    def __init__(self, setting: Setting, inventory: Inventory, conduct: Conduct) -> None:
        self._setting = setting
        self._inventory = inventory
        self._conduct = conduct
        self._lines = Lines()
        self._by_number: dict[int, Scheduler] = {}
        self.failed: dict[str, dict[str, str]] = {"policy": {}, "cost model": {}}
        """By kind and name: code from outside that failed, and how."""
        self.policies_fail = False
        self._replaced_grants = self._replaced_leases = 0
        self._make(inventory.devices[0])
        conduct.tell = self._stands

    def __iter__(self) -> Iterator[Scheduler]:
        return iter(list(self._by_number.values()))

    @property
    def first(self) -> Scheduler:
        return self._by_number[0]

    @property
    def engines(self) -> list[Engine]:
        return [scheduler.engine for scheduler in self]

    @property
    def grants(self) -> int:
        return self._replaced_grants + sum(s.arbiter.grants for s in self)

    @property
    def leases(self) -> int:
        return self._replaced_leases + sum(s.arbiter.leases for s in self)

    # -- which one ---------------------------------------------------------------------------

    def place(self, said: Found) -> Scheduler:
        """That of the GPU which a program says its work goes to."""
        device = self._inventory.place(said)
        return self._by_number.get(device.index) or self._make(device)

    def of(self, channel: Channel) -> Scheduler:
        """That of a connection which has said which GPU it is for."""
        return self._by_number.get(channel.device, self.first)

    def at(self, device: Device) -> Scheduler | None:
        """That of a GPU, if the GPU is in use."""
        return self._by_number.get(device.index)

    def knows(self, name: str) -> bool:
        """Whether some task has this name."""
        return any(name in engine.tasks for engine in self.engines)

    # -- making and replacing ----------------------------------------------------------------

    def _make(self, device: Device) -> Scheduler:
        setting, settings = self._setting, self._setting.spec_file.spec.settings
        stats, windows = Stats(), Windows(setting.split_ns, setting.bounds.window_ns)
        engine = Engine(
            device=device.index,
            ticks=setting.bounds.tick_ns is not None,
            limit=settings.limit,
            longest_ns=settings.longest_ns,
            background=settings.background,
            named=[
                *calibrated(software=setting.software_gpu),
                *with_holdoff(settings, setting.holdoff_ns),
            ],
            observers=(stats, windows),
            now_ns=time.monotonic_ns(),
            cost_model=Recent.name,
            on_failure=self._extension_failed,
        )
        for observer in setting.observers():
            engine.attach(observer)
            if not self._by_number:  # the first engine of all: they begin anew with it
                observer.began(1, engine.now_ns)
        arbiter = Arbiter(engine, setting.grant, setting.bounds, self._conduct, device.profile)
        arbiter.look_later = setting.look_later
        self._conduct.tell = self._stands  # the arbiter took it for itself alone
        made = Scheduler(device, engine, arbiter, windows, stats)
        self._by_number[device.index] = made
        return made

    def start_over(self) -> None:
        """New engines, which know nobody; the old ones are not to be asked any more."""
        self._replaced_grants, self._replaced_leases = self.grants, self.leases
        self._by_number.clear()
        self._conduct.start_over()
        self._make(self._inventory.devices[0])

    def _stands(self, record: Record, now_ns: int) -> None:
        """A process has another standing, on every GPU."""
        for scheduler in self:
            scheduler.arbiter.stands(record, now_ns)
        self._lines.tell(record)
        if record.standing == Standing.UNMANAGED:
            for client in list(record.clients):
                if isinstance(client, Channel):
                    self._setting.expel(client)

    # -- code from outside that fails --------------------------------------------------------

    def _extension_failed(self, failure: ExtensionError) -> None:
        """Log a failure once. Tasks of a policy get another policy as soon as the engine is done
        with what it does now; those of a cost model have another one already."""
        failed = self.failed[failure.what]
        if failure.name not in failed:
            instead = DEFAULT_POLICY if failure.what == "policy" else Recent.name
            log(f"{failure}; its tasks go on with {instead}")
            failed[failure.name] = str(failure)
        if failure.what == "policy":
            self.policies_fail = True

    def replace_policies(self, channels: Collection[Channel], now_ns: int) -> None:
        """Give tasks whose policy failed the usual one."""
        self.policies_fail = False
        failed = self.failed["policy"]
        for channel in channels:
            task = channel.task
            if task is not None and task.policy.name in failed:
                scheduler = self.of(channel)
                channel.note = failed[task.policy.name]
                scheduler.engine.set_policy(task, DEFAULT_POLICY, now_ns)
                scheduler.arbiter.take_back(channel, now_ns)
        self.pump(now_ns)

    # -- time goes on ------------------------------------------------------------------------

    def next_timer_ns(self) -> int | None:
        """When `tick` has something to do."""
        times = [scheduler.arbiter.next_timer_ns() for scheduler in self._by_number.values()]
        return min((time for time in times if time is not None), default=None)

    def tick(self, now_ns: int) -> None:
        for scheduler in self:
            scheduler.arbiter.tick(now_ns)

    def pump(self, now_ns: int) -> None:
        for scheduler in self:
            scheduler.arbiter.pump(now_ns)

    def settle(self, now_ns: int) -> None:
        """Bring all budgets up to date."""
        for scheduler in self:
            scheduler.arbiter.settle(now_ns)

    def decide(self, now_ns: int) -> None:
        for scheduler in self:
            scheduler.arbiter.decide(now_ns)

    def set_polling(self, on: bool, now_ns: int) -> None:
        """From now on `poll` is called all the time, or no more."""
        for scheduler in self:
            scheduler.arbiter.set_polling(on, now_ns)

    def poll(self, now_ns: int) -> bool:
        """Look at what programs say by their pages alone; whether somebody said something."""
        changed = False
        for scheduler in self._by_number.values():
            changed |= scheduler.arbiter.poll(now_ns)
        return changed

    @property
    def is_stale(self) -> bool:
        """Whether `tell_windows` has something left to do."""
        return any(scheduler.windows.is_stale for scheduler in self._by_number.values())

    def tell_windows(self) -> None:
        for scheduler in self._by_number.values():
            if scheduler.windows.is_stale:
                scheduler.windows.tell()

    # -- a person's attention ----------------------------------------------------------------

    @property
    def shown(self) -> list[Task]:
        """The tasks in the foreground."""
        return [task for e in self.engines for task in e.tasks.values() if task.foreground]

    def show(self, tasks: Collection[Task], now_ns: int) -> None:
        """A person looks at these now."""
        for engine in self.engines:
            own = [task for task in tasks if engine.tasks.get(task.name) is task]
            before = any(task.foreground for task in engine.tasks.values())
            if own or before or engine is self.first.engine:
                engine.set_foreground(own, now_ns)
        self.pump(now_ns)
