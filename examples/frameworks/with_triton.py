"""An ordinary Triton program: its kernels on two of PyTorch's streams, and as a CUDA graph."""

import torch
import triton
import triton.language as tl
from rounds import serve

WORDS, KERNELS, LOOPS, BLOCK = 1 << 20, 10, 1000, 1024
GRID = (WORDS // BLOCK,)


@triton.jit
def step(values, mix, loops, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(values + at) ^ mix
    for _ in range(loops):
        x = (x ^ (x >> 7)) * 1664525 + 1013904223
    tl.store(values + at, x)


first, second = torch.cuda.Stream(), torch.cuda.Stream()
given = torch.zeros(WORDS, dtype=torch.int32, device="cuda")
other = torch.zeros(WORDS, dtype=torch.int32, device="cuda")
counted = torch.arange(WORDS, dtype=torch.int32)
host = torch.zeros(WORDS, dtype=torch.int32).pin_memory()


def chain() -> None:
    for mix in range(2, 2 + KERNELS // 2):  # a kernel for 0 or 1 would be another one
        step[GRID](given, mix, LOOPS, BLOCK)


with torch.cuda.stream(first):
    chain()  # once before it is recorded: it is compiled now
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    chain()


def work(number: int) -> bytes:
    torch.add(counted, number, out=host)
    with torch.cuda.stream(first):
        given.copy_(host, non_blocking=True)
        graph.replay()
    with torch.cuda.stream(second):
        other.fill_(number)
        for mix in range(2, 2 + KERNELS // 2):
            step[GRID](other, mix, LOOPS, BLOCK)
        second.wait_stream(first)
        answer = (given ^ other)[::4096].cpu()
    return bytes(answer.numpy().tobytes())


serve(work)
