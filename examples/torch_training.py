"""Transformer training, as fast as it goes: an ordinary program that knows nothing of Headway.

What torch_inference.py is protected from; it says how. Data, weights and algorithms are the same in
every run, and so is the hash of the first losses, whoever else uses the GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from typing import Any

# Before CUDA starts: matrix products are then the same in every run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.utils.deterministic
from torch import nn
from torch.nn import functional
from torch_inference import Block

WARM_UP = 5
LOOK_EVERY = 10
"""Steps between two looks at the loss, each of which waits for the GPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description="transformer training, as fast as it goes")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--checked", type=int, default=40, help="so many losses make the hash")
    parser.add_argument("--json", action="store_true", help="one line for a program to read")
    parser.add_argument(
        "--told",
        action="store_true",
        help='for each line {"at": TIME}, go on; "seconds": N for so long',
    )
    options = parser.parse_args()

    torch.manual_seed(2)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads such memory
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        blocks = [Block(options.width, options.heads) for _ in range(options.layers)]
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shape = (options.batch, options.length, options.width)
    data = [torch.randn((2, *shape), device="cuda") for _ in range(4)]
    losses: list[torch.Tensor] = []

    def step(number: int) -> None:
        x, wanted = data[number % len(data)]
        optimizer.zero_grad(set_to_none=True)  # first: else memory is in more and more pieces
        loss = functional.mse_loss(model(x), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())  # mse_loss's own has the storage of what it averaged
        if number % LOOK_EVERY == 0:
            loss.item()

    def train(seconds: float) -> dict[str, Any]:
        """Go on for so long; the hash is of the first losses of all."""
        before, start_s = len(losses), time.monotonic()
        while time.monotonic() - start_s < seconds:
            step(len(losses))
        torch.cuda.synchronize()
        per_s = (len(losses) - before) / (time.monotonic() - start_s)
        first = torch.stack(losses[: options.checked]).cpu().numpy().tobytes()
        enough = len(losses) >= options.checked
        found = hashlib.sha256(first).hexdigest()[:16] if enough else "too few"
        taken = torch.cuda.memory_reserved() / 2**30
        return {"per_s": per_s, "loss": float(losses[-1]), "hash": found, "memory_gib": taken}

    for number in range(WARM_UP):
        step(number)
    torch.cuda.synchronize()
    if options.told:
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            wish = json.loads(line)
            time.sleep(max(0.0, wish["at"] - time.time()))
            print(json.dumps(train(wish.get("seconds", options.seconds))), flush=True)
        return
    early_s = float(os.environ.get("START_AT", 0)) - time.time()  # to begin together with others
    time.sleep(max(0.0, early_s))
    said = train(options.seconds) | {"early_s": early_s}
    if options.json:
        print(json.dumps(said))
    else:
        print(f"{said['per_s']:.1f} steps/s, loss {said['loss']:.4f}, hash {said['hash']}")


if __name__ == "__main__":
    main()
