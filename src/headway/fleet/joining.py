"""Ray, imported when it is first needed, and how this process joins a cluster of Headway."""

from __future__ import annotations

import importlib
import os
import re
import socket
from typing import Any

OLDEST = (2, 50)
"""Ray's first version with what the fleet needs: labels, and placement by them."""
NAMESPACE = "headway"
PLACER = "headway-placer"
RESOURCE = "headway"
"""Ray's resource for reserved GPU time: 1 for each GPU of a node."""
REACH_S = 5.0
CLAIMS, MOST_CLAIMS = "headway_claims", 10_000
"""Ray's resource of which every claim takes 1: so that Ray starts workers with claims on nodes with
GPUs alone, and where the placer says. A worker that needs no resource starts anywhere."""
LABEL_NODE, LABEL_MODEL, LABEL_VERSION = "headway/node", "headway/gpu", "headway/version"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


class FleetError(RuntimeError):
    """Something of the cluster that a person can put right; one line."""


def ray() -> Any:
    """Ray itself. FleetError says what to install where there is none."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    oldest = ".".join(map(str, OLDEST))
    try:
        found = importlib.import_module("ray")
    except ImportError as error:
        missing = f"Ray cannot be imported ({error})"
        raise FleetError(f"headway fleet: {missing}; run pip install 'headway[ray]'") from None
    version = tuple(int(part) for part in re.findall(r"\d+", found.__version__)[:2])
    if version < OLDEST:
        raise FleetError(
            f"headway fleet: found Ray {found.__version__}, expected {oldest} or newer; run pip "
            "install --upgrade 'headway[ray]'"
        )
    return found


def reach(address: str) -> None:
    """FleetError if nobody listens at HOST:PORT: Ray itself would try for more than a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise FleetError(f"headway fleet: --address: found {address!r}, expected HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except OSError as error:
        raise FleetError(_no_cluster(address, error)) from None


def connect(address: str | None = None) -> Any:
    """Ray, with this process as a driver of the cluster at an address; by default the cluster of
    $RAY_ADDRESS, or of this machine."""
    found = ray()
    if found.is_initialized():
        return found
    import logging

    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if where not in ("auto", "local") and "://" not in where:
        reach(where)
    try:
        found.init(
            address=where,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise FleetError(_no_cluster(address, error)) from None
    return found


def _no_cluster(address: str | None, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        return f"headway fleet: the cluster has another version of Ray or Python: {text[:200]}"
    where = address or os.environ.get("RAY_ADDRESS") or "this machine"
    return (
        f"headway fleet: no Ray cluster answers at {where}; headway fleet up --head starts one, "
        "--address HOST:PORT or RAY_ADDRESS names one"
    )


def headway_nodes(found: Any) -> list[dict[str, Any]]:
    """Living nodes that `headway fleet up` started, as Ray tells of them."""
    return [n for n in found.nodes() if n["Alive"] and LABEL_VERSION in n.get("Labels", {})]


def placer(found: Any) -> Any:
    """The cluster's placer, started if there is none yet."""
    from headway import __version__

    try:
        return found.get_actor(PLACER, namespace=NAMESPACE)
    except ValueError:
        pass
    nodes = headway_nodes(found)
    if not nodes:
        raise FleetError(
            "headway fleet: no node of this cluster was started by Headway; run headway fleet up "
            "--address HOST:PORT there"
        )
    versions = {node["Labels"][LABEL_VERSION] for node in nodes}
    if __version__ not in versions:
        raise FleetError(
            f"headway fleet: found Headway {', '.join(sorted(versions))} on the cluster's nodes, "
            f"expected {__version__} as here; install the same version"
        )
    from headway.fleet.placer import Placer

    return (
        found.remote(Placer)
        .options(
            name=PLACER,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=10_000,
            num_cpus=0,
            label_selector={LABEL_VERSION: __version__},
            runtime_env={"headway": None},
        )
        .remote()
    )
