"""Starting a program under Headway: environment, then exec. The program is the process itself, so
its exit code, signals and stdin are its own."""

from __future__ import annotations

import os
import shutil
import stat
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from headway.live.wire import paths

LIBRARY = "libheadway.so"


class LaunchError(OSError):
    """The program cannot be started as asked; one line."""


def library() -> Path:
    """The interposer: in `live/`, or where the build put it."""
    places = [Path(__file__).parents[1], Path(sysconfig.get_path("platlib")) / "headway" / "live"]
    for place in places:
        if (place / LIBRARY).is_file():
            return place / LIBRARY
    raise LaunchError(f"{LIBRARY} is missing; run make setup, or install headway again")


def find_program(command: str) -> str:
    found = shutil.which(command)
    if found is None:
        raise LaunchError(f"{command}: no such program")
    return found


def why_not_interposed(program: str) -> str | None:
    """Programs that ignore LD_PRELOAD: those with rights of their own, static and 32-bit ones."""
    try:
        info = Path(program).stat()
        with Path(program).open("rb") as file:
            head = file.read(65536)
    except OSError:
        return None
    if info.st_mode & (stat.S_ISUID | stat.S_ISGID) and info.st_uid != os.geteuid():
        return "it runs with another user's rights, and the loader ignores LD_PRELOAD then"
    if _has_capabilities(program):
        return "it has capabilities of its own, and the loader ignores LD_PRELOAD then"
    if head.startswith(b"\x7fELF\x01"):
        return "it is a 32-bit program, and the interposer is not"
    if head.startswith(b"\x7fELF") and b"/ld-" not in head and b"ld-linux" not in head:
        return "it is linked statically, so nothing can be put before it"
    return None


def _has_capabilities(program: str) -> bool:
    try:
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def device_cpu() -> int:
    """The CPU that plays the GPU: the last one."""
    return (os.cpu_count() or 1) - 1


def environment(
    folder: Path, token: str, *, software_gpu: int | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a managed program; its own LD_PRELOAD and OpenCL layers are kept, after
    ours."""
    env = {**os.environ, **(more or {})}
    for name in ("LD_PRELOAD", "OPENCL_LAYERS"):
        own = env.get(name, "")
        env[name] = f"{library()}:{own}" if own else str(library())
    env["HEADWAY_SOCKET"] = str(paths.client_socket(folder))
    env["HEADWAY_TOKEN"] = token
    if software_gpu is not None:
        env["HEADWAY_SOFTWARE_GPU"] = str(software_gpu)
        env["LP_NUM_THREADS"] = "1"
        env["LIBGL_ALWAYS_SOFTWARE"] = "1"
        env["POCL_MAX_PTHREAD_COUNT"] = "1"
    return env
