"""A thousand claims on twenty nodes: placements per second, and what deaths in the middle do.

    python -m benchmarks.fleet_placements [--nodes 20] [--claims 1000] [--askers 16]

Real nodes of Ray on this machine, each with a daemon and a software GPU that nobody uses. A process
of Ray for each of a thousand actors does not fit a small machine, so the claims are asked for as
actors ask, and held by their nodes, without a worker each; a few real actors run among them. After
a half of the claims a daemon and the placer are killed, and at the end a node. What is checked are
the nodes' own notes, read from their files: nothing promised twice, and no claim lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import headway
from headway.fleet import joining, nodes, starting
from headway.fleet.claims import read_claim
from headway.fleet.nodes import Node, NodeGpu
from tests.integration.ray_nodes import descendants

ACTORS = 4
ATTEMPTS = 3
PERIOD_MS = 100
PATIENCE_S = 120.0


class Machine:
    """Nodes of one cluster in this process."""

    def __init__(self, folder: Path, number: int) -> None:
        from ray.cluster_utils import Cluster

        os.environ["XDG_RUNTIME_DIR"] = str(folder)
        os.environ |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
        os.environ |= starting.SOON
        self.nodes = [self._node(n) for n in range(number)]
        for node in self.nodes:  # all start at once
            nodes.start_daemon(node, node.gpus[0], wait=False)
        self._cluster = Cluster()
        self._ray_nodes = {node.name: self._add(node) for node in self.nodes}
        self._cluster.wait_for_nodes(timeout=PATIENCE_S)
        joining.connect(self._cluster.address)

    def _add(self, node: Node) -> Any:
        """Ray's node; it gives each 30 s to start, which a busy machine may not have."""
        for attempt in range(ATTEMPTS):
            with contextlib.suppress(Exception):
                return self._cluster.add_node(
                    wait=False,
                    num_cpus=1,
                    object_store_memory=80_000_000,
                    include_dashboard=False,
                    include_log_monitor=False,
                    resources={joining.RESOURCE: 1, joining.CLAIMS: joining.MOST_CLAIMS},
                    labels=node.ray_labels(),
                    env_vars=starting.environment(node),
                )
            print(f"{node.name}: start {attempt + 1} failed", flush=True)
        raise SystemExit(f"{node.name} does not start")

    def _node(self, number: int) -> Node:
        folder = nodes.fleet_folder() / f"n{number:02}"
        folder.mkdir(parents=True, mode=0o700)
        made = Node(folder.name, folder, (NodeGpu(0, nodes.SOFTWARE, software=True),))
        made.write()
        return made

    def notes(self) -> dict[str, list[dict[str, Any]]]:
        """What the living nodes' files say, by node."""
        return {
            node.name: [
                json.loads(file.read_text()) for file in (node.folder / "claims").glob("*.json")
            ]
            for node in self.nodes
        }

    def daemon_pid(self, node: Node) -> int:
        return int((node.gpu_folder(0) / "daemon.lock").read_text() or 0)

    def kill_node(self, node: Node) -> None:
        self.nodes.remove(node)
        ray_node = self._ray_nodes[node.name]
        doomed = [p.process.pid for group in ray_node.all_processes.values() for p in group]
        for pid in {one for root in doomed for one in descendants(root)}:
            os.kill(pid, signal.SIGKILL)
        self._cluster.worker_nodes.discard(ray_node)
        os.kill(self.daemon_pid(node), signal.SIGKILL)

    def close(self) -> None:
        joining.ray().shutdown()
        self._cluster.shutdown()
        for node in self.nodes:
            nodes.stop_daemon(node.gpu_folder(0))


def placer() -> Any:
    return joining.placer(joining.ray())


def placer_pid() -> int:
    return int(joining.ray().get(placer().view.remote(), timeout=PATIENCE_S)["placer"])


def words(rng: random.Random) -> dict[str, Any]:
    """Two per cent of a GPU each in the middle, so that a thousand about fill twenty."""
    claim: dict[str, Any] = {
        "priority": rng.randrange(10),
        "reserve": f"{rng.choice((1, 2, 3))}ms/{PERIOD_MS}ms",
    }
    if rng.random() < 0.1:
        claim["deadline"] = f"{2 * PERIOD_MS}ms"
    return claim


def ask(claim: dict[str, Any], job: str) -> tuple[str, str, float]:
    """The ticket, what was said of it, and how long that took."""
    ray, ticket, began_s = joining.ray(), secrets.token_hex(16), time.monotonic()
    answer = ray.get(placer().place.remote(ticket, claim, job))
    said = "placed" if "node" in answer else next(iter(answer))
    return ticket, said, time.monotonic() - began_s


