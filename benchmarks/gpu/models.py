"""The two PyTorch programs of examples/, and the sizes they are measured with.

On an H200 inference with a CUDA graph then takes about 1.1 ms and a training step 28 ms, or 33 ms
as it is beside inference. A CPU there needs 24 to 45 ms to send a step of twelve layers, by the
minute and whatever is in it. So beside inference, where it is the GPU that is shared, training has
half as many layers that are twice as wide: the GPU has as much to do, and the CPU half.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PERIOD_MS = 20
INFERENCE = {"layers": 12, "width": 1024, "batch": 8, "length": 128}
TRAINING = {"layers": 12, "width": 1024, "batch": 16, "length": 256}
BESIDE = {"layers": 6, "width": 2048, "heads": 32, "batch": 12, "length": 256}
TOLD = "--told"
"""Do it once more for each line of input."""
CHECKED_STEPS = 40
"""How many steps' losses are compared: so many are done in the shortest run."""
TOO_FEW = "too few"
"""The hash of fewer."""


def _command(program: str, sizes: dict[str, int], **options: object) -> list[str]:
    given = [f"--{key.replace('_', '-')}={value}" for key, value in {**sizes, **options}.items()]
    return [sys.executable, str(EXAMPLES / program), "--json", *given]


def inference(requests: int, *, graph: bool, period_ms: float = PERIOD_MS) -> list[str]:
    command = _command("torch_inference.py", INFERENCE, requests=requests, period_ms=period_ms)
    return [*command, *(["--graph"] if graph else [])]


def training(seconds: float, sizes: dict[str, int] = TRAINING) -> list[str]:
    return _command("torch_training.py", sizes, seconds=seconds, checked=CHECKED_STEPS)


@dataclass(frozen=True)
class Throughput:
    """A program that does its work again and again, as fast as it goes."""

    command: list[str]
    short: dict[str, float]
    """What makes a short round."""
    generations: int
    """Of processes that it takes to see 1 %."""


def throughput() -> dict[str, Throughput]:
    """Processes that infer differ by some per cent, for it is their CPU that counts."""
    infer, train = inference(100, graph=False, period_ms=0), training(2.5)
    return {
        "PyTorch inference, eager": Throughput([*infer, TOLD], {"requests": 15}, 12),
        "PyTorch training": Throughput([*train, TOLD], {"seconds": 0.1}, 5),
    }


def described() -> str:
    def sizes(of: dict[str, int]) -> str:
        return ", ".join(f"{key} {value}" for key, value in of.items())

    return f"Inference: {sizes(INFERENCE)}, half precision. Training: {sizes(BESIDE)}."
