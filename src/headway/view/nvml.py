"""What NVIDIA's management library says of GPUs and of the processes on them; nothing where there
is no such library, or no GPU."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from headway.view.unmanaged import name_of

Facts = dict[str, Any]


@functools.cache
def _library() -> Any:
    """The library, ready for questions; None where there is none."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, no driver, a driver that does not answer: no facts
        return None
    return pynvml


def devices() -> list[Facts]:
    """Each GPU with its name, utilisation, memory, temperature, power and processes. A number that
    the GPU does not tell is None."""
    library = _library()
    if library is None:
        return []
    found = []
    with contextlib.suppress(library.NVMLError):
        for index in range(library.nvmlDeviceGetCount()):
            with contextlib.suppress(library.NVMLError):
                found.append(_describe(library, index))
    return found


def _describe(library: Any, index: int) -> Facts:
    device = library.nvmlDeviceGetHandleByIndex(index)
    name = library.nvmlDeviceGetName(device)

    def asked(question: Callable[[], Any]) -> Any:
        with contextlib.suppress(library.NVMLError):
            return question()
        return None

    rates = asked(lambda: library.nvmlDeviceGetUtilizationRates(device))
    memory = asked(lambda: library.nvmlDeviceGetMemoryInfo(device))
    power_mw = asked(lambda: library.nvmlDeviceGetPowerUsage(device))
    return {
        "index": index,
        "name": name.decode(errors="replace") if isinstance(name, bytes) else str(name),
        "utilisation": None if rates is None else rates.gpu / 100,
        "memory_used": None if memory is None else int(memory.used),
        "memory_total": None if memory is None else int(memory.total),
        "temperature_c": asked(
            lambda: library.nvmlDeviceGetTemperature(device, library.NVML_TEMPERATURE_GPU)
        ),
        "power_w": None if power_mw is None else power_mw / 1000,
        "processes": list(_processes(library, device)),
    }


def _processes(library: Any, device: Any) -> Iterator[Facts]:
    """Each once, whether it computes, draws or both."""
    memory: dict[int, int | None] = {}
    for ask in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
        with contextlib.suppress(library.NVMLError):
            for process in getattr(library, ask)(device):
                memory[process.pid] = getattr(process, "usedGpuMemory", None)
    for pid, used in sorted(memory.items()):
        yield {"pid": pid, "name": name_of(pid), "memory": used}
