"""Requests of a browser on this machine: whose they may be, and what each is answered.

Anybody on a machine can reach a port of the loopback interface, and so can pages from elsewhere
that a browser shows. Therefore every address begins with a token that only its owner was told,
`Host` must mean this machine, and `Origin`, where a browser says it, this very page.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BYTES = 4096
"""Of a change that is asked for."""
AT_ONCE = 32
"""Requests; beyond that connections are closed."""
PATIENCE_S = 10.0
CHANGES = ("task", "policy", "priority", "reserve", "period", "deadline", "slowdown")
"""What a person may change here: what `headway set` takes."""
Change = Callable[[dict[str, str]], str]


@dataclass(frozen=True, slots=True)
class Site:
    """What is served: the page, its data, what `headway top` shows, and perhaps changes."""

    token: str
    page: Callable[[], bytes]
    data: Callable[[], bytes]
    now: Callable[[], bytes]
    change: Change | None
    """ValueError, with one line, if it is turned down; None: this page is read-only."""


class Server(ThreadingHTTPServer):
    """Listens at the loopback interface alone; port 0: any that is free."""

    daemon_threads = True

    def __init__(self, site: Site, port: int) -> None:
        self.site = site
        self._room = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost"))

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/{self.site.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = PATIENCE_S
    server_version = "headway"
    sys_version = ""

    def do_GET(self) -> None:
        site, name = self.server.site, self._asked_for()
        if name is None:
            return
        pages = {"": (site.page, "text/html"), "data": (site.data, "application/json")}
        pages["now"] = (site.now, "application/json")
        if name not in pages:
            self._answer(HTTPStatus.NOT_FOUND, "nothing is at this address")
            return
        make, kind = pages[name]
        self._send(HTTPStatus.OK, make(), kind)

    def do_POST(self) -> None:
        name = self._asked_for()
        if name is None:
            return
        change = self.server.site.change
        if name != "set":
            self._answer(HTTPStatus.NOT_FOUND, "nothing can be changed at this address")
        elif change is None:
            why = "this page is read-only; headway web --allow-changes serves one that is not"
            self._answer(HTTPStatus.FORBIDDEN, why)
        elif "Origin" not in self.headers or self.headers.get_content_type() != "application/json":
            self._answer(HTTPStatus.FORBIDDEN, "expected JSON from this page")
        else:
            self._change(change)

    def _change(self, change: Change) -> None:
        try:
            size = int(self.headers.get("Content-Length", ""))
            if not 0 < size <= MOST_BYTES:
                raise ValueError("too long")
            wanted = json.loads(self.rfile.read(size))
            known = wanted.keys() <= {*CHANGES} and "task" in wanted
            if not known or not all(isinstance(value, str) for value in wanted.values()):
                raise ValueError("other keys")
        except (ValueError, AttributeError, RecursionError):
            why = f"expected a JSON object of texts with task and some of {', '.join(CHANGES[1:])}"
            self._answer(HTTPStatus.BAD_REQUEST, why)
            return
        try:
            self._answer(HTTPStatus.OK, change({k: v for k, v in wanted.items() if v}))
        except (ValueError, OSError) as error:
            self._answer(HTTPStatus.CONFLICT, str(error))

    def _asked_for(self) -> str | None:
        """What follows the token; None if the request was turned away."""
        hosts = self.headers.get_all("Host") or []
        origins = self.headers.get_all("Origin") or []
        token, _, name = self.path.removeprefix("/").partition("/")
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "expected this machine as Host")
        elif any(origin != f"http://{hosts[0].lower()}" for origin in origins):
            self._answer(HTTPStatus.FORBIDDEN, "expected this page as Origin")
        elif not hmac.compare_digest(token.encode(), self.server.site.token.encode()):
            why = "expected the address that headway web printed; a new one is made at each start"
            self._answer(HTTPStatus.FORBIDDEN, why)
        else:
            return name
        return None

    def _answer(self, status: HTTPStatus, line: str) -> None:
        self._send(status, line.encode() + b"\n", "text/plain")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Nothing: the address holds the token."""
