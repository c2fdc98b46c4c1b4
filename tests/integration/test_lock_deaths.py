"""Whoever dies at whatever step with tokens and units: the others get what they wait for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headway.live.api.gpu_line import Line
from tests.integration.daemon_client import PATIENCE_S, DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

FATES: dict[str, Callable[[Actor], None]] = {
    "kill -9": lambda actor: actor.kill(),
    "exit": lambda actor: actor.exits(),
    "closes": lambda actor: actor.closes(),
}
HEAD = "[machine]\ncpus = 4\ngpus = 2\n[gpusync]\nrho = 2\naffinity = false\n"
FIFO = HEAD + 'allocator = "kfmlp"\n'
FULL = HEAD + 'allocator = "r2dglp-wc"\nunits = "priority"\n'
"""Four tokens, one request in each queue: whoever comes next donates or overflows."""
PLACES = 4


class Actor:
    """A process with one connection to the lock server, which does what it is told."""

    def __init__(self) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                os.close(theirs[1])
                os.close(ours[0])
                _act(theirs[0], ours[1])
            os._exit(0)
        os.close(theirs[0])
        os.close(ours[1])
        self._told = os.fdopen(theirs[1], "w")
        self._said = os.fdopen(ours[0])

    def do(self, act: str, **words: Any) -> dict[str, Any]:
        self._told.write(json.dumps({"act": act, **words}) + "\n")
        self._told.flush()
        answer: dict[str, Any] = json.loads(self._said.readline())
        return answer

    def granted(self) -> dict[str, Any]:
        """What it waited for."""
        answer = self.do("hear")
        assert answer.get("granted"), answer
        return answer

    def token(self, priority: int = 0) -> dict[str, Any]:
        return self.do("token", name="t", priority=priority)

    def waits_for(self, act: str, **words: Any) -> None:
        assert self.do(act, **words).get("wait")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def exits(self) -> None:
        self._told.write('{"act": "exit"}\n')
        self._told.flush()

    def closes(self) -> None:
        self.do("close")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for pipe in (self._told, self._said):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _act(told: int, said: int) -> None:
    line = Line()
    for text in os.fdopen(told):
        words = json.loads(text)
        if words["act"] == "exit":
            os._exit(0)
        answer: dict[str, Any] | None = {}
        if words["act"] == "close":
            line.close()
        elif words["act"] == "hear":
            answer = line.read(PATIENCE_S)
        else:
            answer = line.ask(**words)
        os.write(said, json.dumps(answer).encode() + b"\n")


@pytest.fixture(scope="module", params=[FIFO, FULL], ids=["fifo", "full"])
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("deaths")
    file = folder / "locks.toml"
    file.write_text(request.param)
    before = os.environ.get("HEADWAY_DIR")
    with running_daemon(folder / "run", "--locks", str(file)) as daemon:
        os.environ["HEADWAY_DIR"] = str(daemon.folder)
        yield daemon
        assert daemon.status()["restarts"] == 0
        assert daemon.log.read_text() == ""
    os.environ.pop("HEADWAY_DIR")
    if before is not None:
        os.environ["HEADWAY_DIR"] = before


@pytest.fixture
def actors() -> Iterator[Callable[[], Actor]]:
    with contextlib.ExitStack() as stack:

        def make() -> Actor:
            actor = Actor()
            stack.callback(actor.end)
            return actor

        yield make


def look(daemon: DaemonProcess) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask(do="lock", act="look")["clusters"][0]
    return found


def on_device(device: int, holders: list[tuple[Actor, int]]) -> Actor:
    """One of the holders whose token is on this device, out of the list."""
    found = next(pair for pair in holders if pair[1] == device)
    holders.remove(found)
    return found[0]


def bring_to(step: str, actors: Callable[[], Actor]) -> tuple[Actor, list[Actor], Actor | None]:
    """The victim at this step, the others who hold a token, and one who waits for what the victim
    has."""
    if step == "holds a token":
        victim, others = actors(), [actors() for _ in range(PLACES - 1)]
        for actor in (victim, *others):
            assert "device" in actor.token(1)
        waiter = actors()
        waiter.waits_for("token", name="t", priority=5)
        return victim, others, waiter
    holders = [(actor, actor.token(1)["device"]) for actor in (actors() for _ in range(PLACES))]
    if step.startswith("waits for a token"):
        victim = actors()
        victim.waits_for("token", name="t", priority=9 if "strong" in step else -1)
        return victim, [actor for actor, _ in holders], None
    victim = on_device(0, holders)
    beside = on_device(0, holders)
    others = [beside, *(actor for actor, _ in holders)]
    if step == "owns a unit":
        victim.do("unit", unit="compute")
        beside.waits_for("unit", unit="compute")
        return victim, others, beside
    if step == "waits for a unit":
        beside.do("unit", unit="compute")
        victim.waits_for("unit", unit="compute")
        beside.do("give back")
        return victim, others, None
    if step == "owns copy engines of both GPUs":
        victim.do("unit", unit="peer", home=1)
        other = next(actor for actor, device in holders if device == 1)
        other.waits_for("unit", unit="d2h")
        return victim, others, other
    assert step == "waits for copy engines of both GPUs"
    beside.do("unit", unit="h2d")
    victim.waits_for("unit", unit="peer", home=1)
    return victim, others, None


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize(
    "step",
    [
        "holds a token",
        "waits for a token, strong",
        "waits for a token, weak",
        "owns a unit",
        "waits for a unit",
        "owns copy engines of both GPUs",
        "waits for copy engines of both GPUs",
    ],
)
def test_the_others_go_on_and_nothing_is_lost(
    daemon: DaemonProcess, actors: Callable[[], Actor], step: str, fate: str
) -> None:
    victim, others, waiter = bring_to(step, actors)
    FATES[fate](victim)
    if waiter is not None:
        waiter.granted()
    for actor in [*others, waiter] if waiter not in others and waiter else others:
        with contextlib.suppress(KeyError):
            actor.do("close")
    wait_until(
        lambda: (
            look(daemon)
            == {
                "devices": [0, 1],
                "queues": [[], [], [], []],
                "waiting": [],
                "unlocked": [],
                "units": {},
            }
        ),
        "everything is free",
    )
    fresh = [actors() for _ in range(PLACES)]
    devices = [actor.token()["device"] for actor in fresh]
    assert sorted(devices) == [0, 0, 1, 1]
    for unit in ("compute", "h2d", "d2h"):
        owners = [fresh[devices.index(device)] for device in (0, 1)]
        for owner in owners:
            assert "wait" not in owner.do("unit", unit=unit)
        for owner in owners:
            owner.do("give back")


def test_a_stopped_owner_keeps_its_unit_and_goes_on_with_it(
    daemon: DaemonProcess, actors: Callable[[], Actor]
) -> None:
    victim, others, waiter = bring_to("owns a unit", actors)
    assert waiter is not None
    os.kill(victim.pid, signal.SIGSTOP)
    (owner,) = look(daemon)["units"].values()
    assert owner == f"t.{victim.pid}"
    os.kill(victim.pid, signal.SIGCONT)
    victim.do("give back")
    waiter.granted()
    for actor in (victim, *others):
        actor.closes()
