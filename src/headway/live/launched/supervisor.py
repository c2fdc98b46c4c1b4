"""The supervisor of launched programs: one loop over their stderr, their ends and the daemon.

It hears from the programs what became of their jobs, tells the daemon, hears from the daemon which
share each is to have, and restarts programs for that. Everything happens in the thread that calls
`run`; others hand it work with `call`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from headway.engine.shares import Range, percent
from headway.live.api import client
from headway.live.launched import processes
from headway.live.launched.environment import Environment
from headway.live.launched.guardian import Guardian
from headway.live.launched.link import Link
from headway.live.launched.program import PATIENCE_S, Program, StartError, State

T = TypeVar("T")
LOOK_S = 0.05
"""How often programs that are asked to end are looked at, and how long a word that no end of a line
follows is held back."""
LEFT_S = 0.5
"""The same for what a program that has ended left behind, and for a daemon that is gone."""
READY = 2
"""A program that was started less than so many times a launcher's patience ago may have yet to set
its handler for SIGINT: large frameworks load for seconds."""
MOST_UNTOLD = 10_000
"""Jobs of a program of which the daemon has not heard yet: beyond that its stderr is not read, so
it waits."""
IN_ONE = 1000


class TaskError(ValueError):
    """What a person wants of tasks cannot be done; one line."""


class Supervisor:
    """The programs of one launcher."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        forward: Callable[[bytes], None],
        environment: Environment,
        stdin: int = subprocess.DEVNULL,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`say` hears a line for the person, `forward` what programs write to stderr."""
        self._patience_s = patience_s
        self._folder = folder
        self._say = say
        self._forward = forward
        self._environment = environment
        self._stdin = stdin
        self.programs: dict[str, Program] = {}
        self._untold: dict[Program, str] = {}
        self._quiet_s: dict[Program, float] = {}
        """When those whose words are held back were read last."""
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._link: Link | None = None
        self._linked_s = 0.0
        self._ends = False
        processes.adopt()
        self._family = f"{os.getpid()}.{time.monotonic_ns()}"
        self._started = 0
        self._buried_s = 0.0
        self._guardian = Guardian(self._family, patience_s)

    # -- what a person wants -----------------------------------------------------------------

    def call(self, work: Callable[[], T]) -> T:
        """Have the supervisor's thread do something, and wait for it."""
        done: Future[T] = Future()

        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self.post(do)
        return done.result()

    def post(self, work: Callable[[], None]) -> None:
        """The same without waiting, as signal handlers must."""
        self._work.put(work)
        os.eventfd_write(self._wake, 1)

    def launch(
        self, name: str, priority: int, shares: Range | None, path: str, command: Sequence[str]
    ) -> Program:
        """Start a program and have it share the GPU. TaskError, StartError."""
        if name in self.programs:
            raise TaskError(f"a task is called {name!r} already: choose another with --name")
        make = self._environment.maker(name, priority, path)
        self._started += 1
        mark = f"{self._family}.{self._started}"
        program = Program(name, priority, shares, path, command, self._patience_s, make, mark)
        if shares is not None:
            program.wanted = shares.most
        self._join(program)
        try:
            self._start(program)
        except StartError:
            self._tell("leave", program)
            raise
        self.programs[name] = program
        self._watch(program)
        return program

    def end(self, name: str, *, force: bool = False) -> None:
        """Ask a program to end; with `force` it is killed."""
        program = self._named(name)
        program.goes_on = False
        if force:
            program.kill()
        elif program.state is not State.ENDS:
            program.ask_to_end()

    def set(self, name: str, priority: int | None, shares: str | None) -> None:
        """Change a program while it runs."""
        program = self._named(name)
        if self._link is None:
            raise TaskError("no daemon answers, so nothing decides on shares")
        try:
            words = {"priority": priority, "share": shares}
            self._link.ask(act="set", task=name, **words)
        except client.Refused as error:
            raise TaskError(str(error)) from None
        except client.NoDaemon as error:
            self._lost(error)
            raise TaskError(str(error)) from None
        if priority is not None:
            program.priority = priority

    def _named(self, name: str) -> Program:
        program = self.programs.get(name)
        if program is None:
            known = ", ".join(self.programs) or "none"
            raise TaskError(f"no task is called {name!r}; there are: {known}")
        return program

    def everybody(self) -> dict[str, Any]:
        """What the daemon says of all launched programs, this launcher's and others'."""
        if self._link is None:
            self._connect()
        if self._link is None:
            return {"controller": "none: no daemon", "tasks": []}
        try:
            return self._link.ask(act="look")
        except client.NoDaemon as error:
            self._lost(error)
            return {"controller": "none: no daemon", "tasks": []}

    def end_all(self) -> None:
        """Ask everybody to end; `run` returns when they have, or are left alone."""
        self._ends = True
        for name in list(self.programs):
            self.end(name)

    # -- the loop ----------------------------------------------------------------------------

    def run(self, *, until_idle: bool) -> None:
        """Serve until `end_all` is done, or, with `until_idle`, the last program has ended."""
        while True:
            left = [p for p in self.programs.values() if p.state is not State.LEFT]
            if not left and (self._ends or (until_idle and not self.programs)):
                break
            if until_idle and not left:
                break
            self._turn()
        if self._link is not None:
            self._link.close()
            self._link = None
        self._guardian.dismiss()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._look_s()):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            elif isinstance(key.data, Program):
                self._read(key.data)
        while not self._work.empty():
            self._work.get()()
        now_s = time.monotonic()
        self._hear(now_s)
        if now_s - self._buried_s >= LEFT_S:
            self._buried_s = now_s
            processes.bury({program.pid for program in self.programs.values()})
        for program, read_s in list(self._quiet_s.items()):
            if now_s - read_s >= LOOK_S and program.stderr in self._selector.get_map():
                del self._quiet_s[program]
                self._heard(program, *program.pause())
        for program in list(self.programs.values()):
            self._look(program, now_s)
            self._tell_jobs(program)

    def _look_s(self) -> float | None:
        programs = self.programs.values()
        changing = any(p.state is State.ENDS or p.wanted != p.share for p in programs)
        if self._quiet_s or changing:
            return LOOK_S
        unread = any(self._untold.values())
        return LOOK_S if unread else LEFT_S if programs else None

    def _start(self, program: Program) -> None:
        program.start(self._stdin)
        self._guardian.started(program.pid, program.stderr)

    def _watch(self, program: Program) -> None:
        if program in self._quiet_s:  # it was not listened to
            self._quiet_s[program] = time.monotonic()
        self._selector.register(program.stderr, selectors.EVENT_READ, program)

    def _read(self, program: Program) -> None:
        fd = program.stderr
        told = program.read()
        if program.stderr < 0:
            self._selector.unregister(fd)
            self._quiet_s.pop(program, None)
        elif program.words.holds:
            self._quiet_s[program] = time.monotonic()
        self._heard(program, *told)
        if len(self._untold.get(program, "")) > MOST_UNTOLD and program.stderr >= 0:
            self._selector.unregister(fd)

    def _heard(self, program: Program, jobs: str, rest: bytes) -> None:
        if rest:
            self._forward(rest)
        if jobs:
            self._untold[program] = self._untold.get(program, "") + jobs

    def _look(self, program: Program, now_s: float) -> None:
        """Has it ended, is it to, or is it to have another share?"""
        if program.state is State.ENDS:
            self._urge(program, now_s)
        if program.reap() and not program.pids():
            self._over(program)
        elif program.state is State.RUNS and program.wanted != program.share:
            self._change(program, now_s)

    def _urge(self, program: Program, now_s: float) -> None:
        environment = self._environment
        line = program.urge(now_s, mps=environment.mps, terminate=environment.terminate)
        if line:
            self._say(f"headway: {line}")
            self._stuck(program, "it does not end when it is asked to")

    def _change(self, program: Program, now_s: float) -> None:
        """Another share takes a restart."""
        why = program.why_not_ended(mps=self._environment.mps)
        if why and now_s - program.started_s < READY * self._patience_s:
            return
        if why:
            self._say(f"headway: {program.name} keeps its share of {percent(program.share)}: {why}")
            self._stuck(program, why)
            return
        program.ask_to_end()
        program.goes_on = True

    def _stuck(self, program: Program, why: str) -> None:
        program.wanted = program.share
        self._tell("stuck", program, why=why)

    def _over(self, program: Program) -> None:
        """All of its processes have ended."""
        if program.stderr >= 0:  # what it said last
            while program.stderr >= 0 and self._drain(program):
                pass
        if program.stderr >= 0:
            with contextlib.suppress(KeyError):
                self._selector.unregister(program.stderr)
            program.close()
        self._quiet_s.pop(program, None)
        self._tell_jobs(program)
        if program.goes_on:
            try:
                self._start(program)
            except StartError as error:
                self._say(f"headway: {error}")
            else:
                self._watch(program)
                self._tell("applied", program, share=program.share)
                return
        program.state = State.OVER
        self._tell("leave", program)
        self._untold.pop(program, None)
        del self.programs[program.name]
        self._say_end(program)

    def _drain(self, program: Program) -> bool:
        fd = program.stderr
        jobs, rest = program.read()
        if program.stderr < 0:
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        self._heard(program, jobs, rest)
        return bool(jobs or rest)

    def _say_end(self, program: Program) -> None:
        self._environment.ended(program)

    # -- the daemon --------------------------------------------------------------------------

    def _connect(self) -> None:
        self._linked_s = time.monotonic()
        try:
            self._link = Link(self._folder)
        except OSError:
            self._link = None
            return
        self._selector.register(self._link, selectors.EVENT_READ, self._link)

    def _lost(self, error: Exception) -> None:
        if self._link is not None:
            self._selector.unregister(self._link)
            self._link.close()
            self._link = None
            self._linked_s = time.monotonic()
            self._say(f"headway: {error}; programs run on, and their shares stay as they are")

    def _hear(self, now_s: float) -> None:
        if self._link is None:
            if self.programs and now_s - self._linked_s >= LEFT_S:
                self._connect()
                if self._link is not None:
                    for program in self.programs.values():
                        self._join_again(program)
            return
        try:
            for event in self._link.events():
                program = self.programs.get(str(event.get("task")))
                if program is not None and event.get("event") == "share":
                    self._wants(program, event.get("share"))
        except client.NoDaemon as error:
            self._lost(error)

    def _wants(self, program: Program, share: object) -> None:
        if type(share) is not int or not 0 < share <= 1000 or program.state is State.LEFT:
            return
        if not self._environment.mps:
            self._environment.say_without_mps()
            self._stuck(program, "without MPS a share cannot isolate processes")
            return
        program.wanted = share
        if program.share == share and program.state is State.RUNS:
            self._tell("applied", program, share=share)

    def _join(self, program: Program) -> None:
        if self._link is None:
            self._connect()
        if self._link is None:
            self._say("headway: no daemon answers, so nothing decides on shares")
            return
        try:
            program.wanted = self._ask_to_join(self._link, program)
        except client.Refused as error:
            raise TaskError(str(error)) from None
        except client.NoDaemon as error:
            self._lost(error)

    def _join_again(self, program: Program) -> None:
        if self._link is None:
            return
        try:
            program.wanted = self._ask_to_join(self._link, program)
            self._tell("applied", program, share=program.share)
        except client.Refused as error:
            self._say(f"headway: {program.name}: {error}")
        except client.NoDaemon as error:
            self._lost(error)

    def _ask_to_join(self, link: Link, program: Program) -> int:
        answer = link.ask(
            act="join",
            task=program.name,
            priority=program.priority,
            share=None if program.shares is None else str(program.shares),
            restarts=self._environment.mps,
        )
        return int(answer["share"])

    def _tell(self, act: str, program: Program, **words: Any) -> None:
        if self._link is None:
            return
        try:
            self._link.send(act=act, task=program.name, **words)
        except client.NoDaemon as error:
            self._lost(error)

    def _tell_jobs(self, program: Program) -> None:
        jobs = self._untold.get(program, "")
        before = len(jobs)
        if self._link is None:
            jobs = ""  # nobody decides on them
        while jobs and self._link is not None and self._link.has_room:
            self._tell("jobs", program, jobs=jobs[:IN_ONE])
            jobs = jobs[IN_ONE:]
        self._untold[program] = jobs
        waits = before > MOST_UNTOLD >= len(jobs) and program.stderr >= 0
        if waits and program.stderr not in self._selector.get_map():
            self._watch(program)
