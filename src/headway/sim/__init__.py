"""The engine without a GPU: virtual time, simulated devices, the papers, studies.

`headway.sim.run(scenario)` is the way in from Python; it is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.sim.api import Job as Job
    from headway.sim.api import SimulatedTask as SimulatedTask
    from headway.sim.api import Simulation as Simulation
    from headway.sim.api import run as run
else:

    def __getattr__(name: str) -> Any:
        if name in ("Job", "SimulatedTask", "Simulation", "run"):
            from headway.sim import api

            return getattr(api, name)
        raise AttributeError(f"module 'headway.sim' has no attribute {name!r}")
