"""The two pages a client shares with the daemon, each a sealed memfd.

The daemon's page is sealed against future writes after the daemon has mapped it, so a client can
read it and nothing else, whatever it tries with the descriptor. Neither can be resized, so reading
the client's page can never fault.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct

from headway.live.protocol import MAGIC, PAGE, VERSION, ClientPage, parse_client_page

F_ADD_SEALS = 1033
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 1, 2, 4, 16

_HEARTBEAT = 8
_LEASE = 16
_SPLIT = 24
_BUSY = 8


def _memfd(name: str) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, PAGE)
    return fd


class Pages:
    """Both pages of one client, as the daemon sees them."""

    def __init__(self, split_ns: int) -> None:
        self.daemon_fd = _memfd("headway-daemon")
        self.client_fd = _memfd("headway-client")
        self._daemon = mmap.mmap(self.daemon_fd, PAGE)
        self._client = mmap.mmap(self.client_fd, PAGE, prot=mmap.PROT_READ)
        struct.pack_into("<II", self._daemon, 0, MAGIC, VERSION)
        struct.pack_into("<Q", self._daemon, _SPLIT, split_ns)
        # Aligned 32- and 64-bit stores: a client never sees half of one.
        self._heartbeat = ctypes.c_uint64.from_buffer(self._daemon, _HEARTBEAT)
        self._lease = ctypes.c_uint32.from_buffer(self._daemon, _LEASE)
        fcntl.fcntl(
            self.daemon_fd, F_ADD_SEALS, SEAL_FUTURE_WRITE | SEAL_SHRINK | SEAL_GROW | SEAL_SEAL
        )
        fcntl.fcntl(self.client_fd, F_ADD_SEALS, SEAL_SHRINK | SEAL_GROW | SEAL_SEAL)

    def beat(self, now_ns: int) -> None:
        """Show that the daemon lives."""
        self._heartbeat.value = now_ns

    def set_lease(self, on: bool) -> None:
        self._lease.value = 1 if on else 0

    @property
    def client(self) -> ClientPage:
        """A copy of what the client says."""
        return parse_client_page(self._client[:128])

    def close_fds(self) -> None:
        """The client has its own by now."""
        for fd in (self.daemon_fd, self.client_fd):
            if fd >= 0:
                os.close(fd)
        self.daemon_fd = self.client_fd = -1

    def close(self) -> None:
        self.close_fds()
        del self._heartbeat, self._lease
        self._daemon.close()
        self._client.close()
