"""Transformer inference at a fixed rate: an ordinary PyTorch program that knows nothing of Headway.

Protected from training in another process (torch_training.py) on the same GPU:

    headway run --priority 9 --policy overlap -- python torch_inference.py --graph &
    headway run --priority 1 -- python torch_training.py

Each request copies its input to the GPU, runs the model there and copies the output back; its
latency is the time from the one to the other. Inputs and weights are the same in every
run, and so is the hash of all outputs, whoever else uses the GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

INPUTS = 16
"""So many different requests come over and over."""
SPIN_S = 0.001
"""A sleep may end late: the last bit before a request is due is waited for awake."""


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        mixed = self.mix(self.before(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


def capture(model: nn.Module, x: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The model as one CUDA graph that reads `x`, and what it writes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    return graph, y


def wait_until(due_s: float) -> None:
    left_s = due_s - time.monotonic()
    if left_s > SPIN_S:
        time.sleep(left_s - SPIN_S)
    while time.monotonic() < due_s:
        pass


def measure(
    answer: Callable[[Tensor], Tensor], inputs: list[Tensor], requests: int, period_s: float
) -> dict[str, Any]:
    """Answer so many requests, one per period."""
    found, latencies_ms = hashlib.sha256(), []
    start_s = due_s = time.monotonic()
    for number in range(requests):
        wait_until(due_s)
        since_s = time.monotonic()
        output = answer(inputs[number % INPUTS])
        latencies_ms.append((time.monotonic() - since_s) * 1e3)
        found.update(output.numpy().tobytes())
        due_s = max(due_s + period_s, time.monotonic())
    elapsed_s = time.monotonic() - start_s
    ordered = sorted(latencies_ms)

    def quantile(q: float) -> float:
        return ordered[min(requests - 1, int(q * requests))]

    return {
        "per_s": requests / elapsed_s,
        "p50_ms": quantile(0.5),
        "p99_ms": quantile(0.99),
        "max_ms": ordered[-1],
        "hash": found.hexdigest()[:16],
        "latencies_ms": latencies_ms,
    }


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description="transformer inference at a fixed rate")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--period-ms", type=float, default=20, help="0: one right after the other")
    parser.add_argument("--graph", action="store_true", help="replay a CUDA graph")
    parser.add_argument("--json", action="store_true", help="one line for a program to read")
    parser.add_argument(
        "--told",
        action="store_true",
        help='for each line {"graph": true, "at": TIME}, once more; "requests": N for so many',
    )
    options = parser.parse_args()

    torch.manual_seed(1)
    shape = (options.batch, options.length, options.width)
    with torch.device("cuda"):
        blocks = [Block(options.width, options.heads) for _ in range(options.layers)]
    model = nn.Sequential(*blocks).half().eval()
    inputs = [torch.randn(shape).half().pin_memory() for _ in range(INPUTS)]
    x = inputs[0].cuda()

    def eager(request: Tensor) -> Tensor:
        x.copy_(request, non_blocking=True)
        return model(x)[:, -1].cpu()

    answer = eager
    if options.graph:
        graph, y = capture(model, x)

        def replayed(request: Tensor) -> Tensor:
            x.copy_(request, non_blocking=True)
            graph.replay()
            return y[:, -1].cpu()

        answer = replayed
    for request in inputs:  # the first ones are slow: kernels are loaded, memory is set aside
        eager(request)
        answer(request)
    torch.cuda.synchronize()
    period_s = options.period_ms / 1e3

    if options.told:
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            wish = json.loads(line)
            time.sleep(max(0.0, wish["at"] - time.time()))
            way = answer if wish["graph"] else eager
            requests = wish.get("requests", options.requests)
            print(json.dumps(measure(way, inputs, requests, period_s)), flush=True)
        return
    early_s = float(os.environ.get("START_AT", 0)) - time.time()  # to begin together with others
    time.sleep(max(0.0, early_s))
    said = measure(answer, inputs, options.requests, period_s) | {"early_s": early_s}
    del said["latencies_ms"]
    if options.json:
        print(json.dumps(said))
    else:
        numbers = (f"{key} {said[key]:.2f}" for key in ("p50_ms", "p99_ms", "max_ms"))
        print(", ".join([*numbers, f"hash {said['hash']}"]))


if __name__ == "__main__":
    main()