def check(machine: Machine, placed: set[str]) -> list[str]:
    """What is wrong by the nodes' own notes."""
    found, seen = [], Counter[str]()
    for name, notes in machine.notes().items():
        share = Fraction(0)
        for note in notes:
            seen[note["ticket"]] += 1
            reserve = read_claim(note["claim"]).reserve
            share += Fraction(0) if reserve is None else reserve.share
        if share > 1:
            found.append(f"{name}: {float(share):.3f} of its GPU is promised")
    found += [f"{ticket} is noted {n} times" for ticket, n in seen.items() if n > 1]
    if lost := placed - set(seen):
        found.append(f"{len(lost)} claims are on no node")
    return found


def right(machine: Machine, everything: set[str]) -> bool:
    """Whether the placer's view is what the nodes say, and has every claim."""
    view = joining.ray().get(placer().view.remote(), timeout=PATIENCE_S)
    told = {c["ticket"]: c for c in view["claims"]}
    noted = {n["ticket"]: name for name, notes in machine.notes().items() for n in notes}
    held = {t: c["node"] for t, c in told.items() if c["state"] in ("placed", "running")}
    gpus = [gpu for node in view["nodes"] for gpu in node.get("gpus", ())]
    is_whole = everything <= set(told) and len(gpus) == len(machine.nodes)
    fits = all(gpu["reserved"] <= 1 and not gpu["problem"] for gpu in gpus)
    return is_whole and fits and held == noted


def time_until(condition: Callable[[], bool]) -> float:
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > PATIENCE_S:
            return float("inf")
        time.sleep(0.05)
    return time.monotonic() - began_s


class Idle:
    """A real actor with a claim."""

    def pid(self) -> int:
        return os.getpid()


def run(machine: Machine, number: int, askers: int) -> Iterator[str]:
    """Lines of what was measured; the last says whether all is right."""
    ray, rng = joining.ray(), random.Random(1)
    job = ray.get_runtime_context().get_job_id()
    ray.get(placer().ready.remote(), timeout=PATIENCE_S)
    time_until(lambda: right(machine, set()))
    actor = headway.fleet.remote(priority=9, reserve="1ms/100ms", num_cpus=0)(Idle)
    actors = [actor.remote() for _ in range(ACTORS)]
    pids = ray.get([one.pid.remote() for one in actors], timeout=PATIENCE_S)
    said: dict[str, str] = {}
    waits: list[float] = []
    claims = [words(rng) for _ in range(number)]
    problems: list[str] = []
    for half in (claims[: number // 2], claims[number // 2 :]):
        began_s = time.monotonic()
        with ThreadPoolExecutor(askers) as pool:
            answers = list(pool.map(lambda claim: ask(claim, job), half))
        rate = len(half) / (time.monotonic() - began_s)
        said |= {ticket: word for ticket, word, _ in answers}
        waits += [took for _, _, took in answers]
        placed = {ticket for ticket, word in said.items() if word == "placed"}
        problems += check(machine, placed)
        counts = Counter(said.values())
        yield (f"{len(said)} claims, {dict(counts)}: {rate:.0f} answers per second")
        if half is claims or len(said) < number:
            yield from _deaths(machine, set(said))
    p50, p99 = statistics.median(waits) * 1e3, statistics.quantiles(waits, n=100)[98] * 1e3
    yield f"from asking to the answer: {p50:.0f} ms in the middle, p99 {p99:.0f} ms"
    victim = next(node for node in machine.nodes[1:] if not _has_worker(machine, node))
    machine.kill_node(victim)
    node_s = time_until(lambda: right(machine, set(said)))
    yield f"a node killed: claims right again after {node_s:.1f} s"
    problems += check(machine, set())
    if ray.get([one.pid.remote() for one in actors], timeout=PATIENCE_S) != pids:
        problems.append("an actor died that need not")
    yield "; ".join(problems) or "nothing promised twice, no claim lost, no actor died"


def _deaths(machine: Machine, everything: set[str]) -> Iterator[str]:
    node = machine.nodes[1]
    old = machine.daemon_pid(node)
    os.kill(old, signal.SIGKILL)
    took_s = time_until(
        lambda: machine.daemon_pid(node) not in (0, old) and right(machine, everything)
    )
    yield f"a daemon killed: claims right again after {took_s:.1f} s"
    before = placer_pid()
    joining.ray().kill(placer(), no_restart=False)
    took_s = time_until(lambda: placer_pid() != before and right(machine, everything))
    yield f"the placer killed: claims right again after {took_s:.1f} s"


def _has_worker(machine: Machine, node: Node) -> bool:
    """Whether one of the actors is there."""
    return any(note["pid"] for note in machine.notes()[node.name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--claims", type=int, default=1000)
    parser.add_argument("--askers", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hw", ignore_cleanup_errors=True) as folder:
        began_s = time.monotonic()
        machine = Machine(Path(folder), options.nodes)
        try:
            print(
                f"{options.nodes} nodes started in {time.monotonic() - began_s:.0f} s", flush=True
            )
            for line in run(machine, options.claims, options.askers):
                print(line, flush=True)
        finally:
            machine.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
