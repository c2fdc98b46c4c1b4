"""Takes the picture of the report page that docs/report.md shows.

Run in the repository: python -m scripts.report_picture docs/images/report.png
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.browser import browser

HEADWAY = Path(sys.executable).with_name("headway")
FROM_NS, TO_NS = 2_000_000_000, 2_100_000_000
"""A stretch in which single groups can be seen."""


def main(picture: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        for command in (
            ("sim", Path("examples/bombs.toml").resolve(), "--trace", "bombs.pftrace"),
            ("report", "bombs.pftrace", "-o", "report.html"),
        ):
            subprocess.run([HEADWAY, *command], cwd=name, check=True, stdout=subprocess.DEVNULL)
        with browser() as chromium:
            chromium.open(Path(name) / "report.html", width=1280, height=2140)
            chromium.run("look(arguments[0], arguments[1])", FROM_NS, TO_NS)
            chromium.settle()
            chromium.driver.save_screenshot(str(picture))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
