"""Important programs and those beside them. Nobody tuned a program, or Headway, for another."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks.gpu.building import ROOT
from benchmarks.gpu.stage import Stage

WORK = ROOT / "examples" / "ordinary" / "work.py"
PLAIN = "plain:"
"""A kind of plain.cu's rather than a workload of work.py's."""


@dataclass(frozen=True)
class Actor:
    """A program, and how its jobs arrive; without a period it is greedy."""

    workload: str
    period_ms: float = 0
    poisson: bool = False

    def command(self, stage: Stage) -> list[str]:
        if self.workload.startswith(PLAIN):
            return stage.program("plain", self.workload.removeprefix(PLAIN))
        return [sys.executable, str(WORK), self.workload]

    def told(self, at: float, seconds: float, seed: int) -> str:
        return f"{at:.6f} {seconds} {self.period_ms} {int(self.poisson)} {seed}"


@dataclass(frozen=True)
class Case:
    """Actors that share a GPU: those of `important` at priority 9, the others at 1."""

    name: str
    important: tuple[Actor, ...]
    others: tuple[Actor, ...]
    bound_by: str
    """What the first important program is bound by when it is alone: "gpu" or "cpu"."""


TRAIN = Actor("training")
CASES = (
    Case("detection", (Actor("detection", 40),), (TRAIN,), "cpu"),
    Case("segmentation", (Actor("segmentation", 33),), (TRAIN,), "cpu"),
    Case("decoding", (Actor("decoding", 120),), (TRAIN,), "cpu"),
    Case("encoder, eager", (Actor("encoding", 25),), (TRAIN,), "cpu"),
    Case("encoder, compiled", (Actor("encoding_compiled", 20),), (TRAIN,), "cpu"),
    Case("encoder, graph", (Actor("encoding_graph", 20),), (TRAIN,), "gpu"),
    Case("diffusion", (Actor("diffusion", 33),), (TRAIN,), "cpu"),
    Case("FFT, CuPy", (Actor("fourier", 15),), (Actor("multiplying"),), "gpu"),
    Case("layers, JAX", (Actor("jax_layers", 15),), (TRAIN,), "gpu"),
    Case("softmax, Triton", (Actor("triton_softmax", 15),), (Actor("diffusion"),), "gpu"),
    Case(
        "Poisson, short kernels",
        (Actor("plain:short", 12, True),),
        (Actor("plain:short"),),
        "gpu",
    ),
    Case("Poisson, mixed", (Actor("plain:short", 12, True),), (Actor("plain:mixed"),), "gpu"),
    Case("several streams", (Actor("plain:streams", 10),), (Actor("plain:copies"),), "gpu"),
    Case("graph, long kernels", (Actor("encoding_graph", 20),), (Actor("plain:long"),), "gpu"),
    Case(
        "graph, four greedy",
        (Actor("encoding_graph", 20),),
        (TRAIN, Actor("multiplying"), Actor("plain:short"), Actor("plain:copies")),
        "gpu",
    ),
    Case(
        "two important",
        (Actor("encoding_graph", 20), Actor("detection", 50)),
        (TRAIN,),
        "gpu",
    ),
)
