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
from headway.fleet.claims import Claim, read_claim
from headway.fleet.facts import GpuFacts, NodeFacts
from headway.fleet.joining import FleetError
from headway.fleet.notes import Note, Notes, choose
from headway.fleet.worker import options
from headway.live.api import client

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
            notes = tuple(note.facts() for note in self._granted(self._notes.standing()))
        return NodeFacts(self._node.name, __version__, time.monotonic_ns(), gpus, notes)

    def _granted(self, notes: list[Note]) -> list[Note]:
        """The notes, after workers that run without their reserve got it where there is room."""
        for place, note in enumerate(notes):
            if not (note.misfit and note.is_running):
                continue
            claim, labels = read_claim(note.claim), self._node.gpu_labels()
            _, why = choose(self._node.name, labels, notes, note.ticket, claim, wanted=note.gpu)
            now = replace(note, misfit=why)
            if not why and not self._give(now, claim):
                continue  # it has not come to its daemon yet
            if now != note:
                self._notes.write(now)
                notes[place] = now
        return notes

    def _give(self, note: Note, claim: Claim) -> bool:
        """Have the daemon serve a worker as its claim says, from now on."""
        request = {"priority": "0", **options(claim, note), "do": "set", "task": str(note.pid)}
        del request["name"]
        try:
            client.ask(self._node.gpu_folder(note.gpu), request)
        except (OSError, client.Refused):
            return False
        return True

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

    def hold(self, ticket: str, claim: dict[str, Any], gpu: int, job: str, known: list[str]) -> str:
        """Note a claim on a GPU; why that cannot be, if so. `known`: what the placer thinks to be
        on the GPU after that. If nothing else is, the deadlines are as the placer proved them."""
        with self._notes.locked():
            notes = self._notes.standing()
            own = next((note for note in notes if note.ticket == ticket), None)
            if own is not None and own.gpu == gpu and not own.misfit:
                return ""
            here = {note.ticket for note in notes if note.gpu == gpu and not note.misfit}
            if strangers := here - {*known, ticket}:
                stay = [note for note in notes if note.ticket in {*known, *strangers}]
                wanted, labels = read_claim(claim), self._node.gpu_labels()
                _, why = choose(self._node.name, labels, stay, ticket, wanted, wanted=gpu)
                if why:
                    return why
            self._notes.write(Note(ticket, gpu, claim, job=job, made_s=time.time()))
            return ""

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
