"""headway.share(): work of a block goes to a green context as large as the program's share now.

PyTorch and cuda.core are played by objects with the functions that their documents describe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

import headway
from headway.live.api import shares, tasks

SMS = 132


class Stream:
    """A stream, which says who it waited for."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def wait_stream(self, other: Stream) -> None:
        self._log.append(f"{self.name} waits for {other.name}")


class FakeTorch:
    """PyTorch: of 2.10, or with streams of green contexts as of 2.12."""

    def __init__(self, *, streams: bool) -> None:
        self.log: list[str] = []
        self.current = Stream("default", self.log)
        fake = self

        class Green:
            def __init__(self, sms: int) -> None:
                self.sms = sms
                if streams:
                    self.Stream = lambda: Stream(f"green {sms}", fake.log)

            @staticmethod
            def create(*, num_sms: int, device_id: int) -> Green:
                fake.log.append(f"makes {num_sms} on {device_id}")
                return Green(num_sms)

            def set_context(self) -> None:
                fake.log.append(f"to {self.sms}")

            def pop_context(self) -> None:
                fake.log.append(f"from {self.sms}")

        self.module = ModuleType("torch")
        self.module.__dict__["__version__"] = "2.12"
        self.module.__dict__["cuda"] = SimpleNamespace(
            green_contexts=SimpleNamespace(GreenContext=Green),
            get_device_properties=lambda device: SimpleNamespace(multi_processor_count=SMS),
            current_stream=lambda device: self.current,
            stream=self._stream,
        )

    @contextlib.contextmanager
    def _stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The share that the daemon tells, which tests change."""
    now = [1000]
    monkeypatch.setattr(tasks, "told_share", lambda: now[-1])
    monkeypatch.setattr(shares, "_greens", {})
    return now


def with_torch(monkeypatch: pytest.MonkeyPatch, *, streams: bool = True) -> FakeTorch:
    fake = FakeTorch(streams=streams)
    monkeypatch.setitem(sys.modules, "torch", fake.module)
    return fake


def test_a_block_runs_on_a_stream_of_the_share_and_in_order_with_the_work_around_it(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = with_torch(monkeypatch)
    told.append(250)
    with headway.share() as part:
        assert torch.current is part.stream
        assert (part.multiprocessors, part.share) == (32, 32 / SMS)
        torch.log.append("work")
    assert torch.current.name == "default"
    order = ["makes 32 on 0", "green 32 waits for default", "work", "default waits for green 32"]
    assert torch.log == order


def test_a_green_context_is_made_once_for_each_size(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = with_torch(monkeypatch, streams=False)
    block = headway.share(device=1)
    for permille in (250, 500, 250, 1000, 500):
        told.append(permille)
        with block:
            pass
    made = [line for line in torch.log if line.startswith("makes")]
    assert made == ["makes 32 on 1", "makes 64 on 1"]
    assert torch.log.count("to 32") == torch.log.count("from 32") == 2


@pytest.mark.parametrize(("permille", "sms"), [(1, 8), (10, 8), (121, 8), (122, 16), (999, 128)])
def test_a_share_is_rounded_down_to_what_can_be_made(
    permille: int, sms: int, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_torch(monkeypatch)
    told.append(permille)
    with headway.share() as part:
        assert part.multiprocessors == sms


def test_with_all_of_them_or_without_a_daemon_nothing_is_made(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = with_torch(monkeypatch)
    with headway.share() as part:
        assert (part.share, part.multiprocessors, part.stream) == (1.0, None, None)
    assert not torch.log


def test_an_error_in_a_block_goes_out_and_the_block_ends(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = with_torch(monkeypatch, streams=False)
    told.append(500)
    with pytest.raises(KeyError), headway.share(), headway.share():
        raise KeyError
    assert torch.log[1:] == ["to 64", "to 64", "from 64", "from 64"]


def test_cuda_cores_stream_is_given_to_the_program(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def split(options: Any) -> tuple[list[str], str]:
        return [f"group of {options.count}"], "the rest"

    sm = SimpleNamespace(sm_count=SMS, split=split)
    device = SimpleNamespace(
        resources=SimpleNamespace(sm=sm),
        create_context=lambda options: SimpleNamespace(
            create_stream=lambda: f"stream of {options.resources[0]}"
        ),
    )
    core = ModuleType("cuda.core")
    core.__dict__.update(
        Device=lambda number: device,
        SMResourceOptions=lambda count: SimpleNamespace(count=count),
        ContextOptions=lambda resources: SimpleNamespace(resources=resources),
    )
    package = ModuleType("cuda")
    package.__dict__["core"] = core
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    told.append(500)
    with headway.share(on="cuda.core") as part:
        assert part.stream == "stream of group of 64"


def test_what_is_wrong_is_one_line_that_says_what_was_expected(
    told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "cuda.core"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ValueError, match=r"neither torch nor cuda\.core is imported"):
        headway.share()
    with pytest.raises(ValueError, match=r"on: found 'jax', expected one of torch, cuda\.core"):
        headway.share(on="jax")
    with pytest.raises(ValueError, match="device: found -1, expected a number such as 0"):
        headway.share(device=-1)
    torch = with_torch(monkeypatch)
    del torch.module.__dict__["cuda"].green_contexts
    with pytest.raises(ValueError, match=r"has no green contexts; 2\.10 and newer"):
        headway.share()


def test_in_a_program_without_the_interposer_its_tasks_connection_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADWAY_SOCKET", raising=False)
    tasks._interposer.cache_clear()
    assert tasks.told_share() == 1000
    token = tasks._own.set(cast(Any, (SimpleNamespace(share=370),)))
    assert tasks.told_share() == 370
    tasks._own.reset(token)
