"""The CPU priority of a server, which follows the priority it inherits where that is permitted."""

from __future__ import annotations

import contextlib
import os
import select

MOST = -15
"""As far as a server is ever raised: the kernel's own threads come before it."""


class Niceness:
    """A process whose nice value is changed and given back.

    A level of priority is a step of nice; a server that its owner made nicer than that
    is raised, one that is not is left alone.
    """

    def __init__(self, pid: int, pidfd: int) -> None:
        self._pid = pid
        self._pidfd = pidfd
        self._own: int | None = None
        """What it was before we changed it."""
        self.permitted = True

    def follow(self, level: int | None) -> None:
        """Work for somebody of this level; None: for nobody."""
        if not self.permitted:
            return
        try:
            if not self._is_alive():
                self.permitted = False
            elif level is None:
                self._restore()
            else:
                self._raise_to(max(-level, MOST))
        except OSError:
            self.permitted = False

    def _raise_to(self, nice: int) -> None:
        if self._own is None:
            own = os.getpriority(os.PRIO_PROCESS, self._pid)
            if own <= nice:
                return
            os.setpriority(os.PRIO_PROCESS, self._pid, nice)
            self._own = own
        else:
            os.setpriority(os.PRIO_PROCESS, self._pid, min(self._own, nice))

    def _restore(self) -> None:
        if self._own is not None:
            own, self._own = self._own, None
            os.setpriority(os.PRIO_PROCESS, self._pid, own)

    def close(self) -> None:
        """Leave it as it was found."""
        with contextlib.suppress(OSError):
            if self._is_alive():
                self._restore()

    def _is_alive(self) -> bool:
        """The number may be another process's by now; the descriptor never is. Asking by it needs
        no right over the process, as a signal would."""
        over = select.poll()
        over.register(self._pidfd, select.POLLIN)
        return not over.poll(0)
