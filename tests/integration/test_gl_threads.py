"""Threads of GL programs that end in all ways: nothing of them is left at the daemon, nor in the
program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.integration import gl
from tests.integration.cuda import Program
from tests.integration.gl import Stage, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

Start = Callable[..., Program]


@pytest.fixture
def start(stage: Stage) -> Iterator[Start]:
    """Start `ends` under Headway, with these options."""
    programs: list[Program] = []

    def start(*options: str) -> Program:
        prefix = [gl.HEADWAY, "run", "-q", "--software-gpu", "--name", "ends", *options, "--"]
        process = subprocess.Popen(
            [*prefix, str(stage.built / "ends")],
            env=stage.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        programs.append(Program(process, "ends"))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()
        assert program.process.stdin is not None
        assert program.process.stdout is not None
        program.process.stdin.close()
        program.process.stdout.close()


def test_a_thread_that_ends_with_its_context_current_leaves_no_connection(
    stage: Stage, start: Start
) -> None:
    program = start()
    drawn = program.do("draw")
    for _ in range(5):
        assert program.do("thread") == ["ended"]
    wait_until(lambda: len(stage.channels("ends")) == 1, "only the first thread's channel")
    assert program.do("destroy", "draw") == ["destroyed", *drawn]
    assert len(stage.channels("ends")) == 1


def test_a_thread_that_is_cancelled_at_the_gate_leaves_it(stage: Stage, start: Start) -> None:
    """It waits behind somebody more important; the program's other thread goes on."""
    program = start("--priority", "1")
    drawn = program.do("draw")
    stage.start(str(stage.built / "bomb"), "60", options=["--name", "bomb", "--priority", "9"])
    wait_until(lambda: stage.is_managed("bomb"), "the bomb at the gate")
    assert program.do("begin") == ["begun"]

    def waits() -> bool:
        return any(c["state"] == "waiting" for c in stage.channels("ends"))

    wait_until(waits, "the thread at the gate")
    assert program.do("cancel") == ["cancelled"]
    wait_until(lambda: not waits(), "nobody waits for a thread that is gone")
    stage.stop_programs()
    assert program.do("draw") == drawn
    assert len(stage.channels("ends")) == 1
