"""Every kind of simulated device, by the name that scenario files use."""

from __future__ import annotations

from headway.sim.cuda.devices import Device, OneGroup, SideBySide, TimeSliced
from headway.sim.cuda.interleaving import Interleaved

DEVICES: dict[str, type[Device]] = {
    kind.kind: kind for kind in (Interleaved, OneGroup, SideBySide, TimeSliced)
}
