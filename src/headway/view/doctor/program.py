"""One program: whether Headway can be put before it, and what it uses."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

from headway.live.identity.elf import Elf, read_elf
from headway.live.identity.program import (
    VULKAN,
    ProgramError,
    find_program,
    interpreter_of,
    why_not_interposed,
)
from headway.view.doctor import Check, Finding, bad, ok, warn

MANAGED = (
    "libGL.",
    "libGLX.",
    "libOpenGL.",
    "libEGL.",
    "libGLESv",
    "libGLdispatch.",
    "libcuda.",
    "libOpenCL.",
)


def program_checks(command: str) -> dict[str, Check]:
    """The checks of `headway doctor -- command`."""
    return {
        "program": partial(interposed, command),
        "its libraries": partial(libraries, command),
    }


def interposed(command: str) -> Finding:
    from headway.live.identity import launcher

    try:
        path = str(interpreter_of(Path(find_program(command))))
        problem = why_not_interposed(path, launcher.library())
    except ProgramError as error:
        return bad(str(error), "a program that is on PATH, or its whole path")
    except launcher.LaunchError as error:
        return bad(str(error), "see the interposer, above")
    if problem is not None:
        return bad(f"{path} cannot be managed: {problem}", "a dynamically linked, plain program")
    return ok(f"{path} can be managed")


def libraries(command: str) -> Finding:
    try:
        path = interpreter_of(Path(find_program(command)))
        elf = read_elf(path)
    except ProgramError:
        return warn("not looked at: there is no such program", "see above")
    except (OSError, ValueError, struct.error) as error:
        return warn(f"{command} cannot be read: {error}", "see whether the file is whole")
    if elf is None:
        return warn(f"{path} is not a program of this kind of machine", "name the program itself")
    return _judge(elf)


def _judge(elf: Elf) -> Finding:
    if elf.is_static:
        return warn("none: it is linked statically", "a dynamically linked build of it")
    managed = [name for name in elf.needed if name.startswith(MANAGED)]
    unmanaged = [name for name in elf.needed if name.startswith(VULKAN)]
    if unmanaged:
        also = f"; {', '.join(managed)} is managed" if managed else ""
        found = f"{', '.join(unmanaged)}: what it does there passes unmanaged{also}"
        return warn(found, "OpenGL, OpenGL ES, EGL, GLX, CUDA and OpenCL are managed so far")
    if managed:
        return ok(", ".join(managed))
    return ok(f"none for a GPU among {len(elf.needed)}; what it loads later is covered too")
