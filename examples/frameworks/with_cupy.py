"""An ordinary CuPy program: kernels on two streams, a graph, copies by pinned memory.

headway run --priority 9 --policy overlap -- python examples/frameworks/with_cupy.py
"""

from __future__ import annotations

import cupy
import numpy
from rounds import serve

WORDS, KERNELS, LOOPS = 1 << 20, 10, 1000
SOURCE = """
extern "C" __global__ void step(unsigned *v, unsigned mix, int loops) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = v[i] ^ mix;
    for (int n = 0; n < loops; n++) x = (x ^ x >> 7) * 1664525u + 1013904223u;
    v[i] = x;
}
"""
GRID, BLOCK = (WORDS // 256,), (256,)

step = cupy.RawKernel(SOURCE, "step")
first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
given = cupy.zeros(WORDS, dtype=cupy.uint32)
other = cupy.zeros(WORDS, dtype=cupy.uint32)
total = cupy.zeros(WORDS, dtype=cupy.uint32)
pinned = cupy.cuda.alloc_pinned_memory(WORDS * 4)
host = numpy.frombuffer(pinned, dtype=numpy.uint32, count=WORDS)
counted = numpy.arange(WORDS, dtype=numpy.uint32)
cupy.cuda.Device().synchronize()


def chain() -> None:
    for number in range(KERNELS // 2):
        step(GRID, BLOCK, (given, numpy.uint32(number), numpy.int32(LOOPS)))


with first:
    chain()  # once before it is recorded: it is compiled now
    first.synchronize()
    first.begin_capture()
    chain()
    graph = first.end_capture()


def work(number: int) -> bytes:
    numpy.add(counted, numpy.uint32(number), out=host)
    with first:
        given.set(host, stream=first)
        graph.launch(stream=first)
    with second:
        other.fill(number)
        for mix in range(KERNELS // 2):
            step(GRID, BLOCK, (other, numpy.uint32(mix), numpy.int32(LOOPS)))
        second.wait_event(first.record())
        cupy.bitwise_xor(given, other, out=total)
        answer = total[::4096].get(stream=second)
    second.synchronize()
    return bytes(answer.tobytes())


serve(work)
