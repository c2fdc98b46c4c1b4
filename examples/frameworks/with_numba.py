"""An ordinary Numba program: kernels on two streams, an event, copies by pinned memory."""

from __future__ import annotations

import numpy
from numba import cuda
from rounds import serve

WORDS, KERNELS, LOOPS = 1 << 20, 10, 1000
BLOCKS, THREADS = WORDS // 256, 256


@cuda.jit
def step(values, mix, loops):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < values.size:
        x = values[i] ^ mix
        for _ in range(loops):
            x = numpy.uint32((x ^ (x >> numpy.uint32(7))) * numpy.uint32(1664525))
            x = numpy.uint32(x + numpy.uint32(1013904223))
        values[i] = x


@cuda.jit
def join(values, others):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < values.size:
        values[i] ^= others[i]


first, second = cuda.stream(), cuda.stream()
ready = cuda.event()
host = cuda.pinned_array(WORDS, dtype=numpy.uint32)
answer = cuda.pinned_array(WORDS, dtype=numpy.uint32)
given = cuda.device_array(WORDS, dtype=numpy.uint32)
other = cuda.device_array(WORDS, dtype=numpy.uint32)
counted = numpy.arange(WORDS, dtype=numpy.uint32)


def work(number: int) -> bytes:
    numpy.add(counted, numpy.uint32(number), out=host)
    given.copy_to_device(host, stream=first)
    other.copy_to_device(host, stream=second)
    for mix in range(KERNELS // 2):
        step[BLOCKS, THREADS, first](given, numpy.uint32(mix), LOOPS)
        step[BLOCKS, THREADS, second](other, numpy.uint32(mix + 7), LOOPS)
    ready.record(first)
    ready.wait(second)
    join[BLOCKS, THREADS, second](other, given)
    other.copy_to_host(answer, stream=second)
    second.synchronize()
    return answer[::4096].tobytes()


serve(work)
