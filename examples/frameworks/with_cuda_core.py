"""An ordinary program on cuda.core, which is built on cuda.bindings: kernels on two streams, an
event, a graph, copies by pinned memory."""

from __future__ import annotations

import numpy
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, launch
from rounds import serve

WORDS, KERNELS, LOOPS = 1 << 20, 10, 1000
SOURCE = """
extern "C" __global__ void step(unsigned *v, unsigned mix, int loops) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, x = v[i] ^ mix;
    for (int n = 0; n < loops; n++) x = (x ^ x >> 7) * 1664525u + 1013904223u;
    v[i] = x;
}
extern "C" __global__ void join(unsigned *v, const unsigned *other) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    v[i] ^= other[i];
}
"""

device = Device()
device.set_current()
first, second = device.create_stream(), device.create_stream()
compiled = Program(SOURCE, "c++").compile("cubin")
step, join = compiled.get_kernel("step"), compiled.get_kernel("join")
config = LaunchConfig(grid=WORDS // 256, block=256)
given = device.allocate(WORDS * 4, stream=first)
other = device.allocate(WORDS * 4, stream=first)
pinned = [LegacyPinnedMemoryResource().allocate(WORDS * 4, stream=first) for _ in range(2)]
host, answer = (numpy.from_dlpack(one).view(numpy.uint32) for one in pinned)
counted = numpy.arange(WORDS, dtype=numpy.uint32)
first.sync()

builder = device.create_graph_builder().begin_building()
for mix in range(KERNELS // 2):
    launch(builder, config, step, given, numpy.uint32(mix), numpy.int32(LOOPS))
graph = builder.end_building().complete()


def work(number: int) -> bytes:
    numpy.add(counted, numpy.uint32(number), out=host)
    given.copy_from(pinned[0], stream=first)
    graph.launch(first)
    other.copy_from(pinned[0], stream=second)
    for mix in range(KERNELS // 2):
        launch(second, config, step, other, numpy.uint32(mix + 7), numpy.int32(LOOPS))
    second.wait(first)
    launch(second, config, join, other, given)
    other.copy_to(pinned[1], stream=second)
    second.sync()
    return bytes(answer[::4096].tobytes())


serve(work)
