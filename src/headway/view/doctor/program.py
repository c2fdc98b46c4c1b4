"""One program: whether Headway can be put before it, and what it uses."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

from headway.view.doctor import Check, Finding, bad, ok, warn
from headway.view.doctor.elf import Elf, read_elf

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
UNMANAGED = ("libvulkan.",)
SHEBANGS = 4
"""Scripts whose interpreter is a script are followed so far, as the kernel does."""


def program_checks(command: str) -> dict[str, Check]:
    """The checks of `headway doctor -- command`."""
    return {
        "program": partial(interposed, command),
        "its libraries": partial(libraries, command),
    }


def interposed(command: str) -> Finding:
    from headway.live.identity import launcher

    try:
        path = launcher.find_program(command)
    except launcher.LaunchError as error:
        return bad(str(error), "a program that is on PATH, or its whole path")
    path = str(interpreter_of(Path(path)))
    problem = launcher.why_not_interposed(path)
    if problem is not None:
        return bad(f"{path} cannot be managed: {problem}", "a dynamically linked, plain program")
    return ok(f"{path} can be managed")


def libraries(command: str) -> Finding:
    from headway.live.identity import launcher

    try:
        path = interpreter_of(Path(launcher.find_program(command)))
        elf = read_elf(path)
    except launcher.LaunchError:
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
    unmanaged = [name for name in elf.needed if name.startswith(UNMANAGED)]
    if unmanaged and not managed:
        found = f"{', '.join(unmanaged)}: what it does there passes unmanaged"
        return warn(found, "OpenGL, OpenGL ES, EGL, GLX, CUDA and OpenCL are managed so far")
    if managed:
        return ok(", ".join(managed + unmanaged))
    return ok(f"none for a GPU among {len(elf.needed)}; what it loads later is covered too")


def interpreter_of(path: Path) -> Path:
    """What runs in the end: of a script, its interpreter."""
    for _ in range(SHEBANGS):
        try:
            with path.open("rb") as file:
                line = file.readline(256)
        except OSError:
            return path
        if not line.startswith(b"#!"):
            return path
        words = line[2:].decode(errors="replace").split()
        if not words:
            return path
        path = _named_by(words)
    return path


def _named_by(words: list[str]) -> Path:
    """`/usr/bin/env python3` stands for python3."""
    from headway.live.identity import launcher

    if Path(words[0]).name == "env":
        names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
        if names:
            try:
                return Path(launcher.find_program(names[0]))
            except launcher.LaunchError:
                pass
    return Path(words[0])
