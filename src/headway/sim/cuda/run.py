"""A scenario of CUDA programs, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headway.engine.core import Engine
from headway.engine.model import Group, Task
from headway.engine.profile import DeviceProfile, shipped_profile
from headway.sim.cuda.clock import Clock
from headway.sim.cuda.commands import Context
from headway.sim.cuda.devices import Device
from headway.sim.cuda.kinds import DEVICES
from headway.sim.cuda.manager import Management, Manager, SimulatedClient
from headway.sim.cuda.program import DoneJob, Program, Unmanaged, Way
from headway.sim.cuda.sharing import ShareManager
from headway.sim.cuda.work import CudaPlan
from headway.trace.statistics import Statistics, TaskStatistics

DEFAULT_KIND = "time-sliced"


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """The device of a scenario, and how Headway is set up there."""

    kind: str = DEFAULT_KIND
    profile: DeviceProfile = field(default_factory=shipped_profile)
    management: Management = field(default_factory=Management)


class CudaTaskStatistics(TaskStatistics):
    """What one CUDA program did: responses are its jobs', and GPU time is its kernels'."""

    executed_ns = 0

    @property
    def gpu_ns(self) -> int:
        return self.executed_ns


class CudaStatistics(Statistics):
    """Tables of a run, from the programs' own clocks and the device itself."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[str, list[DoneJob]] = {}
        """By the name of the task."""

    def task_added(self, task: Task, now_ns: int) -> None:
        self.tasks[task] = CudaTaskStatistics(task)
        self.jobs[task.name] = []

    def completed(self, group: Group, now_ns: int) -> None:
        """A turn is over. It is no job, but its reserve pays."""
        if group.task.reserve is not None:
            executed_ns = now_ns - group.started_ns - group.charged_ns
            self._charge(self.reserves[group.task.reserve], executed_ns)

    def job_done(self, task: Task, job: DoneJob) -> None:
        """A program has done a job."""
        entry = self.tasks[task]
        entry.append_response(job.response_ns)
        entry.responses.fold()
        entry.without_deadline += job.deadline_ns is None
        entry.missed += job.missed
        self.jobs[task.name].append(job)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens to a run at an instant, such as a change of priority."""

    at_ns: int
    task: str
    do: Callable[[CudaRun], None]


class CudaRun:
    """One run: programs, a device, and Headway or nobody between them."""

    def __init__(
        self,
        engine: Engine,
        plans: Mapping[Task, CudaPlan],
        device: CudaDevice,
        statistics: CudaStatistics,
        happenings: Iterable[Happening] = (),
    ) -> None:
        self.engine = engine
        self.clock = Clock()
        self.device: Device = DEVICES[device.kind](self.clock, device.profile)
        self.manager: Manager | None = None
        self.sharing: ShareManager | None = None
        if device.management.kind == "headway":
            self.manager = Manager(self.clock, engine, device.profile, device.management)
        elif device.management.kind == "shares":
            self.sharing = ShareManager(self.clock, engine, device.management)
        self._statistics = statistics
        self.contexts: dict[Task, Context] = {}
        self.clients: dict[Task, SimulatedClient] = {}
        self.programs = {task: self._start(task, plan) for task, plan in plans.items()}
        for happening in happenings:
            self._plan(happening)

    def _start(self, task: Task, plan: CudaPlan) -> Program:
        context = Context(task.name, self.device, share=plan.share, priority=plan.client_priority)
        self.device.add(context)
        self.contexts[task] = context
        way: Way = Unmanaged(self.clock, context, self.device.profile)
        if self.manager is not None:
            client = self.clients[task] = self.manager.add(task, context, plan)
            way = client.interposer
        program = Program(
            plan,
            self.clock,
            context,
            way,
            lambda job: self._job_done(task, job),
            lambda: self._gone(task),
        )
        if self.sharing is not None:
            self.sharing.add(task, context, program, plan)
        program.start()
        return program

    def _job_done(self, task: Task, job: DoneJob) -> None:
        self._statistics.job_done(task, job)
        if self.sharing is not None:
            self.sharing.job_done(task, job)

    def _plan(self, happening: Happening) -> None:
        self.clock.at(happening.at_ns, lambda: happening.do(self))

    def _gone(self, task: Task) -> None:
        self.contexts[task].end()
        if self.manager is not None:
            self.manager.remove(self.clients[task])
        if self.sharing is not None:
            self.sharing.remove(task)

    def kill(self, task: Task) -> None:
        """A program dies, whatever it is doing; what is on the GPU still runs."""
        program = self.programs[task]
        if not program.is_over:
            program.kill()
            self._gone(task)

    def change(self, task: Task, change: Callable[[], None]) -> None:
        """Change its priority or reserve."""
        if self.manager is not None:
            self.manager.change(self.clients[task], change)
        elif self.sharing is not None:
            change()

    def run(self, until_ns: int | None, progress: Callable[[int], bool] | None = None) -> bool:
        """Simulate up to and including `until_ns`, or until all programs have ended."""
        finished = self.clock.run(until_ns, progress, self._is_over)
        self.engine.now_ns = max(self.clock.now_ns, self.engine.now_ns)
        for task, context in self.contexts.items():
            entry = self._statistics.tasks[task]
            assert isinstance(entry, CudaTaskStatistics)
            entry.executed_ns = context.executed_ns()
            if self.programs[task].is_overdue:
                self.engine.tell("overdue", task, 1)
        self._statistics.switches = self.device.switches
        self.engine.tell("ended", finished)
        return finished

    def _is_over(self) -> bool:
        return all(program.is_over for program in self.programs.values()) and all(
            context.is_idle for context in self.contexts.values()
        )
