"""What the ordinary programs do, as the simulator is to know it: one job of each, step by step.

`plain:` programs are what plain.cu launches. Of the others the numbers of kernels and waits follow
from the layers of the models, and the times are such that each takes alone what was measured on an
H200 where that was measured: detection 14 ms, decoding 42 ms, a graph of the encoder 1.5 ms, 40
steps of training a second (`MEASURED`). Everything else is an estimate, so a twin that is wrong
about a case may be wrong about its program.
"""

from __future__ import annotations

from typing import Any

Steps = list[dict[str, Any]]


def _kernels(us: float, count: int, cpu_us: float = 0, **more: Any) -> dict[str, Any]:
    step: dict[str, Any] = {"kernel": f"{int(us * 1000)}ns", "count": count, **more}
    return step | ({"cpu": f"{int(cpu_us * 1000)}ns"} if cpu_us else {})


def _plain(us: float, count: int = 1, stream: int = 0) -> dict[str, Any]:
    """264 blocks of 512 threads: two on each multiprocessor, which leave no time to others (a
    measured 4.7 ms beside mixed kernels under MPS, where 2.3 were alone)."""
    return _kernels(us, count, blocks=264, per_sm=2, stream=stream)


def _waves(us: float, waves: int, count: int, cpu_us: float) -> dict[str, Any]:
    """Kernels of many blocks, as libraries have them: twice as many as there is room for, and so
    many times that. Between two waves another program's blocks may come."""
    return _kernels(us, count, cpu_us, blocks=264 * waves, per_sm=2)


def _repeated(times: int, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"repeat": times, "work": list(steps)}


WAIT: dict[str, Any] = {"sync": "all"}
READ: dict[str, Any] = {"copy": "64KiB", "to": "host", "waits": True}
"""A small result is read back."""

SHAPES: dict[str, Steps] = {
    "detection": [
        _kernels(14, 160, 34),  # the backbone
        _repeated(20, _kernels(5, 8, 38), READ, {"cpu": "60us"}),  # boxes, whose number is read
    ],
    "segmentation": [_kernels(17, 180, 28), READ],
    "decoding": [_repeated(8, _kernels(4, 150, 31), READ, {"cpu": "60us"})],
    "encoding": [_kernels(8, 200, 22), READ],
    "encoding_compiled": [_kernels(14, 90, 16), READ],
    "encoding_graph": [{"graph": "8us", "count": 150}, READ],
    "diffusion": [_kernels(14, 180, 22), READ],
    "training": [
        _repeated(25, _waves(15, 1, 10, 6), _waves(45, 3, 10, 6), _waves(180, 12, 2, 6)),
        READ,  # whether a gradient overflowed
        {"cpu": "300us"},
    ],
    "multiplying": [_waves(200, 4, 8, 0)],
    "fourier": [_kernels(12, 20, 16), READ],
    "jax_layers": [{"cpu": "100us"}, _kernels(18, 17, 3), READ],
    "triton_softmax": [_kernels(48, 10, 12), READ],
    "plain:short": [_plain(100, 20)],
    "plain:mixed": [_plain(20, 30), _plain(2000), _plain(20, 30)],
    "plain:streams": [_plain(40, 1, stream) for _ in range(8) for stream in range(4)],
    "plain:copies": [
        {"copy": "64MiB", "to": "device"},
        _plain(200),
        {"copy": "64MiB", "to": "itself"},
        {"copy": "64MiB", "to": "host"},
        {"copy": "16MiB", "to": "host", "waits": True},
    ],
    "plain:long": [_plain(5000)],
}
WAITS_EVERY = {"multiplying": 4}
"""Jobs between two waits for the GPU at the end of one."""
MEASURED = {"detection": 13.9, "decoding": 41.8, "encoding_graph": 1.51, "training": 25.0}
"""Milliseconds of a job alone, on an H200 with a free CPU."""
