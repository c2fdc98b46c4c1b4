"""From a program and what is wanted of it to the environment in which it is managed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.live.api import client
from headway.live.identity import launcher, program
from headway.live.identity.launcher import LaunchError
from headway.live.wire.paths import time_namespace


def display() -> dict[str, str | None]:
    """What a daemon may want to know of this process's display."""
    return {"display": os.environ.get("DISPLAY"), "authority": os.environ.get("XAUTHORITY")}


def managed(
    folder: Path,
    path: str,
    options: Mapping[str, Any],
    *,
    starts_daemon: bool = True,
    software_gpu: bool = False,
    require: bool = False,
) -> dict[str, str]:
    """The environment in which the program at this path is managed by the daemon of this folder.
    OSError says why it cannot be; client.Refused, what of the options is wrong. `require`: nothing
    that is known to pass unmanaged will do, and the program's own loader is asked, too."""
    problem = program.why_not_interposed(path, launcher.library())
    if problem is not None:
        raise LaunchError(f"{path} cannot be managed: {problem}")
    request = {"do": "run", **options, **display()}
    try:
        answer = client.ask(folder, request)
    except (client.Silent, client.Failed):
        raise
    except client.NoDaemon:
        if not starts_daemon:
            raise
        client.start(folder, *(["--software-gpu"] if software_gpu else []))
        answer = client.ask(folder, request)
    try:
        told = launcher.read_answer(answer, folder)
    except ValueError as error:
        raise LaunchError(f"the daemon in {folder} answers in words of another: {error}") from None
    if told.time_namespace not in (None, time_namespace()):
        raise LaunchError(
            f"the daemon in {folder} is in another time namespace, with another clock"
        )
    device = launcher.device_cpu() if software_gpu else told.software_gpu
    predicts = options.get("predict") is not None
    env = launcher.environment(
        folder, told.token, software_gpu=device, more=told.variables, predicts=predicts
    )
    if told.time_namespace is not None:
        env["HEADWAY_TIME_NAMESPACE"] = str(told.time_namespace)
    if require:
        env["HEADWAY_REQUIRE"] = "1"
        interposer = launcher.preloadable(folder, predicts=predicts)
        problem = program.why_not_all(path, interposer, env)
        if problem is not None:
            raise LaunchError(f"{path} cannot be managed: {problem}")
    return env
