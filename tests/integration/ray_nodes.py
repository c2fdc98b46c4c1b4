"""Nodes of Ray with Headway's daemons and software GPUs, all on this machine, as tests use them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.fleet import joining
from tests.integration.command import HEADWAY

START_S = 200
ATTEMPTS = 3
ON_LOOPBACK = (
    "--node-ip-address=127.0.0.1", "--object-store-memory=80000000", "--min-worker-port=0",
    "--max-worker-port=0", "--include-log-monitor=false",
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    end_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"waited {timeout_s:g} s in vain: {what}"
        time.sleep(0.05)
    return found


def stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def is_running(pid: int) -> bool:
    found = stat(pid)
    return bool(found) and found[0] != "Z"


def descendants(pid: int) -> list[int]:
    """A process and all that it started, and these started."""
    parents = {int(p.name): stat(int(p.name)) for p in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for one in found:
        found += [child for child, told in parents.items() if told and int(told[1]) == one]
    return found


class RayNodes:
    """A cluster on loopback; every node in a folder below one, with an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADWAY_", "RAY_"))}
        self.env = {**kept, "XDG_RUNTIME_DIR": str(folder), "RAY_ADDRESS": self.address}
        self.env |= {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(folder)}
        # No workers before somebody wants them: they cost seconds of a CPU each.
        self.env |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
        self.names: list[str] = []

    def headway(self, *words: str, timeout_s: float = START_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEADWAY, "fleet", *words], env=self.env, text=True, capture_output=True,
            timeout=timeout_s, check=False, cwd=self.folder,
        )  # fmt: skip

    def up(self, name: str, *, gpus: int = 1, cpus: int = 4, head: bool = False) -> None:
        where = ["--head"] if head else [f"--address={self.address}"]
        own = (
            [f"--port={self.port}", f"--temp-dir={self.folder}/ray", "--include-dashboard=false"]
            if head
            else []
        )
        words = ["up", *where, "--name", name, "--software-gpus", str(gpus), "--"]
        self.names.append(name)
        for _attempt in range(ATTEMPTS):
            done = self.headway(*words, *ON_LOOPBACK, f"--num-cpus={cpus}", *own)
            if "timed out during startup" not in done.stderr:
                break  # Ray gives a node 30 s, whatever the machine does beside
        assert done.returncode == 0, done.stderr

    def node(self, name: str) -> dict[str, Any]:
        """What the node's folder says of it."""
        file = self.folder / "headway" / "fleet" / name / "node.json"
        return dict(json.loads(file.read_text()))

    def ray_id(self, name: str) -> str:
        import ray

        labelled = joining.LABEL_NODE
        found = [n for n in ray.nodes() if n["Alive"] and n["Labels"].get(labelled) == name]
        return str(found[0]["NodeID"])

    def daemon_pid(self, name: str, gpu: int = 0) -> int:
        lock = self.folder / "headway" / "fleet" / name / f"gpu{gpu}" / "daemon.lock"
        return int(lock.read_text() or 0)  # empty while the next daemon writes it

    def kill(self, name: str) -> None:
        """The node is dead at once: Ray's processes there, its workers and its daemons."""
        node = self.node(name)
        doomed = descendants(node["ray"][0])
        doomed += [self.daemon_pid(name, gpu["index"]) for gpu in node["gpus"]]
        doomed = [pid for pid in doomed if pid > 0]  # 0, of a daemon just killed, is everybody here
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, doomed)), f"node {name} is dead")
        self.names.remove(name)

    def status(self) -> dict[str, Any]:
        done = self.headway("status", "--json", timeout_s=60)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def close(self) -> None:
        for name in list(self.names):
            with contextlib.suppress(OSError, ValueError):
                self.kill(name)


@contextlib.contextmanager
def cluster(folder: Path, names: tuple[str, ...], **how: Any) -> Iterator[RayNodes]:
    """Nodes with these names, and this process a driver of theirs."""
    nodes = RayNodes(folder)
    before = dict(os.environ)
    try:
        nodes.up(names[0], head=True, **how)
        os.environ |= {k: nodes.env[k] for k in ("RAY_ADDRESS", "XDG_RUNTIME_DIR")}
        joining.connect(nodes.address)  # while the head alone is there: a driver dies with its node
        for name in names[1:]:  # one after the other: two at once time out in Ray
            nodes.up(name, **how)
        yield nodes
    finally:
        if (ray := joining.ray()).is_initialized():
            ray.shutdown()
        nodes.close()
        os.environ.clear()
        os.environ.update(before)


def placer() -> Any:
    import ray

    return joining.placer(ray)


def view() -> dict[str, Any]:
    """What the placer says now."""
    import ray

    return dict(ray.get(placer().view.remote(), timeout=60))


def claims(name: str) -> list[dict[str, Any]]:
    return [claim for claim in view()["claims"] if claim["name"] == name]
