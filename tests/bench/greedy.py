"""Greedy programs on a GPU that runs one piece of work after the other, in virtual time: what the
daemon's books come to over many periods, without the noise of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from headway.engine.reserves import ReserveSpec
from headway.live.gate.channel import Channel
from tests.bench.gate import MS
from tests.bench.turns import TurnBench, is_leased, is_wanted

WAKE_NS = 50_000
"""From a grant to the first launch."""


@dataclass
class Program:
    """Launches piece after piece, and waits for all of them after each job."""

    channel: Channel
    piece_ns: int
    pieces: int
    """In a job."""
    done_ns: int | None = None
    """When its piece on the GPU is done."""
    wakes_ns: int | None = None
    launched: int = 0
    ran_ns: int = 0

    def next_ns(self) -> int | None:
        return min((t for t in (self.done_ns, self.wakes_ns) if t is not None), default=None)


class Gpu:
    """A bench whose programs run by themselves."""

    def __init__(self, bench: TurnBench | None = None) -> None:
        self.bench = bench or TurnBench()
        self.programs: list[Program] = []
        self.now_ns = 0
        self.busy_ns = 0
        self._free_ns = 0

    def add(self, name: str, percent: int, piece_ns: int, *, at_ns: int = 0) -> Program:
        """With so many percent of every 100 ms."""
        self.run_until(at_ns)
        spec = ReserveSpec("pe", percent * MS, 100 * MS, name, predict="history")
        channel = self.bench.turner(name, reserve=spec, at_ns=at_ns)
        program = Program(channel, piece_ns, max(1, 10 * MS // piece_ns))
        self.programs.append(program)
        self._ask(program)
        return program

    def run_until(self, end_ns: int) -> None:
        while True:
            times = [p.next_ns() for p in self.programs] + [self.bench.arbiter.next_timer_ns()]
            due_ns = min((t for t in times if t is not None), default=end_ns + 1)
            if due_ns > end_ns:
                self.now_ns = end_ns
                return
            self.now_ns = max(self.now_ns, due_ns)
            for program in self.programs:
                self._step(program)
            timer_ns = self.bench.arbiter.next_timer_ns()
            if timer_ns is not None and timer_ns <= self.now_ns:
                self.bench.arbiter.tick(self.now_ns)
            for program in self.programs:
                self._wake(program)

    def _step(self, program: Program) -> None:
        bench, channel = self.bench, program.channel
        if program.wakes_ns is not None and program.wakes_ns <= self.now_ns:
            program.wakes_ns = None
            self._go_on(program)
        if program.done_ns is not None and program.done_ns <= self.now_ns:
            program.done_ns = None
            program.ran_ns += program.piece_ns
            assert channel.pages is not None
            bench.write(channel, "used_ns", channel.pages.used_ns + program.piece_ns)
            bench.mark(channel, program.launched, program.launched)
            if program.launched % program.pieces == 0:
                bench.idle(channel)
                bench.write(channel, "last_ns", self.now_ns)
                if is_wanted(channel) or not is_leased(channel):
                    bench.rest(channel, self.now_ns)
            self._go_on(program)

    def _go_on(self, program: Program) -> None:
        channel = program.channel
        if is_leased(channel):
            self._launch(program)
        else:
            if channel.pages is not None and channel.pages.busy:
                self.bench.rest(channel, self.now_ns, last=False)
            self._ask(program)

    def _launch(self, program: Program) -> None:
        program.launched += 1
        self.bench.work(program.channel)
        self.bench.mark(program.channel, program.launched, program.launched - 1)
        start_ns = max(self.now_ns, self._free_ns)
        program.done_ns = self._free_ns = start_ns + program.piece_ns

    def _ask(self, program: Program) -> None:
        self.bench.ask(program.channel, self.now_ns)
        self._wake(program)

    def _wake(self, program: Program) -> None:
        """It was granted what it asked for."""
        if program.next_ns() is None and is_leased(program.channel):
            program.wakes_ns = self.now_ns + WAKE_NS
