"""The GPUs of a daemon: those that the kernel's drivers tell of, and those that programs name.

A program says which GPU its work goes to: by the identifier that the driver gave the GPU, by its
place on the bus, or by both, so that what programs call their first GPU does not matter. Work of
programs that cannot say is taken to be for the first GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.engine.profile import UNKNOWN, DeviceProfile
from headway.engine.reading import BadInput
from headway.live.devices.discovery import Found
from headway.live.devices.profiles import of_model

MOST = 16
"""GPUs of a machine; whatever programs say, there are no more."""


@dataclass
class Device:
    """One GPU, as far as somebody has said what it is."""

    index: int
    found: Found
    profile: DeviceProfile = UNKNOWN

    @property
    def is_named(self) -> bool:
        return bool(self.found.uuid or self.found.pci)

    def is_called(self, said: Found) -> bool:
        """Whether that is this GPU. Parts of one GPU (MIG) have its place on the bus in common, so
        that counts only where no identifiers tell."""
        own = self.found
        if own.uuid and said.uuid:
            return own.uuid.lower() == said.uuid.lower()
        return bool(own.pci) and own.pci.lower() == said.pci.lower()

    def learn(self, said: Found) -> None:
        """Take over what was not known."""
        own = self.found
        self.found = Found(
            own.model or said.model, own.uuid or said.uuid, own.pci or said.pci.lower()
        )


class Inventory:
    """All of them, by their numbers."""

    def __init__(
        self,
        found: Sequence[Found],
        profile: DeviceProfile | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`profile` is that of all GPUs, whatever they are; `warn` hears of files that are no
        profiles."""
        self._profile = profile
        self._warn = warn
        self._warned: set[str] = set()
        self.devices: list[Device] = []
        for one in found[:MOST] or [Found()]:
            self._add(one)

    def _add(self, found: Found) -> Device:
        device = Device(len(self.devices), found)
        self.devices.append(device)
        self._look_up(device)
        return device

    def _look_up(self, device: Device) -> None:
        if self._profile is not None:
            device.profile = self._profile
            return
        device.profile, problems = of_model(device.found.model)
        for problem in problems:
            self._say(problem)

    def _say(self, problem: BadInput) -> None:
        text = str(problem).partition("\n")[0]
        if text not in self._warned:
            self._warned.add(text)
            self._warn(f"{text}; the profile is not used")

    def place(self, said: Found) -> Device:
        """The GPU that a program means, which may be a new one."""
        if not (said.uuid or said.pci):
            return self.devices[0]
        known = next((device for device in self.devices if device.is_called(said)), None)
        if known is None and not self.devices[0].is_named:
            known = self.devices[0]
        if known is None:
            return self._add(said) if len(self.devices) < MOST else self.devices[0]
        before = known.found
        known.learn(said)
        if known.found.model != before.model:
            self._look_up(known)
        return known
