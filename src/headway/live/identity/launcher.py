"""Starting a program under Headway: environment, then exec. The program is the process itself, so
its exit code, signals and stdin are its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.live.devices.mps import CLIENT_PRIORITY, Mps
from headway.live.wire import paths
from headway.live.wire.libraries import installed

LIBRARY = "libheadway.so"
PREDICTS = "libheadway_predict.so"
"""The same with a monitor of OpenGL contexts, which hooks many more functions."""
ANY_ORDER = "verify_asan_link_order=0"
TOKEN = re.compile(r"[0-9a-f]{32}")
MOST_CPUS = 65_536
_ENDS_A_NAME = re.compile(r"[\s:;$]")
"""In LD_PRELOAD and OPENCL_LAYERS: blanks and colons end a name, `$` begins $LIB and $ORIGIN."""


class LaunchError(OSError):
    """The program cannot be managed; one line."""


# -- the interposer --------------------------------------------------------------------------------


def library() -> Path:
    """The interposer."""
    try:
        return installed(LIBRARY)
    except FileNotFoundError as error:
        raise LaunchError(str(error)) from None


def predicting_library() -> Path:
    """The interposer that predicts what OpenGL's groups cost."""
    try:
        return installed(PREDICTS)
    except FileNotFoundError as error:
        raise LaunchError(str(error)) from None


def preloadable(folder: Path, *, predicts: bool = False) -> Path:
    """The interposer under a name that can stand in LD_PRELOAD: its own, or, if that has a
    character that would end it, a link's in a folder that is this user's alone."""
    found = (predicting_library() if predicts else library()).absolute()
    if not _ENDS_A_NAME.search(str(found)):
        return found
    for place in (folder, paths.fallback()):
        if not _ENDS_A_NAME.search(str(place)):
            with contextlib.suppress(OSError):
                paths.prepare(place)
                return _link(place, found)
    raise LaunchError(f"{found}: a path with blanks, colons or $ cannot stand in LD_PRELOAD")


def _link(folder: Path, target: Path) -> Path:
    """A symbolic link to the target, in a folder where nobody else can change it."""
    digest = hashlib.sha256(os.fsencode(target)).hexdigest()[:16]
    link = folder / f"libheadway-{digest}.so"
    with contextlib.suppress(OSError):
        if link.readlink() == target:
            return link
    new = folder / f"{link.name}.{secrets.token_hex(4)}"
    new.symlink_to(target)
    new.replace(link)
    return link


ON_THE_CPU = {
    "LP_NUM_THREADS": "1",
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "POCL_MAX_PTHREAD_COUNT": "1",
}
"""Mesa and PoCL draw and compute on the CPU, with one thread each."""

# -- the environment -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What a daemon says of a launch."""

    token: str
    software_gpu: int | None = None
    time_namespace: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def read_answer(answer: Mapping[str, Any], folder: Path) -> Told:
    """The answer to `run`: known keys, each of its known form. ValueError says which is not."""
    token, device = answer.get("token"), answer.get("software_gpu")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise ValueError("its token has another form")
    if device is not None and not (type(device) is int and 0 <= device < MOST_CPUS):
        raise ValueError("its software GPU is no CPU")
    time = answer.get("time_namespace")
    if time is not None and type(time) is not int:
        raise ValueError("its time namespace is no number")
    variables, known = answer.get("environment") or {}, Mps(folder).known
    if not isinstance(variables, dict) or any(
        v not in known.get(k, ()) for k, v in variables.items()
    ):
        raise ValueError("it sets variables that are not known, or to something else than expected")
    return Told(token, device, time, variables)


def device_cpu() -> int:
    """The CPU that plays the GPU: the last one."""
    return (os.cpu_count() or 1) - 1


def environment(
    folder: Path,
    token: str,
    *,
    software_gpu: int | None,
    more: Mapping[str, str] | None = None,
    predicts: bool = False,
) -> dict[str, str]:
    """The environment of a managed program; its own LD_PRELOAD and OpenCL layers are kept, after
    ours."""
    env = {**os.environ, **(more or {})}
    if CLIENT_PRIORITY in os.environ:  # the person's own choice
        env[CLIENT_PRIORITY] = os.environ[CLIENT_PRIORITY]
    ours = str(preloadable(folder, predicts=predicts))
    for name in ("LD_PRELOAD", "OPENCL_LAYERS"):
        own = env.get(name, "")
        env[name] = f"{ours}:{own}" if own else ours
    # GCC's address sanitizer wants to be the first library of all; it works as the second, too.
    env["ASAN_OPTIONS"] = ":".join(filter(None, (ANY_ORDER, env.get("ASAN_OPTIONS"))))
    env["HEADWAY_SOCKET"] = str(paths.client_socket(folder))
    env["HEADWAY_TOKEN"] = token
    if software_gpu is not None:
        env |= ON_THE_CPU
        env["HEADWAY_SOFTWARE_GPU"] = str(software_gpu)
    return env
