"""An interposer and a daemon of different versions: the program runs unmanaged, and is told why."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.live.identity import launcher
from headway.live.wire import layout
from headway.live.wire.pages import Pages
from tests.bench.softcuda import CHECKSUM, JOBS, KERNELS
from tests.integration import cuda

REFUSED = "headway: the daemon refuses this program, which goes unmanaged: "


@contextmanager
def other_daemon(folder: Path, version: int, *, answers: bool) -> Iterator[Path]:
    """A daemon of another version, in this process: it hangs up, or greets in its own words."""
    path = folder / "clients.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        thread = threading.Thread(target=serve, args=(listener, version, answers))
        thread.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def serve(listener: socket.socket, version: int, answers: bool) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            assert layout.HELLO.read(connection.recv(4096), "version") == layout.VERSION
            if answers:
                pages = Pages()
                welcome = layout.WELCOME.pack(layout.MAGIC, version, 1, 0)
                socket.send_fds(connection, [welcome], [pages.daemon_fd, pages.client_fd])
                pages.close()


@pytest.mark.parametrize("answers", [True, False])
def test_a_program_runs_unmanaged_beside_a_daemon_of_another_version(
    gpu: cuda.Gpu, tmp_path: Path, answers: bool
) -> None:
    with other_daemon(tmp_path, layout.VERSION ^ 1, answers=answers) as path:
        env = {"HEADWAY_SOCKET": str(path), "HEADWAY_VERBOSE": "1"}
        env |= {"LD_PRELOAD": str(launcher.library()), "PATH": os.environ["PATH"]}
        result = gpu.run("cudaapp", "fix", 50, KERNELS, 0, JOBS, env=env)
    assert cuda.answer(result)["checksum"] == CHECKSUM
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(REFUSED)
    assert "another version" in lines[0]
