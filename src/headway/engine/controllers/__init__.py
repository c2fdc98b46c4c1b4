"""Controllers decide what less important tasks get beside more important ones, by misses.

A controller hears of each job that ends. From the jobs it works out two numbers that say the same
in two ways: a *level* for each task, which others have to keep to beside that task's jobs, and a
*share* for each task, which is what the task may have while others run beside it. The gate uses
levels (time: at level 0 nobody runs beside the task's jobs), MPS percentages and green contexts use
shares (space). Both are thousandths of the whole. One controller serves all tasks of a device.

One file each, found by the decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headway.engine.registry import Registry
from headway.engine.shares import WHOLE_PERMILLE, Sharer

if TYPE_CHECKING:
    from headway.engine.jobs import Job


class Controller:
    """Lets nobody beside a task's jobs, whatever becomes of them (`alone`)."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.tasks: dict[str, Sharer] = {}
        """Those that share the device now, by name."""
        self.quantum = 1
        """A rise of a share by less than so many thousandths is not made: where another share takes
        a restart, a small one is not worth that."""

    def joins(self, task: Sharer) -> None:
        """The task uses the device from now on."""
        self.tasks[task.name] = task

    def leaves(self, task: Sharer) -> None:
        """The task is gone. What was learned of it stays, for it may come back."""
        self.tasks.pop(task.name, None)

    def job_ended(self, job: Job, goal: float) -> None:
        """A job is over during which others could be beside it; `job.ended_ns` is the time. `goal`:
        by which part of what a job takes alone it may take longer, if it has no deadline."""

    def level(self, task: Sharer) -> int:
        """What others may have beside this task's jobs, in thousandths: of the time as of the
        multiprocessors."""
        return 0

    def share(self, task: Sharer) -> int:
        """What this task may have while others run beside it, in thousandths: the least that the
        more important tasks stand."""
        levels = [self.level(other) for other in self.above(task)]
        return task.shares.bound(min(levels, default=WHOLE_PERMILLE))

    def above(self, task: Sharer) -> list[Sharer]:
        """Who is more important than the task."""
        return [other for other in self.tasks.values() if other.rank < task.rank]

    def below(self, task: Sharer) -> list[Sharer]:
        """Who is less important than the task."""
        return [other for other in self.tasks.values() if other.rank > task.rank]


controller: Registry[type[Controller]] = Registry("controller", __name__, "name")
"""`@controller("aimd")`: register a controller under the name that people use."""
controller("alone")(Controller)


def controllers() -> dict[str, type[Controller]]:
    """Every registered controller by name."""
    return controller.all()
