"""The notes of a node: which claims its GPUs hold, in small files that outlive everybody.

A note is written before the placer answers, and again by the worker that runs under the claim. So
the node itself knows what was promised of its GPUs when the placer, its own agent or a daemon is
killed, and everybody who writes one looks first, under one lock, whether the GPU still has room.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headway.fleet.books import LONGEST_NS, Place
from headway.fleet.claims import Claim, ClaimError, read_claim
from headway.fleet.facts import NoteFacts
from headway.fleet.placement import Placed, Placement
from headway.live.identity.launches import life

TICKET = re.compile(r"[0-9a-f]{32}")
PROMISED_S = 60.0
"""How long a promise stands of which nobody said for whom it is."""

ENDED_S = 10.0
"""The same, if its worker has ended."""


@dataclass(frozen=True, slots=True)
class Note:
    """One claim on this node."""

    ticket: str
    gpu: int
    claim: dict[str, Any]
    actor: str = ""
    job: str = ""
    made_s: float = 0.0
    pid: int = 0
    born: int = 0
    plain: bool = False
    misfit: str = ""

    @property
    def is_running(self) -> bool:
        return bool(self.pid) and life(self.pid) == (self.pid, self.born)

    @property
    def stands(self) -> bool:
        """Whether the claim counts: of one that the placer knows the end of, the placer says so."""
        if self.is_running:
            return True
        if self.plain:
            return False
        kept_s = ENDED_S if self.pid else PROMISED_S
        return bool(self.actor or self.job) or time.time() - self.made_s < kept_s

    def facts(self) -> NoteFacts:
        return NoteFacts(
            self.ticket, self.gpu, self.claim, self.actor, self.job, self.pid, self.is_running,
            self.plain, self.misfit,
        )  # fmt: skip


class Notes:
    """All notes of one node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "claims"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = folder / "claims.lock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes notes meanwhile."""
        with os.fdopen(os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def write(self, note: Note) -> None:
        file = self._folder / f"{note.ticket}.json"
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(note)))
        new.rename(file)

    def read(self, ticket: str) -> Note | None:
        if TICKET.fullmatch(ticket) is None:
            return None
        try:
            note = Note(**json.loads((self._folder / f"{ticket}.json").read_text()))
            read_claim(note.claim)
        except (OSError, ValueError, TypeError):
            return None  # there is none, or it counts for nothing
        return note

    def drop(self, ticket: str) -> None:
        if TICKET.fullmatch(ticket):
            with suppress(OSError):
                (self._folder / f"{ticket}.json").unlink()

    def standing(self) -> list[Note]:
        """Those that count; the others are forgotten."""
        found = []
        for file in sorted(self._folder.glob("*.json")):
            note = self.read(file.stem)
            if note is not None and note.stands:
                found.append(note)
            elif note is not None:
                self.drop(note.ticket)
        return found


def books(
    node: str, gpus: Sequence[dict[str, str]], notes: Sequence[Note], longest_ns: int = LONGEST_NS
) -> Placement:
    """The placement of this node alone, with what its notes say."""
    made = Placement(preempts=False)
    made.node_came(node, gpus, longest_ns)
    for note in notes:
        if not note.misfit:
            made.found(note.ticket, read_claim(note.claim), Place(node, note.gpu))
    return made


def choose(
    node: str,
    gpus: Sequence[dict[str, str]],
    notes: Sequence[Note],
    ticket: str,
    claim: Claim,
    wanted: int | None = None,
) -> tuple[int, str]:
    """The GPU of this node for a claim, and why the claim cannot have its reserve there, if so.
    `wanted`: the only GPU that will do."""
    here = books(node, gpus, [note for note in notes if note.ticket != ticket])
    if wanted is not None:
        for number in range(len(gpus)):
            if number != wanted:
                here.gpu_down(Place(node, number), "another GPU was wanted")
    decision = here.submit(ticket, claim)
    if isinstance(decision, Placed):
        return decision.place.gpu, ""
    suiting = [n for n, labels in enumerate(gpus) if claim.suits(labels)] or range(len(gpus))
    if wanted is not None:
        suiting = [wanted]
    held = {n: sum(1 for note in notes if note.gpu == n) for n in suiting}
    return min(suiting, key=lambda n: (held[n], n)), decision.why


def started(note: Note) -> Note:
    """The note, with this process as the claim's worker."""
    pid, born = life(os.getpid())
    return replace(note, pid=pid, born=born)


__all__ = ["ClaimError", "Note", "Notes", "books", "choose", "started"]
