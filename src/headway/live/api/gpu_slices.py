"""Slices of a GPU: equal parts of its multiprocessors, each with a stream of its own.

A slice is a green context of CUDA. Its kernels run on its multiprocessors only; copies, memory and
events are those of the GPU. `headway run --gpu auto` takes a percentage of MPS for it instead.
"""

from __future__ import annotations

import ctypes
import threading

RESOURCE_BYTES = 144
"""sizeof(CUdevResource), since CUDA 12.4."""
COUNT_OFFSET = 96
"""Where in it the number of multiprocessors is."""
SM_RESOURCE = 1
DEFAULT_STREAM = NON_BLOCKING = 1
STEP = 8
"""The driver divides multiprocessors in steps of so many."""

_streams: dict[tuple[int, int, int], int] = {}
_making = threading.Lock()


class NoSlices(RuntimeError):
    """This GPU or its driver cannot be divided."""


def slice_stream(number: int, part: int, parts: int) -> int:
    """The stream of one of `parts` slices of the GPU that this process knows by `number`."""
    with _making:
        known = _streams.get((number, part, parts))
        if known is None:
            known = _streams[number, part, parts] = _make(number, part, parts)
        return known


def _make(number: int, part: int, parts: int) -> int:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoSlices(f"GPU {number} cannot be sliced: {error}") from None

    def call(name: str, *arguments: object) -> None:
        function = getattr(driver, name, None)
        code = None if function is None else function(*arguments)
        if code != 0:
            found = "the driver does not have it" if code is None else f"error {code}"
            raise NoSlices(f"GPU {number} cannot be sliced: {name}: {found}")

    device = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), number)
    whole = ctypes.create_string_buffer(RESOURCE_BYTES)
    call("cuDeviceGetDevResource", device, whole, SM_RESOURCE)
    count = ctypes.c_uint.from_buffer(whole, COUNT_OFFSET).value
    each = count // parts // STEP * STEP
    if not each:
        most = count // STEP
        raise NoSlices(f"GPU {number}: found {parts} slices, expected at most {most} of {STEP} SMs")
    groups = ctypes.create_string_buffer(RESOURCE_BYTES * parts)
    made = ctypes.c_uint(parts)
    call("cuDevSmResourceSplitByCount", groups, ctypes.byref(made), whole, None, 0, each)
    if made.value < parts:
        raise NoSlices(f"GPU {number}: found {made.value} groups of {each} SMs, expected {parts}")
    described, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    chosen = ctypes.byref(groups, RESOURCE_BYTES * part)
    call("cuDevResourceGenerateDesc", ctypes.byref(described), chosen, 1)
    call("cuGreenCtxCreate", ctypes.byref(context), described, device, DEFAULT_STREAM)
    call("cuGreenCtxStreamCreate", ctypes.byref(stream), context, NON_BLOCKING, 0)
    return stream.value or 0
