"""A daemon in a folder of its own, and clients that speak its protocol, in and out of process.

As a program (`python -m tests.integration.daemon_client SOCKET NAME`) it is a client that does one
step for each line it is told, says when it has done it, and can so be killed at any step.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from headway.engine.events import Event
from headway.live.api.client import ask
from headway.live.wire.layout import CLIENT_PAGE, DAEMON_PAGE, WELCOME
from headway.live.wire.protocol import (
    COMPLETE,
    ENTER,
    GRANT,
    LEAVE,
    MESSAGE_SIZE,
    PAGE,
    RELEASE,
    SUBMIT,
    WITHDRAW,
    Message,
    build_hello,
    build_message,
    parse_message,
)
from headway.view.traces import read_events

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 20.0
"""How long anything may take before it counts as stuck; generous, because machines are busy."""


class Gone(ConnectionError):
    """The daemon closed the connection."""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Poll: for states that nobody announces."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(0.002)


class Client:
    """One channel, as the interposer would open it."""

    def __init__(self, path: Path, name: str = "client", token: str = "") -> None:
        self.seq = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(str(path))
            self.socket.send(build_hello(name, token))
            data, fds, _, _ = socket.recv_fds(self.socket, 64, 2)
            if not data:
                raise Gone("the daemon refused this client")
        except OSError:
            self.socket.close()
            raise
        self.fds = fds
        self._daemon = mmap.mmap(fds[0], PAGE, prot=mmap.PROT_READ)
        self._page = mmap.mmap(fds[1], PAGE)
        self.channel = WELCOME.read(data, "channel")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()
        for page in (self._daemon, self._page):
            page.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    # -- messages ----------------------------------------------------------------------------

    def send(self, kind: int, units: int = 0) -> None:
        now_ns = time.monotonic_ns()
        message = Message(kind, self.seq, 1, now_ns, now_ns, now_ns, units)
        self.socket.send(build_message(message))

    def submit(self) -> None:
        self.seq += 1
        self.send(SUBMIT)

    def complete(self) -> None:
        self.send(COMPLETE)

    def release(self) -> None:
        self.send(RELEASE)

    def rest(self) -> None:
        """Of one that takes turns: it has nothing more to do for now."""
        self.socket.send(build_message(Message(RELEASE, self.seq, frame=True)))

    def withdraw(self) -> None:
        self.send(WITHDRAW)

    def enter(self, server_pid: str | int) -> None:
        self.send(ENTER, int(server_pid))

    def leave(self) -> None:
        self.send(LEAVE)

    def wait_grant(self, timeout_s: float = PATIENCE_S) -> int:
        """When the grant for the group submitted last was here; TimeoutError if it never came."""
        end = time.monotonic() + timeout_s
        while True:
            self.socket.settimeout(max(0.0001, end - time.monotonic()))
            try:
                data = self.socket.recv(MESSAGE_SIZE)
            finally:
                self.socket.settimeout(PATIENCE_S)
            if not data:
                raise Gone("the daemon closed the connection")
            message = parse_message(data)
            if (message.type, message.seq) == (GRANT, self.seq):
                return time.monotonic_ns()

    def wait_end(self) -> None:
        """Read until the connection ends, and raise Gone then."""
        while True:
            self.seq += 1  # no grant is for this one
            self.wait_grant()

    def one_group(self, timeout_s: float = PATIENCE_S) -> int:
        """Submit, wait and complete; nanoseconds from submission to grant."""
        since_ns = time.monotonic_ns()
        self.submit()
        granted_ns = self.wait_grant(timeout_s)
        self.complete()
        return granted_ns - since_ns

    def listen(self, display: str) -> None:
        """As an X server would, at the abstract address."""
        self.display = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.display.bind(f"\0/tmp/.X11-unix/X{display[1:]}")
        self.display.listen(5)

    def fork_a_child(self) -> None:
        """It inherits the connection, and keeps it open."""
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 0)
            os.close(0)
            os.close(1)
            time.sleep(5)
            os._exit(0)

    # -- pages -------------------------------------------------------------------------------

    @property
    def leased(self) -> bool:
        return bool(DAEMON_PAGE.read(self._daemon, "lease"))

    @property
    def heartbeat_ns(self) -> int:
        return DAEMON_PAGE.read(self._daemon, "heartbeat_ns")

    @property
    def split_ns(self) -> int:
        return DAEMON_PAGE.read(self._daemon, "split_ns")

    def set_busy(self, busy: bool) -> None:
        CLIENT_PAGE.write(self._page, "busy", busy)

    def count_passed(self, passed: int) -> None:
        """Groups that went under leases, as it says."""
        CLIENT_PAGE.write(self._page, "passed", passed)

    def set_unmarked(self, unmarked: bool) -> None:
        """Work is on the GPU whose end nothing tells, as it says."""
        CLIENT_PAGE.write(self._page, "unmarked", unmarked)

    def say(self, **fields: int) -> None:
        """In its page."""
        for name, value in fields.items():
            CLIENT_PAGE.write(self._page, name, value)

    def write_page(self, data: bytes) -> None:
        """Whatever it is, from the first byte on."""
        self._page[: len(data)] = data

    def get_lease(self) -> None:
        """Have the GPU alone until the daemon hands out a lease."""
        self.one_group()
        wait_until(lambda: self.leased, "a lease for who is alone")


# -- the daemon ----------------------------------------------------------------------------------


class DaemonProcess:
    """A real daemon."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        descriptors: int | None = None,
        module: str = "headway",
        under: tuple[str, ...] = (),
    ) -> None:
        """`under` is a command that runs the daemon, and becomes its process."""
        self.folder = folder
        self.options = options
        self.socket = folder / "clients.sock"
        self.log = folder.parent / f"{folder.name}.log"
        command = [sys.executable, "-m", module, "daemon", *options]
        if descriptors is not None:
            command = ["bash", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', *command]
        command = [*under, *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "DISPLAY": "", "HEADWAY_DIR": str(folder)},
            )
        self.pid = self.process.pid
        wait_until(self.answers, "the daemon starts")

    def answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended: {self.log.read_text()}")
        try:
            return bool(self.status()["pid"] == self.pid)
        except ConnectionError:
            return False

    def ask(self, **request: object) -> dict[str, Any]:
        return ask(self.folder, request, timeout_s=PATIENCE_S)

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask(do="status")["status"]
        return answer

    def names(self) -> list[str]:
        """The programs it serves, without their pids."""
        return sorted(c["task"].split(".")[0] for c in self.status()["channels"])

    def one(self, name: str) -> dict[str, Any]:
        """What it says of this program."""
        found = [c for c in self.status()["channels"] if c["task"].split(".")[0] == name]
        assert len(found) == 1, found
        entry: dict[str, Any] = found[0]
        return entry

    def client(self, name: str = "client", token: str = "") -> Client:
        return Client(self.socket, name, token)

    def cpu_s(self) -> float:
        """CPU time so far, by the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kb(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("the daemon has no memory")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        if number not in (signal.SIGSTOP, signal.SIGCONT, signal.SIGHUP):
            self.process.wait(PATIENCE_S)

    def recorded(self, trace: Path) -> list[Event]:
        """It ends, and what it recorded is there: another process writes that."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        wait_until(trace.exists, "the recording")
        return list(read_events(trace))

    def end(self) -> None:
        if self.is_alive():
            self.kill()
        self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def running_daemon(
    folder: Path, *options: str, descriptors: int | None = None, under: tuple[str, ...] = ()
) -> Iterator[DaemonProcess]:
    """A daemon that ends with the block."""
    daemon = DaemonProcess(folder, *options, descriptors=descriptors, under=under)
    try:
        yield daemon
    finally:
        daemon.end()


