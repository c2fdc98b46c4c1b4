"""A node of the fleet: its folder, its GPUs, and a daemon for each of them.

A daemon decides for one GPU, so a node has a daemon for each, in a folder of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headway import __version__
from headway.fleet.claims import label
from headway.fleet.facts import GpuFacts, task_facts
from headway.fleet.joining import LABEL_MODEL, LABEL_NODE, LABEL_VERSION, FleetError
from headway.live.api import client, isolated
from headway.live.devices.discovery import nvidia_gpus
from headway.live.identity.launches import life
from headway.live.wire import paths

VARIABLE = "HEADWAY_NODE"
"""Names the folder of the node to what runs on it."""
START_S = 15.0
DOWN = "down"
"""A file that says that a GPU's daemon was stopped on purpose."""
SOFTWARE = "software-GPU"
"""The model of a GPU that the CPU plays."""


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """One GPU of a node."""

    index: int
    model: str
    uuid: str = ""
    software: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """What `headway fleet up` wrote down."""

    name: str
    folder: Path
    gpus: tuple[NodeGpu, ...] = ()
    version: str = __version__
    address: str = ""
    """Of the cluster's head."""
    ray: tuple[int, int] = (0, 0)
    """The process that keeps Ray's node, and when it began."""
    options: tuple[str, ...] = ()
    """Of its daemons."""
    labels: dict[str, str] = field(default_factory=dict)

    def gpu_folder(self, index: int) -> Path:
        return self.folder / f"gpu{index}"

    def gpu_labels(self) -> list[dict[str, str]]:
        """What claims may ask of each GPU."""
        return [{**self.labels, "model": gpu.model, "node": self.name} for gpu in self.gpus]

    def ray_labels(self) -> dict[str, str]:
        models = {gpu.model for gpu in self.gpus}
        model = models.pop() if len(models) == 1 else ("mixed" if models else "none")
        named = {LABEL_NODE: self.name, LABEL_MODEL: model, LABEL_VERSION: self.version}
        return {**self.labels, **named}

    def is_wanted(self, index: int) -> bool:
        """Whether the daemon of this GPU is to be there: `fleet down` says it is not."""
        return not (self.gpu_folder(index) / DOWN).exists() and (self.folder / "node.json").exists()

    @property
    def is_up(self) -> bool:
        return bool(self.ray[0]) and life(self.ray[0]) == self.ray

    def write(self) -> None:
        told = asdict(self) | {"folder": str(self.folder)}
        new = self.folder / "node.json.new"
        new.write_text(json.dumps(told))
        new.rename(self.folder / "node.json")


def fleet_folder() -> Path:
    """Where the nodes of this machine are."""
    return paths.runtime_folder() / "fleet"


def read_node(folder: Path) -> Node:
    """FleetError if there is none."""
    try:
        told = json.loads((folder / "node.json").read_text())
        gpus = tuple(NodeGpu(**gpu) for gpu in told.pop("gpus"))
        told |= {"folder": folder, "gpus": gpus, "ray": tuple(told["ray"])}
        return Node(**told | {"options": tuple(told["options"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FleetError(
            f"headway fleet: {folder}: no node is there ({type(error).__name__}); run headway "
            "fleet up"
        ) from None


def nodes_here() -> list[Node]:
    """Nodes of this machine, up or not."""
    return [read_node(file.parent) for file in sorted(fleet_folder().glob("*/node.json"))]


def this_node() -> Node:
    """The node that this process runs on, by the variable that Ray's node has."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise FleetError(
            f"headway fleet: node {socket.gethostname()} was not started by headway fleet up, so "
            f"no claim can be kept there; ask for resources={{'headway': …}} beside the claim"
        )
    return read_node(Path(folder))


def find_gpus(software: int) -> tuple[NodeGpu, ...]:
    """The GPUs of this machine, or as many that the CPU plays."""
    if software:
        return tuple(NodeGpu(n, SOFTWARE, software=True) for n in range(software))
    return tuple(
        NodeGpu(number, label(found.model or "GPU"), found.uuid)
        for number, found in enumerate(nvidia_gpus())
    )


# -- daemons ---------------------------------------------------------------------------------------


def start_daemon(node: Node, gpu: NodeGpu, *, wait: bool = True) -> None:
    """Start the daemon of a GPU, which stays until it is stopped."""
    folder = node.gpu_folder(gpu.index)
    paths.prepare(folder)
    words = ["daemon", "--display", "none", "--no-servers", *node.options]
    if gpu.software:
        words.append("--software-gpu")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / "daemon.log", flags, 0o600), "ab") as out:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            isolated.headway(*words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
            env=isolated.environment(HEADWAY_DIR=str(folder)),
        )
    if wait:
        wait_for(lambda: is_served(folder), process, f"{folder}/daemon.log")


def wait_for(done: Callable[[], bool], process: subprocess.Popen[bytes], log: str) -> None:
    """Until something is there; FleetError with the log's last line if its process ended."""
    end_s = time.monotonic() + START_S
    while not done():
        ended = process.poll() is not None
        if ended or time.monotonic() > end_s:
            last = last_line(Path(log))
            raise FleetError(f"headway fleet up: {last or f'nothing started; {log} may say why'}")
        time.sleep(0.02)


def last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = [" ".join(line.split()) for line in lines if line.strip()]
    return said[-1] if said else ""


def is_served(folder: Path) -> bool:
    try:
        return client.is_running(folder)
    except OSError:
        return False


def stop_daemon(folder: Path) -> None:
    """Stop a daemon, if there is one."""
    try:
        client.ask(folder, {"do": "stop"})
    except (OSError, client.Refused):
        return


def look_at_gpu(node: Node, gpu: NodeGpu) -> GpuFacts:
    """What the daemon of a GPU says; a problem if it says nothing."""
    try:
        told: dict[str, Any] = client.ask(node.gpu_folder(gpu.index), {"do": "status"})["status"]
    except (OSError, client.Refused) as error:
        why = " ".join(str(error).split())
        return GpuFacts(gpu.index, gpu.model, problem=f"its daemon is down: {why}")
    tasks = tuple(task_facts(entry) for entry in told["channels"])
    return GpuFacts(
        gpu.index, gpu.model, "", told["pid"], told["gpu"]["busy"], told["window_ns"], tasks
    )
