"""`headway.share()`: a Python program keeps to its share of the multiprocessors by itself, on the
green contexts of PyTorch or cuda.core.

Under `headway run` the interposer confines launches without the program's help, but not its graphs,
nor what a program does in green contexts of its own. In a program without the interposer nobody
confines anything. There a block of `headway.share()` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol

from headway.engine.shares import WHOLE_PERMILLE
from headway.live.api import tasks

STEP = 8
"""Multiprocessors: green contexts are made in steps of so many on the GPUs that have the largest
(compute capability 9.0); smaller ones take these as well."""


@dataclass(frozen=True, slots=True)
class Part:
    """What the work of a block may use."""

    share: float
    """Of the device: 1.0 is all of it."""
    multiprocessors: int | None = None
    """None: all of them, or nobody knows."""
    stream: Any = None
    """The stream for the block's work; None: any. PyTorch's current one is this one already."""


class Maker(Protocol):
    """A framework that makes green contexts."""

    def count(self, device: int) -> int:
        """How many multiprocessors the device has."""

    def make(self, device: int, multiprocessors: int) -> Any:
        """A green context of so many."""

    def enter(self, green: Any, device: int, ends: ExitStack) -> Any:
        """Have the work that follows be there, until `ends` is closed: its stream."""


class Share:
    """`with headway.share() as part:`; as often as wanted."""

    def __init__(self, device: int, maker: Maker, told: Callable[[], int]) -> None:
        self._device, self._maker, self._told = device, maker, told
        self._ends: list[ExitStack] = []

    def __enter__(self) -> Part:
        told = self._told()
        with ExitStack() as ends:
            part = self._part(told, ends) if told < WHOLE_PERMILLE else Part(1.0)
            self._ends.append(ends.pop_all())
        return part

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        where: TracebackType | None = None,
    ) -> None:
        self._ends.pop().close()

    def _part(self, told: int, ends: ExitStack) -> Part:
        maker, device = self._maker, self._device
        whole = maker.count(device)
        wanted = max(STEP, whole * told // WHOLE_PERMILLE // STEP * STEP)
        if wanted >= whole:
            return Part(1.0)
        key = type(maker), device, wanted
        if key not in _greens:
            _greens[key] = maker.make(device, wanted)
        return Part(wanted / whole, wanted, maker.enter(_greens[key], device, ends))


_greens: dict[tuple[type, int, int], Any] = {}
"""Green contexts, each made once: that takes a millisecond, and there are few sizes."""


def share(device: int = 0, *, on: str | None = None) -> Share:
    """Within this block, GPU work goes to as many multiprocessors as this program may use now.

    `on`: "torch" or "cuda.core", whose green contexts are used; without it whichever of the two the
    program has imported. The block's `part.stream` is the stream to launch on; in PyTorch it is the
    current one already. What a program may use is looked up when a block begins.
    """
    if type(device) is not int or device < 0:
        raise ValueError(f"headway.share: device: found {device!r}, expected a number such as 0")
    if on is not None and on not in MAKERS:
        raise ValueError(f"headway.share: on: found {on!r}, expected one of {', '.join(MAKERS)}")
    found = [on] if on else [name for name in MAKERS if name in sys.modules]
    if not found:
        raise ValueError(
            "headway.share: neither torch nor cuda.core is imported; import one first, or say"
            ' which is meant, as in headway.share(on="torch")'
        )
    return Share(device, MAKERS[found[0]](), tasks.told_share)


class Torch:
    """PyTorch 2.10 and newer."""

    def __init__(self) -> None:
        torch: Any = import_module("torch")
        self._cuda: Any = torch.cuda
        if not hasattr(self._cuda, "green_contexts"):
            raise ValueError(
                f"headway.share: this PyTorch ({torch.__version__}) has no green contexts; 2.10 and"
                " newer have them"
            )

    def count(self, device: int) -> int:
        return int(self._cuda.get_device_properties(device).multi_processor_count)

    def make(self, device: int, multiprocessors: int) -> Any:
        kind = self._cuda.green_contexts.GreenContext
        return kind.create(num_sms=multiprocessors, device_id=device)

    def enter(self, green: Any, device: int, ends: ExitStack) -> Any:
        if not hasattr(green, "Stream"):  # 2.10: it orders the work itself
            green.set_context()
            ends.callback(green.pop_context)
            return self._cuda.current_stream(device)
        before = self._cuda.current_stream(device)
        stream = green.Stream()
        stream.wait_stream(before)
        ends.callback(before.wait_stream, stream)
        ends.enter_context(self._cuda.stream(stream))
        return stream


class CudaCore:
    """cuda.core 1.0 and newer. The program orders the stream's work among others, as always."""

    def __init__(self) -> None:
        self._core: Any
        core = self._core = import_module("cuda.core")
        if not hasattr(core, "SMResourceOptions"):
            raise ValueError(
                "headway.share: this cuda.core has no green contexts; 1.0 and newer have them"
            )

    def count(self, device: int) -> int:
        return int(self._core.Device(device).resources.sm.sm_count)

    def make(self, device: int, multiprocessors: int) -> Any:
        there = self._core.Device(device)
        options = self._core.SMResourceOptions(count=multiprocessors)
        groups, _ = there.resources.sm.split(options)
        context = there.create_context(self._core.ContextOptions(resources=[groups[0]]))
        return context.create_stream()

    def enter(self, green: Any, device: int, ends: ExitStack) -> Any:
        return green


MAKERS: dict[str, Callable[[], Maker]] = {"torch": Torch, "cuda.core": CudaCore}
