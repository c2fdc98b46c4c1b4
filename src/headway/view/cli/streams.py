"""Standard input, output and error of the command, whatever they are: closed, a full disk, a pipe
that nobody reads any more."""

from __future__ import annotations

import contextlib
import os
import sys
from errno import EBADF, EDQUOT, EFBIG, EIO, ENOSPC

UNWRITABLE = (EBADF, EDQUOT, EFBIG, EIO, ENOSPC)


def complete() -> None:
    """Put something in the place of a stream that is closed: a file that would get its number could
    be taken for it. What is written to standard output then fails, as it should; in programs that
    are started the stream is closed as before."""
    for fd, name, flags in (
        (0, "stdin", os.O_WRONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_RDWR),
    ):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, flags)
        if opened != fd and _is_closed(fd):
            os.dup2(opened, fd, inheritable=False)
            os.close(opened)
            opened = fd
        setattr(sys, name, os.fdopen(opened, "r" if fd == 0 else "w", closefd=False))


def _is_closed(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False


def describe(error: OSError) -> str:
    """What could not be done, with which file. Files that people name are written elsewhere, and
    named there: what fails without a name is standard output."""
    where = "standard output" if error.errno in UNWRITABLE else ""
    where = where if error.filename is None else error.filename
    why = error.strerror or str(error) or type(error).__name__
    return f"{where}: {why}" if where else why


def drop() -> None:
    """What standard output did not take is not tried again when Python ends, which would say so in
    words of its own."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
