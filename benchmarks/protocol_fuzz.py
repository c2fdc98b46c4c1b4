"""Nonsense for the daemon: does it ever die, lie, or let two groups on at once?

Fuzzers say hello in wrong ways, send random, truncated and misplaced messages, write random page
images and talk nonsense on the control socket, while an honest client beside them keeps asking.
While the honest one has the GPU, no grant may reach anybody else; the daemon's count of its groups
must be the true one; the status must stay readable.

    python -m benchmarks.protocol_fuzz [--messages 1000000] [--seed 1]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.live.gate.arbiter import Bounds
from headway.live.wire.layout import MAGIC, WELCOME
from headway.live.wire.protocol import (
    ENTER,
    GRANT,
    LEAVE,
    MESSAGE_SIZE,
    Message,
    build_hello,
    build_message,
    parse_message,
)
from tests.integration.daemon_client import Actor, Client, DaemonProcess, Gone

FUZZERS = 12
UNDER_GRANT = 40
"""Messages sent while the honest client has the GPU."""
BETWEEN = 400
NUMBERS = (0, 1, 2, 3, 4, 16, 2**31, 2**32 - 1)
TIMES = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
HOLD_NS = Bounds().hold_ns


@dataclass
class Outcome:
    """What was sent, and what came of it."""

    sent: Counter[str] = field(default_factory=Counter)
    honest_groups: int = 0
    checked: int = 0
    """Rounds in which nobody else could have had a grant, and it was looked for."""
    two_at_once: int = 0
    worst_ms: float = 0.0
    dropped: int = 0
    grown_kb: int = 0
    seconds: float = 0.0

    def table(self) -> str:
        lines = [f"{kind:<24}{count:>10}" for kind, count in sorted(self.sent.items())]
        total = sum(self.sent.values())
        lines.append(
            f"{total} messages and page images in {self.seconds:.0f} s; {self.dropped} connections"
            f" dropped; honest client: {self.honest_groups} groups, worst wait {self.worst_ms:.0f}"
            f" ms, {self.checked} rounds checked, {self.two_at_once} with two at once; the daemon"
            f" grew by {self.grown_kb} kB"
        )
        return "\n".join(lines)


class Mouth:
    """A client in a process of its own, which sends what it is told to. What it does counts against
    that process, not against the honest client's."""

    def __init__(self, daemon: DaemonProcess, name: str) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                self._ours.close()
                _speak(theirs, daemon.socket, name)
            os._exit(0)
        theirs.close()
        self._ours.settimeout(30)
        assert self._ours.recv(1), f"{name} was not let in"

    def send(self, data: bytes) -> bool:
        """Send a message; False if the daemon has closed the connection."""
        return self._ask(b"s" + data) == b"1"

    def write_page(self, data: bytes) -> None:
        self._ask(b"p" + data)

    def one_group(self) -> bool:
        """Ask for a group and say that it is done; False if the connection was closed."""
        return self._ask(b"g") == b"1"

    def flood(self, data: bytes, count: int) -> bool:
        """Send the same as often as there is room for, at most so often."""
        return self._ask(b"f" + bytes([count]) + data) == b"1"

    def drain(self) -> int:
        """How many grants came since the last time."""
        return int(self._ask(b"d") or b"0")

    def _ask(self, request: bytes) -> bytes:
        self._ours.send(request)
        return self._ours.recv(64)

    def close(self) -> None:
        self._ours.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _speak(orders: socket.socket, path: Path, name: str) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # do not outlive the test
    with Client(path, name) as client:
        orders.send(b"!")
        while request := orders.recv(65536):
            kind, data = request[:1], request[1:]
            answer = b"1"
            try:
                if kind == b"s":
                    client.socket.send(data)
                elif kind == b"p":
                    client.write_page(data)
                elif kind == b"g":
                    client.one_group()
                elif kind == b"f":
                    client.socket.setblocking(False)
                    for _ in range(data[0]):
                        client.socket.send(data[1:])
                else:
                    answer = str(_grants(client)).encode()
            except BlockingIOError:
                pass
            except (ConnectionError, Gone):
                answer = b"0"
            orders.send(answer)


