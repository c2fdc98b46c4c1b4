"""Watching a real daemon: status, explain, doctor and metrics."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway import __version__
from headway.live.watch.metrics import MAX_TASKS, METRICS
from headway.live.watch.scrape import MAX_READERS
from tests.integration.command import ROOT, headway
from tests.integration.daemon_client import Client, DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    folder = tmp_path / "run"
    with running_daemon(folder, "--metrics", f"unix:{tmp_path}/metrics.sock") as daemon:
        yield daemon


def launch(daemon: DaemonProcess, name: str, **chosen: object) -> Client:
    """A client as `headway run` would start it."""
    return Client(daemon.socket, name, daemon.ask(do="run", **chosen)["token"])


def entry_of(daemon: DaemonProcess, name: str) -> dict[str, object]:
    found = [c for c in daemon.status()["channels"] if c["task"].startswith(name)]
    assert len(found) == 1
    entry: dict[str, object] = found[0]
    return entry


def said(daemon: DaemonProcess, task: str) -> str:
    result = headway("explain", task, env=environment(daemon))
    assert result.returncode == 0, result.stderr
    return result.stdout


def environment(daemon: DaemonProcess) -> dict[str, str]:
    return {**os.environ, "HEADWAY_DIR": str(daemon.folder)}


def write_page(client: Client, *, busy: bool = False, frames: int = 0, used_ns: int = 0) -> None:
    client.say(busy=busy, frames=frames, used_ns=used_ns)


# -- status --------------------------------------------------------------------------------------


def test_status_says_how_each_program_fares(daemon: DaemonProcess) -> None:
    with launch(daemon, "game", priority=9) as game, launch(daemon, "tool", priority=3) as tool:
        first = daemon.status()
        assert first["version"] == __version__
        assert first["gpu"] == {"busy": 0, "queue": 0, "policy_counts": {"prt": 2}}
        assert {c["fps"] for c in first["channels"]} == {None}
        assert {c["wait_p50_ns"] for c in first["channels"]} == {None}

        for _ in range(20):  # the tool works, and the game waits for it
            tool.submit()
            tool.wait_grant()
            game.submit()
            time.sleep(0.004)
            tool.complete()
            game.wait_grant()
            game.complete()
            if game.leased:
                game.release()
        status = daemon.status()
        entries = {c["task"].split(".")[0]: c for c in status["channels"]}
        waited = entries["game"]
        assert waited["base"] == waited["effective"] == 9
        assert 1_000_000 < waited["wait_p50_ns"] <= waited["wait_p99_ns"] <= waited["wait_max_ns"]
        assert entries["tool"]["share"] > waited["share"] >= 0
        assert entries["tool"]["share"] + waited["share"] <= status["gpu"]["busy"] + 0.05
        assert status["gpu"]["busy"] <= 1
        assert status["uptime_s"] > first["uptime_s"]
        assert waited["queued"] == 0
        assert waited["misses"] == 0


def test_a_program_under_a_lease_is_seen_too(daemon: DaemonProcess) -> None:
    """It asks for nothing: what it uses and shows is read from its page."""
    with launch(daemon, "game") as game:
        game.get_lease()
        used_ns = 0
        end = time.monotonic() + 3
        before = time.monotonic_ns()
        while time.monotonic() < end:
            time.sleep(0.02)
            now = time.monotonic_ns()
            used_ns, before = used_ns + (now - before) // 2, now
            write_page(game, busy=True, frames=int((3 - (end - time.monotonic())) * 50) + 1,
                       used_ns=used_ns)  # fmt: skip
        entry = entry_of(daemon, "game")
        assert entry["state"] == "leased"
        assert entry["share"] == pytest.approx(0.5, abs=0.15)
        assert entry["fps"] == pytest.approx(50, rel=0.3)
        assert entry["gpu_ns"] == pytest.approx(used_ns, rel=0.2)


def test_a_page_full_of_lies_is_believed_within_what_is_possible(daemon: DaemonProcess) -> None:
    with launch(daemon, "liar") as liar:
        liar.get_lease()
        liar.write_page(b"\xff" * 4096)
        time.sleep(0.3)
        entry = entry_of(daemon, "liar")
        assert 0 <= float(str(entry["share"])) <= 1
        assert float(str(entry["fps"])) <= 110_000
        liar.write_page(bytes(4096))
        time.sleep(0.3)
        assert float(str(entry_of(daemon, "liar")["fps"])) >= 0
        assert daemon.is_alive()


# -- explain -------------------------------------------------------------------------------------


def test_explain_says_what_a_program_waits_for(daemon: DaemonProcess) -> None:
    with (
        launch(daemon, "bomb", priority=1, reserve="1ms/20s") as bomb,
        launch(daemon, "game", priority=9) as game,
    ):
        assert "bomb." in said(daemon, "bomb")
        assert "it wants nothing of the GPU now. It could wait for game." in said(daemon, "bomb")
        bomb.submit()
        bomb.wait_grant()
        assert "it is on the GPU now" in said(daemon, "bomb")
        time.sleep(0.01)
        bomb.complete()
        bomb.submit()
        wait_until(lambda: entry_of(daemon, "bomb")["state"] == "budget", "an empty budget")
        text = said(daemon, "bomb")
        assert "its budget, 1ms every 20s, is used up" in text
        assert "of debt to be paid first; it may go in " in text
        assert "100 % for its budget" in text
        game.get_lease()
        assert "it has the GPU until somebody wants it" in said(daemon, "game")
        facts = json.loads(headway("explain", "bomb", "--json", env=environment(daemon)).stdout)
        assert [f["state"] for f in facts] == ["budget"]
        assert facts[0]["causes"][0]["kind"] == "budget"


def test_explain_names_the_holder(daemon: DaemonProcess) -> None:
    """What is on the GPU loses it after 60 ms, so the question may come too late now and then."""
    with launch(daemon, "game", priority=9) as game, launch(daemon, "tool", priority=3) as tool:

        def is_named() -> bool:
            for client in (tool, game):
                client.submit()
            try:
                (facts,) = daemon.ask(do="explain", task="game")["tasks"]
            finally:
                for client in (tool, game):
                    client.wait_grant()
                    client.complete()
            why = facts["why"]
            return why is not None and why["kind"] == "gpu" and why["compared"] == -1

        wait_until(is_named, "the game waits for the tool")


def test_explain_of_somebody_unknown_is_one_line(daemon: DaemonProcess) -> None:
    with launch(daemon, "game"):
        for task, expected in (("gmae", "there are game."), (str(os.getppid()), "runs unmanaged")):
            result = headway("explain", task, env=environment(daemon))
            assert result.returncode == 2
            assert len(result.stderr.splitlines()) == 1
            assert f"no task is called '{task}'" in result.stderr
            assert expected in result.stderr


def test_explain_without_a_daemon_is_one_line(tmp_path: Path) -> None:
    result = headway("explain", "game", env={**os.environ, "HEADWAY_DIR": str(tmp_path)})
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "no daemon answers" in result.stderr


# -- doctor --------------------------------------------------------------------------------------


def examined(*arguments: str, **env: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = headway("doctor", "--json", *arguments, env={**os.environ, **env})
    answer = json.loads(result.stdout)
    assert answer["ok"] == (result.returncode == 0)
    return result.returncode, {entry["check"]: entry for entry in answer["checks"]}


def test_the_doctor_finds_this_machine_fit(daemon: DaemonProcess) -> None:
    with launch(daemon, "game"):
        code, findings = examined(HEADWAY_DIR=str(daemon.folder))
    assert code == 0, [entry for entry in findings.values() if entry["state"] == "bad"]
    assert f"process {daemon.pid}, 1 programs" in findings["daemon"]["found"]
    assert findings["interposer"]["state"] == "ok"
    text = headway("doctor", env=environment(daemon)).stdout
    assert text.startswith("ok    runtime folder")


def test_what_is_required_and_broken_makes_the_doctor_fail(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code, findings = examined("--", "no-such-program-anywhere", HEADWAY_DIR=str(tmp_path))
    assert code == 1
    assert findings["runtime folder"]["fix"] == f"chmod go-w {tmp_path}"
    assert findings["program"]["state"] == "bad"


def test_the_doctor_sees_a_spec_that_is_not_in_force(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text("")
    with running_daemon(tmp_path / "run", "--spec", str(spec)) as daemon:
        spec.write_text("nonsense")
        with Client(daemon.socket):
            code, findings = examined(HEADWAY_DIR=str(daemon.folder))
    assert code == 0
    assert findings["daemon"]["state"] == "warn"
    assert "its spec is not in force" in findings["daemon"]["found"]


# -- metrics -------------------------------------------------------------------------------------


def get(daemon: DaemonProcess, request: bytes = b"GET /metrics HTTP/1.0\r\n\r\n") -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        connection.connect(str(daemon.folder.parent / "metrics.sock"))
        connection.sendall(request)
        data = bytearray()
        while part := connection.recv(65536):
            data += part
    return bytes(data)


def scrape(daemon: DaemonProcess) -> Samples:
    """What Prometheus would read."""
    head, body = get(daemon).split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert f"Content-Length: {len(body)}".encode() in head
    return parsed(body.decode())


def parsed(text: str) -> Samples:
    families = list(text_string_to_metric_families(text))
    assert [f.name for f in families] == [m.name.removesuffix("_total") for m in METRICS]
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_page_about_metrics_names_each_of_them() -> None:
    page = (ROOT / "docs" / "watch.md").read_text()
    assert set(re.findall(r"headway_[a-z_]+", page)) == {metric.name for metric in METRICS}


def test_every_metric_has_a_description_and_a_unit() -> None:
    units = ("_seconds", "_ratio", "_groups", "_tasks", "_processes", "_level", "_info")
    for metric in METRICS:
        assert metric.name.startswith("headway_")
        assert len(metric.help) > 10, metric.name
        assert metric.help.endswith("."), metric.name
        ending = "_total" if metric.kind == "counter" else units
        assert metric.name.endswith(ending), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_metrics_say_what_status_says(daemon: DaemonProcess) -> None:
    odd = 'ga"me\\{x="1"}'
    with launch(daemon, odd, priority=9) as game, launch(daemon, "bomb", reserve="2ms/20ms"):
        for _ in range(30):
            game.one_group()
            if game.leased:
                game.release()
        write_page(game, frames=12)
        wait_until(lambda: entry_of(daemon, odd)["frames_seen"] == 12, "frames are seen")
        status, samples = daemon.status(), scrape(daemon)
    assert samples["headway_grants_total", frozenset()] == status["grants"] == 30
    assert samples["headway_build_info", frozenset({("version", __version__)})] == 1
    assert samples["headway_served_tasks", frozenset()] == 2
    for entry in status["channels"]:
        labels = {("task", entry["name"]), ("pid", str(entry["pid"]))}
        labels |= {(key, str(entry[key])) for key in ("channel", "gpu")}
        label = frozenset(labels)
        gpu_s = samples["headway_task_gpu_seconds_total", label]
        assert gpu_s == pytest.approx(entry["gpu_ns"] / 1e9)
        assert samples["headway_task_priority_level", label] == entry["effective"]
        assert samples["headway_task_frames_total", label] == entry["frames_seen"]
        assert samples["headway_task_wait_seconds_count", label] == entry["groups"]
        assert samples["headway_task_wait_seconds_sum", label] == entry["waited_ns"] / 1e9
        median = samples["headway_task_wait_seconds", frozenset({*labels, ("quantile", "0.5")})]
        if entry["wait_p50_ns"] is None:
            assert math.isnan(median)
        else:
            assert median == entry["wait_p50_ns"] / 1e9
        if entry["reserve"] is not None:
            reserve = frozenset({("reserve", entry["reserve"])})
            assert samples["headway_reserve_capacity_seconds", reserve] == 0.002
            assert samples["headway_reserve_budget_seconds", reserve] == 0.002
    assert {entry["wait_p50_ns"] is None for entry in status["channels"]} == {True, False}


def test_lines_are_bounded_however_many_programs_there_are(daemon: DaemonProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(MAX_TASKS + 20):
            stack.enter_context(Client(daemon.socket, f"client{number}"))
        samples = scrape(daemon)
    tasks = [
        dict(labels)["task"] for name, labels in samples if name == "headway_task_frames_total"
    ]
    assert {"client0", "client1"} <= {*tasks}
    assert len(tasks) == MAX_TASKS
    assert samples["headway_served_tasks", frozenset()] == MAX_TASKS + 20
    assert samples["headway_unlisted_tasks", frozenset()] == 20


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\nHost: x\n\n", b"200"),
        (b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", b"200"),
        (b"x" * 20_000, None),
    ],
)
def test_other_requests_are_answered_and_closed(
    daemon: DaemonProcess, request_: bytes, status: bytes | None
) -> None:
    try:
        answer = get(daemon, request_)
    except ConnectionError:
        answer = b""
    assert answer.startswith(b"HTTP/1.1 " + status) if status is not None else answer == b""
    assert daemon.is_alive()


def test_readers_that_say_nothing_or_read_nothing_keep_nobody_waiting(
    daemon: DaemonProcess,
) -> None:
    path = str(daemon.folder.parent / "metrics.sock")
    descriptors = Path(f"/proc/{daemon.pid}/fd")
    with Client(daemon.socket, "first") as first:  # what is opened once, for whoever comes first
        first.one_group()
    wait_until(lambda: not daemon.names(), "it is gone")
    before = len(list(descriptors.iterdir()))
    with contextlib.ExitStack() as stack:
        game = stack.enter_context(Client(daemon.socket, "game"))
        for number in range(3 * MAX_READERS):
            reader = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            reader.connect(path)
            with contextlib.suppress(ConnectionError):
                reader.sendall(b"GET /metrics HTTP/1.1\r\n\r\n"[: 10 + number])
            game.one_group()
        assert len(list(descriptors.iterdir())) <= before + MAX_READERS + 3
        assert scrape(daemon)["headway_grants_total", frozenset()] > 0
        game.one_group()
    wait_until(lambda: len(list(descriptors.iterdir())) <= before, "nothing is left open")


def test_metrics_at_a_port_are_for_this_machine_only(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running_daemon(tmp_path / "run", "--metrics", f"127.0.0.1:{port}"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        assert "text/plain; version=0.0.4" in (answer.getheader("Content-Type") or "")
        assert parsed(answer.read().decode())["headway_grants_total", frozenset()] == 0
        connection.close()
        assert status_of(port, f"localhost:{port}") == status_of(port, "127.0.0.1") == 200
        assert status_of(port, "LocalHost") == status_of(port) == 200
        for elsewhere in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
            assert status_of(port, elsewhere) == 421, "a browser's page from there must not read it"
        assert status_of(port, "localhost", "evil.example") == 421
        table = Path("/proc/net/tcp").read_text()
        assert f"0100007F:{port:04X} 00000000:0000 0A" in table
        taken = headway(
            "daemon", "--metrics", str(port), env={**os.environ, "HEADWAY_DIR": f"{tmp_path}/two"}
        )
        assert taken.returncode == 2
        assert f"--metrics {port}: Address already in use" in taken.stderr
        assert len(taken.stderr.splitlines()) == 1


def status_of(port: int, *hosts: str) -> int:
    """What the daemon answers a request with these `Host` lines."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        lines = ["GET /metrics HTTP/1.1", *(f"Host: {host}" for host in hosts), "", ""]
        connection.sendall("\r\n".join(lines).encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status


def test_a_unix_socket_is_for_its_user_only_and_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    env = {**os.environ, "HEADWAY_DIR": f"{tmp_path}/run"}
    path.write_text("precious")
    result = headway("daemon", "--metrics", f"unix:{path}", env=env)
    assert result.returncode == 2
    assert "something else is there" in result.stderr
    assert path.read_text() == "precious"
    path.unlink()
    for _ in range(2):  # the second finds what the first, killed, has left
        with running_daemon(tmp_path / "run", "--metrics", f"unix:{path}") as daemon:
            assert path.stat().st_mode & 0o777 == 0o600
            assert b"200 OK" in get(daemon)
        assert path.is_socket()


@pytest.mark.parametrize("address", ["0.0.0.0:9100", "example.org:80", "0", "70000", "unix:x", ""])
def test_other_addresses_are_refused_in_one_line(tmp_path: Path, address: str) -> None:
    result = headway(
        "daemon", "--metrics", address, env={**os.environ, "HEADWAY_DIR": str(tmp_path)}
    )
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "expected unix:/path or [127.0.0.1:]PORT" in result.stderr


def test_prometheus_is_loaded_only_where_it_is_wanted() -> None:
    code = """import sys, headway.live.server.daemon
raise SystemExit('prometheus_client' in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
