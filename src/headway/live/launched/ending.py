"""How processes that may be using the GPU are asked to end.

Under MPS a program that is killed inside a kernel leaves the GPU undefined for all who share the
server (CudaMon §4.2). So nothing here kills: a process that has a handler for SIGINT gets SIGINT,
then SIGTERM if it has a handler for that, then MPS ends its work on the GPU (`terminate_client`),
after which SIGTERM harms nobody. Each step has a deadline.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.live.launched import processes


@dataclass(eq=False)
class Ending:
    """The steps that were taken to have some processes end."""

    patience_s: float
    """How long they may take after each."""
    step: int = 0
    """What was done last, of SIGINT, SIGTERM and MPS' word,"""
    step_s: float = 0.0
    """and when."""

    def urge(
        self, pids: Sequence[int], now_s: float, *, mps: bool, terminate: Callable[[int], bool]
    ) -> bool:
        """Take the next step, if the last had its time. True: there is none left."""
        if self.step and now_s - self.step_s < self.patience_s:
            return False
        self.step, self.step_s = self.step + 1, now_s
        if self.step <= 2:
            number = (signal.SIGINT, signal.SIGTERM)[self.step - 1]
            safe = [pid for pid in pids if not mps or processes.survives(pid, number)]
            processes.send(safe, number)
            if not safe:
                self.step_s = now_s - self.patience_s
            return False
        if self.step == 3 and mps:
            processes.send([pid for pid in pids if terminate(pid)], signal.SIGTERM)
            return False
        return True
