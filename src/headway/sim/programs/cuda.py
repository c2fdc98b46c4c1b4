"""CUDA programs: jobs of kernels, copies, CPU time and synchronisations, under turns.

They are simulated by `headway.sim.cuda`, which has a program's page and interposer as well; nothing
here is stepped by the simulator of groups.
"""

from __future__ import annotations

from dataclasses import replace

from headway.engine.model import Group
from headway.engine.reading import Table
from headway.engine.settings import read_slowdown
from headway.sim.cuda.work import CudaPlan, read_cuda
from headway.sim.programs import BLOCKED, Program, program


@program("cuda")
class CudaProgram(Program):
    """Kernels, copies, CPU time and synchronisations, job after job; its tasks take turns."""

    def __init__(self, plan: CudaPlan) -> None:
        self.plan = plan
        self.endless = plan.jobs is None  # type: ignore[misc]

    @classmethod
    def read(cls, table: Table, seed: int) -> CudaProgram:
        return cls(read_cuda(table, seed))

    def read_goals(self, table: Table) -> None:
        """What `headway run` is told of the program: `period` and `slowdown` of its task."""
        if "period" in table:
            self.period_ns = table.duration("period", least=1)
        goal_ns = self.plan.deadline_ns or self.period_ns
        self.plan = replace(self.plan, goal_ns=goal_ns, slowdown=read_slowdown(table))

    def start(self) -> int:
        return BLOCKED

    def resume(self, now_ns: int) -> Group | None:
        return None

    def dispatched(self, group: Group, now_ns: int) -> int:
        return BLOCKED
