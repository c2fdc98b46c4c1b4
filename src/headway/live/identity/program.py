"""What is known of a program before it runs: whether there is one, and what keeps the interposer
out of it."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path

from headway.live.identity.elf import Elf, read_elf

NOT_FOUND, NOT_STARTED = 127, 126
"""Exit codes, as `env` and shells have them."""
SHELL = "/bin/sh"
"""What runs a script that names no interpreter."""
SHEBANGS = 4
"""Scripts whose interpreter is a script are followed so far, as the kernel does."""
VULKAN = "libvulkan."
"""Passes unmanaged."""
LIST_S = 5.0
"""How long a loader may take to list what it would load."""


class ProgramError(OSError):
    """There is no such program, or none that can be started; one line, and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_program(command: str) -> str:
    """The file that a command names, by PATH."""
    found = shutil.which(command)
    if found is not None:
        return found
    if os.path.dirname(command) and os.path.exists(command):  # noqa: PTH110, PTH120 - as typed
        why = "is a folder" if os.path.isdir(command) else "may not be executed"  # noqa: PTH112
        raise ProgramError(f"{command}: {why}", NOT_STARTED)
    raise ProgramError(f"{command}: no such program", NOT_FOUND)


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
            return Path(SHELL)
        path = _named_by(words)
    return path


def _named_by(words: list[str]) -> Path:
    """`/usr/bin/env python3` stands for python3."""
    if Path(words[0]).name == "env":
        names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
        if names:
            try:
                return Path(find_program(names[0]))
            except ProgramError:
                pass
    return Path(words[0])


# -- what keeps the interposer out -----------------------------------------------------------------


def why_not_interposed(program: str, library: Path) -> str | None:
    """Programs that ignore LD_PRELOAD or cannot take this library: those with rights of their own,
    static ones, those of another C library or another kind of processor."""
    path = interpreter_of(Path(program))
    try:
        info, elf = path.stat(), read_elf(path)
    except (OSError, ValueError, struct.error):
        return None
    other = (info.st_mode & stat.S_ISUID and info.st_uid != os.geteuid()) or (
        info.st_mode & stat.S_ISGID and info.st_gid != os.getegid()
    )
    if other:
        return "it runs with another user's rights, and the loader ignores LD_PRELOAD then"
    if _has_capabilities(path):
        return "it has capabilities of its own, and the loader ignores LD_PRELOAD then"
    return None if elf is None else _why_not_loaded(elf, library)


def _why_not_loaded(elf: Elf, library: Path) -> str | None:
    if elf.bits == 32:
        return "it is a 32-bit program, and the interposer is not"
    if elf.is_static:
        return "it is linked statically, so nothing can be put before it"
    if not Path(elf.loader).name.startswith("ld-linux"):
        return f"its C library is another than the interposer's (it is loaded by {elf.loader})"
    try:
        own = read_elf(library)
    except (OSError, ValueError, struct.error):
        own = None
    if own is not None and own.machine != elf.machine:
        return "it is for another kind of processor than the interposer"
    return None


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def why_not_all(program: str, preload: Path, env: dict[str, str]) -> str | None:
    """Why not all that the program does on a GPU would be managed: it is linked with Vulkan, or its
    own loader would not put the library before it in this environment. The loader is asked to list
    what it would load; nothing of the program runs."""
    path = interpreter_of(Path(program)).absolute()
    try:
        elf = read_elf(path)
        if elf is None:
            return f"{path} is no program that a loader can be asked about"
        if any(name.startswith(VULKAN) for name in elf.needed):
            return "it is linked with Vulkan, which passes unmanaged"
        done = subprocess.run(  # noqa: S603 - the loader of a program that is about to run
            [elf.loader, "--list", str(path)],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIST_S,
            check=False,
        )
    except (OSError, ValueError, struct.error, subprocess.SubprocessError) as error:
        return f"its loader cannot be asked what it would load ({error})"
    if os.fsencode(preload) in (line.split(b" (")[0].strip() for line in done.stdout.splitlines()):
        return None
    said = done.stderr.decode(errors="replace").split("\n")[0].strip()
    return f"its loader does not put {preload} before it{': ' if said else ''}{said}"
