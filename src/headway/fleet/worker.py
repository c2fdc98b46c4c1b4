"""Becomes a worker of Ray with a claim: `python -m headway.fleet.worker PYTHON ARGUMENTS…`.

This process takes the claim's note (or, without one, a GPU of this node that has room), is told a
token by that GPU's daemon, and execs the worker with the interposer in it. Whatever goes wrong, the
worker starts: without a reserve, or unmanaged, with a line in its log that says why.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from dataclasses import replace
from typing import Any

from headway.fleet import nodes
from headway.fleet.claims import Claim, read_claim, written
from headway.fleet.joining import FleetError
from headway.fleet.nodes import Node
from headway.fleet.notes import TICKET, Note, Notes, choose, started
from headway.live.api import client, launch

LOWEST = -1_000_000
"""The priority of a worker whose claim has no room: behind everybody."""
PATIENCE_S = 5.0


def main(words: list[str]) -> None:
    env = dict(os.environ)
    try:
        env = environment(json.loads(os.environ["HEADWAY_CLAIM"]), words[0])
    except (OSError, ValueError, KeyError, FleetError) as error:
        print(f"headway: this worker runs unmanaged: {error}", file=sys.stderr, flush=True)
    env.pop("HEADWAY_CLAIM", None)  # what the worker starts has its token, and no other claim
    os.execvpe(words[0], words, env)  # noqa: S606 - that is the point


def environment(told: dict[str, Any], program: str) -> dict[str, str]:
    """The environment of the worker."""
    node = nodes.this_node()
    wanted, ticket = told.pop("gpu", None), told.pop("ticket", "")
    claim = read_claim(told)
    note, is_first = take(node, claim, ticket, wanted)
    if note.misfit and is_first:
        why = f"claim {claim.name} has no room on node {node.name}: {note.misfit}"
        print(f"headway: {why}; it runs behind everybody", file=sys.stderr, flush=True)
    folder = node.gpu_folder(note.gpu)
    path = shutil.which(program) or program
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            env = launch.managed(folder, path, options(claim, note), starts_daemon=False)
            break
        except client.Refused as error:
            raise FleetError(f"its daemon refuses it: {error}") from None
        except client.NoDaemon:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.1)
    env["HEADWAY_DIR"] = str(folder)
    gpu = node.gpus[note.gpu]
    if not gpu.software:
        env["CUDA_VISIBLE_DEVICES"] = gpu.uuid or str(gpu.index)
        env["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"] = "1"
    return env


def take(node: Node, claim: Claim, ticket: str, wanted: int | None) -> tuple[Note, bool]:
    """The note under which this process runs, and whether it is the claim's own worker: what a
    worker starts through Ray has its claim too, and shares its reserve."""
    notes = Notes(node.folder)
    plain = not TICKET.fullmatch(ticket)
    if plain:
        ticket = secrets.token_hex(16)
    with notes.locked():
        standing = notes.standing()
        own = next((note for note in standing if note.ticket == ticket), None)
        if own is not None and own.is_running and own.pid != os.getpid():
            return own, False
        if own is not None and not own.misfit:
            note = started(own)
        else:
            # The placer's GPU is one of another node if Ray has restarted the worker here.
            gpu, misfit = choose(node.name, node.gpu_labels(), standing, ticket, claim)
            made = Note(ticket, gpu, written(claim), made_s=time.time(), plain=plain)
            note = started(replace(own or made, gpu=gpu, misfit=misfit))
        notes.write(note)
    return note, True


def options(claim: Claim, note: Note) -> dict[str, Any]:
    """What the daemon is told: all processes of a claim share its reserve."""
    wanted = claim.options()
    wanted["name"] = claim.name
    if note.misfit:
        for key in ("reserve", "deadline"):
            wanted.pop(key, None)
        return {**wanted, "priority": str(LOWEST)}
    if claim.reserve is not None:
        wanted["shared"] = f"{claim.name}.{note.ticket[:8]}"
    elif claim.preemptible:
        wanted["priority"] = str(LOWEST)
    return wanted


if __name__ == "__main__":
    main(sys.argv[1:])
