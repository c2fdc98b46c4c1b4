"""Which GPUs the kernel's drivers tell of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NVIDIA = Path("/proc/driver/nvidia/gpus")
_KEYS = {"Model": "model", "GPU UUID": "uuid", "Bus Location": "pci"}


@dataclass(frozen=True, slots=True)
class Found:
    """One GPU; what its driver does not tell is empty."""

    model: str = ""
    uuid: str = ""
    """As "GPU-0a1b…": the same in every process, whatever CUDA_VISIBLE_DEVICES says."""
    pci: str = ""
    """Its place on the bus, as "0000:19:00.0"."""


def nvidia_gpus(folder: Path = NVIDIA) -> list[Found]:
    """NVIDIA's GPUs in the order of their places on the bus, which is NVML's."""
    try:
        files = sorted(folder.glob("*/information"))
        texts = [file.read_text(errors="replace") for file in files]
    except OSError:
        return []
    return [_read(text) for text in texts]


def _read(text: str) -> Found:
    lines = (line.partition(":") for line in text.splitlines())
    said = {_KEYS[key.strip()]: value.strip() for key, _, value in lines if key.strip() in _KEYS}
    return Found(**said)