def _grants(client: Client) -> int:
    grants = 0
    client.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while data := client.socket.recv(MESSAGE_SIZE):
            grants += parse_message(data).type == GRANT
    client.socket.settimeout(10)
    return grants


class Fuzz:
    """An honest client and its neighbours."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.outcome = Outcome()
        self.daemon = DaemonProcess(folder)
        token = self.daemon.ask(do="run", name="honest", priority=9)["token"]
        self.honest = self.daemon.client("honest", token)
        self.fuzzers = [Mouth(self.daemon, f"fuzz{i}") for i in range(FUZZERS)]
        # Three of them in processes of their own: as servers, for whoever names them.
        self.servers = [Actor(self.daemon, f"server{i}") for i in range(3)]
        for server in self.servers:
            server.do("connect")
        self.control = self._call()

    def close(self) -> None:
        self.honest.close()
        for fuzzer in self.fuzzers:
            fuzzer.close()
        for server in self.servers:
            server.__exit__(None, None, None)
        self.control.close()
        self.daemon.end()

    def _call(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        connection.connect(str(self.daemon.folder / "control.sock"))
        return connection

    # -- what is sent --------------------------------------------------------------------------

    def send_some(self, count: int) -> None:
        for _ in range(count):
            place = self.random.randrange(FUZZERS)
            draw = self.random.random()
            if draw < 0.02:
                self._bad_hello()
            elif draw < 0.04:
                self._control_line()
            elif draw < 0.14:
                self.outcome.sent["page image"] += 1
                self.fuzzers[place].write_page(self.random.randbytes(128))
            else:
                self._message(place)

    def _message(self, place: int) -> None:
        kind, data = self._bytes()
        self.outcome.sent[kind] += 1
        if not self.fuzzers[place].send(data):
            self.outcome.dropped += 1
            self.fuzzers[place].close()
            self.fuzzers[place] = Mouth(self.daemon, f"fuzz{place}")

    def _bytes(self) -> tuple[str, bytes]:
        pick = self.random
        draw = pick.random()
        if draw < 0.01:
            return "random bytes", pick.randbytes(pick.randrange(300))
        if draw < 0.02:
            valid = build_message(Message(1, 1))
            return "truncated message", valid[: pick.randrange(len(valid))]
        if draw < 0.03:
            return "random fields", pick.randbytes(MESSAGE_SIZE)
        if draw < 0.035:
            return "hello again", build_hello("again")
        if draw < 0.04:
            return "grant from a client", build_message(Message(GRANT, pick.randrange(9)))
        if draw < 0.3:  # servers that exist, do not, are their own or somebody's who asks it
            own = (*(server.pid for server in self.servers), os.getpid(), self.daemon.pid)
            pid = pick.choice((*own, *NUMBERS, *TIMES))
            return "enter", build_message(Message(ENTER, 1, units=pid))
        if draw < 0.35:
            return "leave", build_message(Message(LEAVE, 1, units=pick.choice(TIMES)))
        message = Message(
            type=pick.randrange(1, 5),
            seq=pick.choice(NUMBERS),
            signature=pick.randrange(2**64),
            submit_ns=pick.choice(TIMES),
            start_ns=pick.choice((*TIMES, time.monotonic_ns())),
            finish_ns=pick.choice(TIMES),
            units=pick.choice(TIMES),
            frame=pick.random() < 0.5,
            passed=pick.choice(NUMBERS),
        )
        return "wrong order or numbers", build_message(message)

    def _bad_hello(self) -> None:
        pick = self.random
        hello = bytearray(build_hello("hello", pick.choice(("", "0" * 32))))
        for _ in range(pick.randrange(4)):
            hello[pick.randrange(len(hello))] = pick.randrange(256)
        kinds = (bytes(hello), pick.randbytes(len(hello)), bytes(hello[: pick.randrange(136)]), b"")
        self.outcome.sent["hello"] += 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(10)
            with contextlib.suppress(ConnectionError):
                connection.connect(str(self.daemon.socket))
                connection.send(pick.choice(kinds))
                if pick.random() < 0.5:
                    data = connection.recv(64)  # descriptors that come with it are thrown away
                    assert not data or WELCOME.read(data, "magic") == MAGIC

    def _control_line(self) -> None:
        pick = self.random
        texts = ("x" * 300, "5ms/20ms", "9", "*", "ht", "prt", "\0")
        values: tuple[Any, ...] = (None, True, -1, 1e308, [], {}, *texts)
        request = {
            "do": pick.choice(("set", "run", "status", "reload", "nothing", None, 5, "_text")),
            "task": pick.choice((f"fuzz{pick.randrange(FUZZERS)}", "server0")),
            **{
                key: pick.choice(values)
                for key in ("name", "policy", "priority", "reserve", "shared")
                if pick.random() < 0.4
            },
        }
        if request.get("priority") == "9":  # the honest one alone is that important
            request["priority"] = "1"
        line = json.dumps(request).encode()
        draw = pick.random()
        if draw < 0.2:
            line = pick.randbytes(pick.randrange(200)).replace(b"\n", b"")
        elif draw < 0.25:
            line = b"[" * pick.randrange(30_000)
        self.outcome.sent["control line"] += 1
        self.control.sendall(line + b"\n")
        data = bytearray()
        while not data.endswith(b"\n"):
            part = self.control.recv(65536)
            assert part, "the daemon closed a control connection that sent whole lines"
            data += part
        assert isinstance(json.loads(data)["ok"], bool)

    # -- what is checked -----------------------------------------------------------------------

    def round(self) -> None:
        since_ns = time.monotonic_ns()
        self.honest.submit()
        granted_ns = self.honest.wait_grant(5)
        self.outcome.worst_ms = max(self.outcome.worst_ms, (granted_ns - since_ns) / 1e6)
        self.outcome.honest_groups += 1
        self.grants_of_fuzzers()  # those from before
        before_ns = time.monotonic_ns()
        self.send_some(UNDER_GRANT)
        seen = self.grants_of_fuzzers()
        if time.monotonic_ns() - min(granted_ns, before_ns) < HOLD_NS:
            self.outcome.checked += 1
            self.outcome.two_at_once += bool(seen)
        self.honest.complete()
        self.send_some(BETWEEN)
        self.grants_of_fuzzers()

    def grants_of_fuzzers(self) -> int:
        return sum(fuzzer.drain() for fuzzer in self.fuzzers)

    def check_status(self) -> None:
        status = self.daemon.status()
        assert status["restarts"] == 0, self.daemon.log.read_text()[-2000:]
        entry = self.daemon.one("honest")
        assert entry["groups"] == self.outcome.honest_groups
        assert entry["priority"] == "9"


def run_fuzz(folder: Path, seed: int, messages: int) -> Outcome:
    """Send so many; the rounds and what is in them depend on the seed alone."""
    fuzz = Fuzz(folder, seed)
    since = time.monotonic()
    try:
        fuzz.round()
        before_kb = fuzz.daemon.memory_kb()
        while sum(fuzz.outcome.sent.values()) < messages:
            fuzz.round()
            if fuzz.outcome.honest_groups % 10 == 0:
                fuzz.check_status()
        fuzz.check_status()
        assert fuzz.daemon.is_alive()
        told = fuzz.daemon.log.read_text().splitlines()
        assert all("kept the GPU too long" in line and "fuzz" in line for line in told), told
        fuzz.outcome.grown_kb = fuzz.daemon.memory_kb() - before_kb
        fuzz.outcome.seconds = time.monotonic() - since
    finally:
        fuzz.close()
    return fuzz.outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_fuzz(Path(folder) / "run", options.seed, options.messages)
    print(outcome.table())
    raise SystemExit(1 if outcome.two_at_once else 0)


if __name__ == "__main__":
    main()
