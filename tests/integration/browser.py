"""A real browser without a window, for the tests of pages."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

TOOLS = ("chromium", "chromedriver")


class Browser:
    """Chromium, steered by its driver; both are those of the system, nothing is downloaded."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(
        self, page: Path, *, width: int = 1280, height: int = 1400, dark: bool = False
    ) -> None:
        """Show a file and wait until it has drawn itself."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.complaints()  # what an earlier page said is not about this one
        self.driver.get(page.resolve().as_uri())
        self.wait("document.documentElement.dataset.ready === 'yes'")
        self.settle()  # it draws again when it has its size

    def text(self, selector: str) -> str:
        """What is shown of the first such element. In one step: it may be drawn again, and gone."""
        shown = "found.checkVisibility({visibilityProperty: true}) ? found.innerText : ''"
        script = f"const found = document.querySelector(arguments[0]); return {shown}"
        return str(self.run(script, selector))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, timeout_s: float = 20) -> None:
        """Until this JavaScript expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < deadline, f"never became true: {condition}"
            time.sleep(0.02)

    def settle(self) -> None:
        """Until what was asked for has been drawn."""
        twice = "requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        self.driver.execute_async_script(f"const done = arguments[0]; {twice}")

    def complaints(self) -> list[str]:
        """What the page wrote to the console: errors, and what its policy kept off."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]


def missing() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


@contextmanager
def browser() -> Iterator[Browser]:
    assert not missing(), f"missing: {missing()}; scripts/install-packages has them"
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        driver.set_script_timeout(20)
        yield Browser(driver)
    finally:
        driver.quit()
