"""`headway fleet up` and `down`: Ray's node, and a daemon for each of its GPUs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headway.fleet import joining, nodes
from headway.fleet.joining import RESOURCE, FleetError
from headway.fleet.nodes import DOWN, Node
from headway.live.identity.launches import life
from headway.live.wire import paths

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
PLUGIN = "headway.fleet.plugin.Plugin"
UNITS = "RAY_custom_unit_instance_resources"
STARTED = "Ray runtime started"
UP_S, DOWN_S = 180.0, 15.0
SOON = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "4",
}
"""A node that dies is known to be dead within about five seconds; Ray's own numbers make it
fifteen or more. Of the head alone."""

ORDINARY = {"RAY_worker_niceness": "0"}
"""Ray's workers have the CPU behind everybody else by default: an important one would wait there
for what it does not wait for on the GPU."""


def up(
    *,
    name: str | None = None,
    address: str | None = None,
    software: int = 0,
    labels: Mapping[str, str] | None = None,
    daemon_options: Sequence[str] = (),
    ray_options: Sequence[str] = (),
) -> Node:
    """Start this machine's node: the head of a new cluster without an address. What is there
    already stays; FleetError says what cannot be started, and then nothing stays."""
    joining.ray()
    name = name or socket.gethostname()
    if NAME.fullmatch(name) is None:
        raise FleetError(
            f"headway fleet up: --name: found {name!r}, expected letters, digits, ., _ and -"
        )
    if address is not None:
        joining.reach(address)
    folder = nodes.fleet_folder() / name
    paths.prepare(folder)
    node = Node(
        name,
        folder,
        nodes.find_gpus(software),
        address=address or "",
        options=tuple(daemon_options),
        labels=dict(labels or {}),
    )
    if (folder / "node.json").exists():
        before = nodes.read_node(folder)
        if before.is_up:
            _start_daemons(before)
            return before
    _forget_claims(folder)
    node.write()
    try:
        _start_daemons(node)
        node = replace(node, ray=_start_ray(node, ray_options))
        node.write()
    except BaseException:
        _stop_daemons(node)
        (folder / "node.json").unlink()
        raise
    return node


def environment(node: Node) -> dict[str, str]:
    """What Ray's node, and so what runs on it, has in its environment."""
    plugins = [p for p in _plugins() if p.get("class") != PLUGIN]
    added = {
        nodes.VARIABLE: str(node.folder),
        "RAY_RUNTIME_ENV_PLUGINS": json.dumps([*plugins, {"class": PLUGIN}]),
        UNITS: _units(),
        **joining.QUIET,
    }
    return {**SOON, **ORDINARY, **os.environ, **added}


def _plugins() -> list[dict[str, object]]:
    try:
        found = json.loads(os.environ.get("RAY_RUNTIME_ENV_PLUGINS") or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _units() -> str:
    """Resources of which a share is a share of one of them; those of others are kept. Ray's own
    default goes with the variable."""
    before = os.environ.get(UNITS, "neuron_cores,TPU,NPU,HPU,RBLN")
    found = [part for part in before.split(",") if part and part != RESOURCE]
    return ",".join([*found, RESOURCE])


def command(node: Node, ray_options: Sequence[str] = ()) -> list[str]:
    """What starts Ray's node."""
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    words += ["--disable-usage-stats", "--log-style=record", "--log-color=false"]
    words += ["--head"] if not node.address else [f"--address={node.address}"]
    if not node.address and not any(o.startswith("--include-dashboard") for o in ray_options):
        # The dashboard's parts are in ray[default]; a core Ray says a line of each that is missing.
        has_parts = importlib.util.find_spec("aiohttp_cors") is not None
        words.append(f"--include-dashboard={str(has_parts).lower()}")
    if node.gpus:
        resources = {RESOURCE: len(node.gpus), joining.CLAIMS: joining.MOST_CLAIMS}
        words.append(f"--resources={json.dumps(resources)}")
    told = ",".join(f"{key}={value}" for key, value in sorted(node.ray_labels().items()))
    return [*words, f"--labels={told}", *ray_options]


def _start_ray(node: Node, ray_options: Sequence[str]) -> tuple[int, int]:
    """Start Ray's node as a process that keeps it, and wait until it is there."""
    log = node.folder / "ray.log"
    flags = os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(log, flags, 0o600), "wb") as out:
        process = subprocess.Popen(  # noqa: S603 - Ray itself
            command(node, ray_options),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(node),
        )
    end_s = time.monotonic() + UP_S
    while STARTED not in _read(log):
        if process.poll() is not None:
            raise FleetError(f"headway fleet up: Ray did not start: {_why(log)}")
        if time.monotonic() > end_s:
            process.terminate()
            why = f"nothing within {UP_S:g} s; {log} may say why"
            raise FleetError(f"headway fleet up: Ray did not start: {why}")
        time.sleep(0.05)
    return life(process.pid)


def _read(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""


def _why(log: Path) -> str:
    """The line of Ray's log that is about an error, else the last one."""
    lines = [" ".join(line.split()) for line in _read(log).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"Error:|mismatch|[Cc]ould not|Unable", line)]
    found = (telling or lines or [""])[-1 if telling else len(lines) - 1]
    return f"{found[:300] or 'it said nothing'} ({log} has it all)"


def _start_daemons(node: Node) -> None:
    for gpu in node.gpus:
        (node.gpu_folder(gpu.index) / DOWN).unlink(missing_ok=True)
        if not nodes.is_served(node.gpu_folder(gpu.index)):
            nodes.start_daemon(node, gpu)


def _stop_daemons(node: Node) -> None:
    for gpu in node.gpus:
        folder = node.gpu_folder(gpu.index)
        if folder.is_dir():
            (folder / DOWN).touch()
            nodes.stop_daemon(folder)


def _forget_claims(folder: Path) -> None:
    """Of a node that is no more: who ran there is dead."""
    for file in (folder / "claims").glob("*"):
        file.unlink()


def down(node: Node) -> bool:
    """End Ray's node and the daemons; whether Ray's node was up."""
    was_up = node.is_up
    _stop_daemons(node)
    if was_up:
        os.kill(node.ray[0], signal.SIGTERM)
        end_s = time.monotonic() + DOWN_S
        while node.is_up:
            if time.monotonic() > end_s:
                os.killpg(node.ray[0], signal.SIGKILL)
                break
            time.sleep(0.05)
    (node.folder / "node.json").unlink(missing_ok=True)
    return was_up


__all__ = ["command", "down", "environment", "up"]
