"""A node's agent: an actor of Ray on the node, through which the placer asks the node's daemons."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from typing import Any

from headway import __version__
from headway.fleet import nodes
from headway.fleet.claims import read_claim
from headway.fleet.facts import GpuFacts, NodeFacts
from headway.fleet.joining import FleetError
from headway.fleet.notes import Note, Notes, choose

RESTART_S = 1.0
"""No daemon is started again sooner after the last attempt."""


class Agent:
    """Reads and writes what the node knows; restarts its daemons. Decides nothing."""

    def __init__(self, *, restarts: bool = True) -> None:
        self._node = nodes.this_node()
        self._notes = Notes(self._node.folder)
        self._restarts = restarts
        self._tried_s: dict[int, float] = {}

    def look(self) -> NodeFacts:
        """The node's GPUs, their daemons and its claims."""
        gpus = tuple(self._look_at(gpu) for gpu in self._node.gpus)
        with self._notes.locked():
            notes = tuple(note.facts() for note in self._notes.standing())
        return NodeFacts(self._node.name, __version__, time.monotonic_ns(), gpus, notes)

    def labels(self) -> list[dict[str, str]]:
        return self._node.gpu_labels()

    def _look_at(self, gpu: nodes.NodeGpu) -> GpuFacts:
        facts = nodes.look_at_gpu(self._node, gpu)
        now_s = time.monotonic()
        is_time = now_s - self._tried_s.get(gpu.index, -RESTART_S) >= RESTART_S
        if facts.problem and is_time and self._restarts and self._node.is_wanted(gpu.index):
            self._tried_s[gpu.index] = now_s
            with contextlib.suppress(OSError, FleetError):
                nodes.start_daemon(self._node, gpu, wait=False)
        return facts

    def hold(self, ticket: str, claim: dict[str, Any], gpu: int, job: str, gone: list[str]) -> str:
        """Note a claim on a GPU; why that cannot be, if so. `gone`: claims that will leave."""
        with self._notes.locked():
            notes = [note for note in self._notes.standing() if note.ticket not in gone]
            own = next((note for note in notes if note.ticket == ticket), None)
            if own is not None and own.gpu == gpu and not own.misfit:
                return ""
            wanted = read_claim(claim)
            _, why = choose(
                self._node.name, self._node.gpu_labels(), notes, ticket, wanted, wanted=gpu
            )
            if not why:
                self._notes.write(Note(ticket, gpu, claim, job=job, made_s=time.time()))
            return why

    def created(self, ticket: str, actor: str) -> None:
        """An actor was made for the claim."""
        with self._notes.locked():
            note = self._notes.read(ticket)
            if note is not None and note.actor != actor:
                self._notes.write(replace(note, actor=actor))

    def drop(self, tickets: list[str]) -> None:
        """These claims are over."""
        with self._notes.locked():
            for ticket in tickets:
                self._notes.drop(ticket)

    def evict(self, tickets: list[str]) -> None:
        """These workers have to leave: Ray starts them again where there is room."""
        with self._notes.locked():
            for ticket in tickets:
                note = self._notes.read(ticket)
                self._notes.drop(ticket)
                if note is not None and note.is_running:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(note.pid, signal.SIGKILL)

    def clock(self) -> int:
        return time.monotonic_ns()

    def record(self, seconds: float) -> list[tuple[int, bytes]]:
        """What the daemon of each GPU does for so long, as traces."""
        from headway.fleet.recording import record

        return record(self._node, seconds)
