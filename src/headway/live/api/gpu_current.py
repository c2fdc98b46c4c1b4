"""Make a GPU the current one in whatever the program has loaded."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Any

from headway.live.api.gpu_line import LockMisuse

RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")


def ordinal(index: int) -> int:
    """The number by which this process knows a GPU of the machine, by `CUDA_VISIBLE_DEVICES`."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return index
    names = [name.strip() for name in listed.split(",")]
    if not all(name.isdecimal() for name in names):
        return index  # UUIDs, or nothing: the order is the driver's
    numbers = [int(name) for name in names]
    if index not in numbers:
        raise LockMisuse(
            f"the token is on GPU {index}, which this process does not see: "
            f"CUDA_VISIBLE_DEVICES is {listed!r}; leave the choice to the token"
        )
    return numbers.index(index)


def machine_number(number: int) -> int:
    """The number on the machine of a GPU that this process knows by `number`."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if number < len(names) and all(name.strip().isdecimal() for name in names):
        return int(names[number])
    return number


def make_current(number: int) -> None:
    """Make a GPU current in PyTorch, CuPy, JAX and the CUDA runtime, those that are loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.set_device(number)
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None:
        cupy.cuda.Device(number).use()
    jax: Any = sys.modules.get("jax")
    if jax is not None:
        with contextlib.suppress(RuntimeError):  # it has no GPUs
            jax.config.update("jax_default_device", jax.local_devices(backend="gpu")[number])
    for name in RUNTIMES:
        with contextlib.suppress(OSError, AttributeError):  # it is not loaded
            ctypes.CDLL(name, mode=os.RTLD_NOLOAD).cudaSetDevice(number)
