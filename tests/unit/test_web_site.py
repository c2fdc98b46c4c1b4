"""Who may ask the live page what: by token, Host and Origin, whatever else a request says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from headway.view.web.site import AT_ONCE, MOST_BYTES, Change, Server, Site

JSON = {"Content-Type": "application/json"}


def refuse(wanted: dict[str, str]) -> str:
    raise ValueError(f"no task {wanted['task']}")


@contextmanager
def served(change: Change | None = None) -> Iterator[Server]:
    site = Site("secret", lambda: b"<p>", lambda: b"{}", lambda: b"[]", change)
    with Server(site, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(
    server: Server,
    path: str,
    *,
    host: str = "127.0.0.1:{port}",
    method: str = "GET",
    body: str | None = None,
    **headers: str,
) -> tuple[int, str]:
    """The status of an answer, and its text."""
    line = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    line.putrequest(method, path, skip_host=True)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in {"Host": host, **named}.items():
        if value:
            line.putheader(name, value.format(port=server.server_port))
    line.putheader("Content-Length", str(len(body or "")))
    line.endheaders((body or "").encode())
    answer = line.getresponse()
    text = answer.read().decode()
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    line.close()
    return answer.status, text


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}"])
def test_its_owner_sees_the_page(host: str) -> None:
    with served() as server:
        assert asked(server, "/secret/", host=host) == (200, "<p>")
        assert asked(server, "/secret/data", host=host) == (200, "{}")
        assert asked(server, "/secret/now", host=host) == (200, "[]")
        assert asked(server, "/secret/etc", host=host)[0] == 404
        assert asked(server, "/secret/../../etc/passwd", host=host)[0] == 404
        assert server.address == f"http://127.0.0.1:{server.server_port}/secret/"


@pytest.mark.parametrize(
    "path", ["/", "/data", "/secre/", "/secretx/", "/%73ecret/", "/?token=secret"]
)
def test_without_the_token_there_is_nothing(path: str) -> None:
    with served() as server:
        status, text = asked(server, path)
        assert status == 403
        assert "headway web printed" in text


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}"],
)
def test_a_name_from_elsewhere_that_leads_here_is_turned_away(host: str) -> None:
    with served() as server:
        assert asked(server, "/secret/data", host=host)[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:{port}"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_pages_from_elsewhere_are_turned_away(origin: str, method: str) -> None:
    with served(lambda wanted: "done") as server:
        ask = {"method": method, "body": '{"task":"a"}', **JSON}
        path = "/secret/set" if method == "POST" else "/secret/data"
        assert asked(server, path, Origin=origin, **ask)[0] == 403
        mine = asked(server, path, Origin="http://127.0.0.1:{port}", **ask)
        assert mine[0] == 200


def test_a_page_that_is_read_only_changes_nothing() -> None:
    with served() as server:
        origin = "http://127.0.0.1:{port}"
        ask = {"method": "POST", "body": '{"task":"a"}', **JSON}
        status, text = asked(server, "/secret/set", Origin=origin, **ask)
        assert (status, "--allow-changes" in text) == (403, True)


def test_a_change_is_what_a_person_may_set_and_nothing_else() -> None:
    seen: list[dict[str, str]] = []

    def change(wanted: dict[str, str]) -> str:
        seen.append(wanted)
        return "changed: a"

    with served(change) as server:

        def post(body: str, **other: str) -> int:
            headers = {"Origin": "http://127.0.0.1:{port}", **JSON, **other}
            return asked(server, "/secret/set", method="POST", body=body, **headers)[0]

        assert post(json.dumps({"task": "a", "priority": "9", "reserve": ""})) == 200
        assert seen == [{"task": "a", "priority": "9"}]
        for body in (
            "",
            "{",
            "[]",
            '"task"',
            "{}",
            '{"priority":"9"}',
            '{"task":"a","do":"stop"}',
            '{"task":1}',
            "[" * MOST_BYTES,
            json.dumps({"task": "a" * MOST_BYTES}),
        ):
            assert post(body) == 400, body[:40]
        assert post('{"task":"a"}', **{"Content-Type": "text/plain"}) == 403
        assert post('{"task":"a"}', Origin="") == 403
        assert len(seen) == 1


def test_what_the_daemon_turns_down_is_said_in_its_words() -> None:
    with served(refuse) as server:
        found = asked(
            server,
            "/secret/set",
            method="POST",
            body='{"task":"a"}',
            Origin="http://127.0.0.1:{port}",
            **JSON,
        )
        assert found == (409, "no task a\n")


def test_connections_that_say_nothing_leave_room_bounded() -> None:
    """And one that comes when there is room again is served."""
    with served() as server:
        silent = [
            socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(AT_ONCE)
        ]
        extra = socket.create_connection(("127.0.0.1", server.server_port))
        extra.settimeout(10)
        assert extra.recv(1) == b""
        for connection in (*silent, extra):
            connection.close()
        for _ in range(1000):
            try:
                assert asked(server, "/secret/data")[0] == 200
                break
            except OSError:  # those that were closed are still being noticed
                continue
        else:
            raise AssertionError("never served again")
