"""The live page in a real browser: what runs now, and what it may change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from selenium.webdriver.common.by import By

from tests.integration.browser import Browser, browser
from tests.integration.command import HEADWAY, headway
from tests.integration.daemon_client import Client, running_daemon

ODD = "<img src=x onerror=document.title='hacked'>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@contextmanager
def web(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a live page of the daemon in a folder."""
    process = subprocess.Popen(
        [HEADWAY, "web", *options],
        env={**os.environ, "HEADWAY_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert "Traceback" not in said


@contextmanager
def working(*clients: Client) -> Iterator[None]:
    """Groups of each, one after the other."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for client in clients:
                client.submit()
                client.wait_grant()
                time.sleep(0.002)
                client.complete()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def show(chromium: Browser, address: str) -> None:
    chromium.driver.get(address)
    chromium.wait("document.documentElement.dataset.ready === 'yes'")
    refreshed(chromium, 2)


def refreshed(chromium: Browser, times: int) -> None:
    """Until the page has asked so often again."""
    seen = chromium.run("return Number(document.documentElement.dataset.refreshed || 0)")
    chromium.wait(f"Number(document.documentElement.dataset.refreshed) >= {seen + times}")


def test_what_runs_is_seen_while_it_runs_and_changed(chromium: Browser, tmp_path: Path) -> None:
    with (
        running_daemon(tmp_path / "r") as daemon,
        daemon.client("alpha") as alpha,
        daemon.client(ODD) as odd,
        web(daemon.folder, "--allow-changes", "--last", "5s") as (address, _),
    ):
        with working(alpha, odd):
            show(chromium, address)
            chromium.wait("document.querySelectorAll('#programs tbody tr').length === 2")
            chromium.wait("TASKS.length === 2 && TASKS.every(task => task.groups > 10)")
            events = chromium.run("return DATA.events")
            chromium.wait(f"DATA.events > {events}")
            # Somebody who looks at a part of it has it stand still.
            chromium.run("select(0, DURATION / 2)")
            chromium.wait("document.getElementById('pause').innerText === 'Go on'")
            still = chromium.run("return DATA.events")
            refreshed(chromium, 2)
            assert chromium.run("return DATA.events") == still
            chromium.driver.find_element(By.ID, "pause").click()
            chromium.wait(f"DATA.events > {still}")
        form = chromium.driver.find_element(By.ID, "change")
        chromium.run(
            "const form = document.getElementById('change').elements;"
            "form.task.value = [...form.task.options].find(o => o.value.startsWith('alpha')).value"
        )
        form.find_element(By.NAME, "priority").send_keys("7")
        form.find_element(By.NAME, "reserve").send_keys("5ms/20ms")
        form.find_element(By.TAG_NAME, "button").click()
        chromium.wait("document.getElementById('changed').innerText.startsWith('changed: alpha')")
        tasks = {t["name"]: t for t in daemon.ask(do="status")["status"]["channels"]}
        assert (tasks["alpha"]["priority"], tasks["alpha"]["capacity_ns"]) == ("7", 5_000_000)
        chromium.wait(
            "document.querySelector('#programs [data-column=PRIO]').innerText.trim() === '7'"
        )
        form.find_element(By.NAME, "reserve").send_keys("x")
        form.find_element(By.TAG_NAME, "button").click()
        chromium.wait("document.getElementById('changed').innerText.includes('reserve')")
        assert chromium.driver.title == "live · Headway"
        # One refusal of the daemon's, which browsers tell; nothing of the page's policy.
        assert all("409" in line for line in chromium.complaints())


def test_a_daemon_that_goes_and_comes_again_is_followed(chromium: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    with web(folder) as (address, process):
        show(chromium, address)
        assert "no daemon answers" in chromium.text("#said")
        assert chromium.driver.find_elements(By.ID, "change") == []  # it is read-only
        for name in ("first", "second"):
            with running_daemon(folder) as daemon, daemon.client(name) as client, working(client):
                chromium.wait(f"document.querySelector('#programs').innerText.includes('{name}')")
                chromium.wait(f"TASKS.length === 1 && TASKS[0].name.startsWith('{name}')")
                assert chromium.text("#said") == ""
            chromium.wait("document.getElementById('said').innerText.includes('no daemon')")
        process.send_signal(signal.SIGINT)
        process.wait(20)
        chromium.wait("document.getElementById('said').innerText.includes('does not answer')")


def test_it_is_this_machines_alone_and_shows_what_status_says(tmp_path: Path) -> None:
    with (
        running_daemon(tmp_path / "r") as daemon,
        daemon.client("alpha"),
        web(daemon.folder) as (address, process),
    ):
        port = int(address.split(":")[2].split("/")[0])
        listening = Path("/proc/net/tcp").read_text()
        assert f"0100007F:{port:04X} 00000000:0000 0A" in listening
        with urlopen(f"{address}now") as answer:
            (row,) = json.load(answer)["rows"]
        assert row["task"].startswith("alpha.")
        taken = headway("web", "--port", str(port))
        assert taken.returncode == 1
        assert "cannot be listened at" in taken.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
