"""An ordinary PyTorch program: products and element-wise work on two streams; --compile: compiled.

Compiled code runs as CUDA graphs ("reduce-overhead"). What it computes is compared with nothing but
other runs of the same kind.
"""

from __future__ import annotations

import os
import sys

# Before CUDA starts: matrix products are then the same in every run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.utils.deterministic
from rounds import serve
from torch import Tensor

SIZE, LAYERS = 1024, 8
COMPILED = "--compile" in sys.argv
if COMPILED:
    sys.argv.remove("--compile")


def layers(x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = torch.sigmoid(x @ weight) * x + 0.5
    return x


torch.manual_seed(3)
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads such memory
forward = torch.compile(layers, mode="reduce-overhead") if COMPILED else layers
weights = [torch.randn((SIZE, SIZE), device="cuda").half() / 32 for _ in range(LAYERS)]
inputs = [torch.randn((SIZE, SIZE)).half().pin_memory() for _ in range(4)]
second = torch.cuda.Stream()


@torch.inference_mode()
def work(number: int) -> bytes:
    x = inputs[number % len(inputs)].cuda(non_blocking=True)
    with torch.cuda.stream(second):
        other = torch.arange(SIZE, dtype=torch.float32, device="cuda") * number
    y = forward(x, weights)
    torch.cuda.current_stream().wait_stream(second)
    return bytes((y[0].float() + other).cpu().numpy().tobytes())


serve(work)
