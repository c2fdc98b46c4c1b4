"""Draws docs/images/top.svg: the real screen of `headway top`, fed with a made-up afternoon.

python scripts/top_picture.py docs/images/top.svg [--size 110x20] [--key f1]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
from pathlib import Path
from typing import Any

from headway.view.top.app import Top
from headway.view.top.rows import Past
from headway.view.top.text import UNICODE

MS = 1_000_000


def task(
    name: str, pid: int, policy: str, priority: str, state: str, speed: float, wobble: float,
    waits_ms: tuple[float, float], reserve_ms: tuple[float, float, float] | None = None,
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """One task; `speed` and `wobble` make its curve."""
    entry: dict[str, Any] = {
        "task": f"{name}.{pid}", "pid": pid, "uid": 0, "policy": policy, "priority": priority,
        "effective": int(priority) if priority.lstrip("-").isdigit() else 0, "state": state,
        "reserve": None, "budget_ns": None, "capacity_ns": None, "period_ns": None, "note": "",
        "queued": int(state in ("waiting", "budget")), "misses": 0, "implicit": 0,
        "groups": round(speed * 4000), "passed": 0, "frames": 0,
        "wait_p50_ns": round(waits_ms[0] * MS), "wait_p99_ns": round(waits_ms[1] * MS),
        "speed": speed, "wobble": wobble,
    }  # fmt: skip
    if reserve_ms is not None:
        budget, capacity, period = (round(value * MS) for value in reserve_ms)
        entry |= {"reserve": "@pool", "budget_ns": budget}
        entry |= {"capacity_ns": capacity, "period_ns": period}
    return {**entry, **more}


LOWEST = "-1000001"
TASKS = [
    task("mplayer", 3114, "prt", "12", "running", 24, 0.02, (0.04, 0.9), (4.1, 6, 40), share=0.13),
    task("openarena", 3207, "prt", "*", "leased", 88, 0.25, (0.3, 2.1), share=0.41,
         foreground=True),
    task("Xephyr", 2950, "prt", "1", "waiting", 0, 0.4, (0.2, 1.7), share=0.07, effective=12,
         inherited_from=["mplayer.3114"]),
    task("widget", 3301, "ht", "5", "idle", 60, 0.05, (0.1, 1.2), (1.6, 2, 16), share=0.06),
    task("train.py", 3010, "prt", "0", "waiting", 0, 0.5, (7.9, 31), share=0.19, misses=3),
    task("bomb", 3402, "prt", "-5", "budget", 3.2, 0.9, (84, 310), (-1.3, 2.5, 25), share=0.09,
         misses=41),
    task("glmark2-es2", 3477, "prt", LOWEST, "budget", 7.4, 0.7, (39, 128), (0.2, 2.5, 25),
         share=0.04, reserve="@background", note="no entry of the spec matches it: Background"),
]  # fmt: skip


def status(second: int) -> dict[str, Any]:
    channels = []
    for number, made in enumerate(TASKS):
        entry = {k: v for k, v in made.items() if k not in ("speed", "wobble")}
        wave = math.sin(second / 3 + number) + math.sin(second / 7.3 + 2 * number)
        factor = 1 + made["wobble"] * wave / 2
        entry["fps"] = made["speed"] * factor if made["speed"] else None
        entry["share"] = made["share"] * factor
        channels.append(entry)
    return {
        "pid": 2871, "version": "0.1.0", "uptime_s": 8060 + second, "spec_problem": "",
        "gpu": {"busy": sum(c["share"] for c in channels), "queue": 2},
        "foreground": "openarena.3207", "display": ":0", "channels": channels,
    }  # fmt: skip


async def draw(target: Path, size: tuple[int, int], key: str | None) -> None:
    app = Top(
        lambda request: {"status": status(60)},
        interval_s=3600,
        glyphs=UNICODE,
        colour=True,
        board=Past().read(status(0)),
    )
    for second in range(60):
        app.past.read(status(second))
    async with app.run_test(size=size) as pilot:
        while not app.tasks.rows or not app.tasks.rows[0].past[1:]:
            await pilot.pause(0.05)
        await pilot.press(*([key] if key else []))
        await pilot.pause(0.2)
        drawing = app.export_screenshot(title="headway top")
    # Self-contained: no fonts from elsewhere, and the same names whenever it is drawn.
    drawing = re.sub(r"@font-face\s*{.*?}\s*", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r"terminal-\d+", "terminal", drawing)
    drawing = re.sub(r"font-family: Fira Code, monospace", "font-family: monospace", drawing)
    drawing = drawing.replace("#4b4e55", "#101214")  # black on a colour, as terminals show it
    target.write_text(drawing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--size", default="110x18")
    parser.add_argument("--key", help="press this first, such as f1")
    arguments = parser.parse_args()
    width, _, height = arguments.size.partition("x")
    asyncio.run(draw(arguments.target, (int(width), int(height)), arguments.key))


if __name__ == "__main__":
    main()