# -- other users ---------------------------------------------------------------------------------


def become(uid: int) -> None:
    """From now on this process is another user's, and has nothing of root's."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def as_user(uid: int, do: Callable[[], object]) -> Any:
    """What another user gets: done in a child, and brought back as JSON. A mistake comes back as
    its text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become(uid)
            found = do()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123 - a descriptor
        data = pipe.read()
    os.waitpid(child, 0)
    return json.loads(data)


# -- a client in a process of its own ------------------------------------------------------------


class Actor:
    """A client process that does one step at a time."""

    def __init__(
        self, daemon: DaemonProcess, name: str = "victim", token: str = "", uid: int | None = None
    ) -> None:
        """With a user's number the process is that user's (which only root can arrange)."""
        words = [str(daemon.socket), name, token, *([] if uid is None else [str(uid)])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.daemon_client", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.pid = self.process.pid

    def __enter__(self) -> Actor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def tell(self, *steps: str) -> None:
        assert self.process.stdin is not None
        for step in steps:
            self.process.stdin.write(step + "\n")

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, *steps: str) -> None:
        """Have it do these steps, and return when it has."""
        for step in steps:
            self.tell(step)
            answer = self.heard()
            assert answer == step, f"told {step!r}, heard {answer!r}"

    def signal(self, number: int) -> None:
        """Send a signal, and return when it has worked."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        elif number == signal.SIGCONT:
            os.waitid(os.P_PID, self.pid, os.WCONTINUED)
        else:
            self.process.wait(PATIENCE_S)

    def exit(self) -> None:
        """Plain exit, from wherever it is."""
        self.tell("exit")
        self.process.wait(PATIENCE_S)


def _act(path: Path, name: str, token: str, uid: int | None = None) -> None:
    if uid is not None:
        become(uid)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # do not outlive the test
    client: Client | None = None
    for line in sys.stdin:
        step = line.strip()
        if step == "exit":
            os._exit(0)
        elif step == "connect":
            client = Client(path, name, token)
        elif client is None:
            raise SystemExit("connect first")
        elif step in ("busy", "idle"):
            client.set_busy(step == "busy")
        else:
            method, *arguments = step.split()
            getattr(client, method)(*arguments)
        print(step, flush=True)


if __name__ == "__main__":
    _act(Path(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
