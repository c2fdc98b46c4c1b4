"""Ray's runtime environment `{"headway": {…}}`: checks the claim, and has the worker carry it.

Ray's agent on a node loads the plugin, because `headway fleet up` names it in
RAY_RUNTIME_ENV_PLUGINS. The agent may keep what the plugin made for many workers, so what belongs
to one process alone, its token, is seen to by `headway.fleet.worker` in that process.
"""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from typing import Any

from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from headway.fleet import nodes
from headway.fleet.claims import Claim, ClaimError, read_claim
from headway.fleet.joining import FleetError
from headway.fleet.nodes import Node
from headway.fleet.placement import Placement

NAME = "headway"
VARIABLE = "HEADWAY_CLAIM"
OURS = ("ticket", "gpu")
"""Keys that the placer adds to a claim."""
PATIENCE_S = 5.0
"""How long a daemon may be down: its node starts another one."""


class ClaimRefused(ValueError):
    """One line: Ray prints an exception with its traceback, and this one shows none."""

    __module__ = "builtins"
    __traceback__ = property(lambda self: None, lambda self, value: None)


def split(given: Any) -> tuple[Any, dict[str, Any]]:
    """The claim as people wrote it, and what the placer added."""
    if not isinstance(given, dict):
        return given, {}
    added = {key: given[key] for key in OURS if key in given}
    return {key: value for key, value in given.items() if key not in OURS}, added


class Plugin(RuntimeEnvPlugin):  # type: ignore[misc]
    """What Ray calls on a node before it starts a worker with a claim."""

    name = NAME
    priority = 100
    """After all others: they may choose another Python."""

    @staticmethod
    def validate(runtime_env_dict: dict[str, Any]) -> None:
        try:
            read_claim(split(runtime_env_dict[NAME])[0])
        except ClaimError as error:
            raise ClaimRefused(str(error)) from None

    async def create(
        self, uri: str | None, runtime_env: Any, context: Any, logger: logging.Logger
    ) -> float:
        given, added = split(runtime_env[NAME])
        try:
            claim = read_claim(given)
            node = nodes.this_node()
            why_not(node, claim, added.get("gpu"))
        except (ClaimError, FleetError) as error:
            raise ClaimRefused(str(error)) from None
        return 0

    def modify_context(
        self, uris: list[str], runtime_env: Any, context: Any, logger: logging.Logger
    ) -> None:
        context.env_vars[VARIABLE] = json.dumps(runtime_env[NAME])
        ours = shlex.join([sys.executable, "-P", "-m", "headway.fleet.worker"])
        context.py_executable = f"{ours} {context.py_executable}"


def why_not(node: Node, claim: Claim, wanted: int | None) -> None:
    """FleetError if no GPU of this node can ever take the claim, or nobody serves it."""
    what = f"headway claim: node {node.name}"
    if not node.gpus:
        raise FleetError(
            f"{what} has no GPU; expected resources={{'headway': C/T}} beside the claim, so that "
            "Ray chooses a node that has one"
        )
    alone = Placement()
    alone.node_came(node.name, node.gpu_labels())
    if why := alone.never(claim):
        raise FleetError(f"headway claim: {why}")
    folders = [node.gpu_folder(g.index) for g in node.gpus if wanted in (None, g.index)]
    end_s = time.monotonic() + PATIENCE_S
    while not any(nodes.is_served(folder) for folder in folders):
        if time.monotonic() > end_s:
            raise FleetError(
                f"{what}: no daemon answers in {folders[0] if folders else node.folder}; run "
                f"headway fleet up --name {node.name} there"
            )
        time.sleep(0.1)
