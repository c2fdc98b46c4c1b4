"""What the daemon says, as rows: read with care, and with the past of each task."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headway.engine.model import BACKGROUND_LEVEL
from headway.engine.priorities import parse_priority
from headway.engine.reserves import BACKGROUND, POOL_MARK
from headway.engine.shares import WHOLE_PERMILLE
from headway.view.top.text import clean, size

STARTED, OUTSIDE = "started", "outside"
"""States of programs that the daemon does not serve: not yet, or not at all."""
REMEMBERED = 120
"""Refreshes that a sparkline can show."""


@dataclass(frozen=True, slots=True)
class Row:
    """One task. None is what the daemon did not say."""

    task: str
    """As the daemon calls it; `name` is the same made safe to print."""
    name: str
    pid: int | None
    uid: int | None
    policy: str
    priority: str
    """Its own priority as a person writes it: 5, rm, *@3."""
    base: int | None
    effective: int | None
    background: bool
    foreground: bool
    inherited_from: tuple[str, ...]
    reserve: str | None
    budget_ns: int | None
    capacity_ns: int | None
    period_ns: int | None
    queued: int | None
    fps: float | None
    gpu_share: float | None
    wait_p50_ns: int | None
    wait_p99_ns: int | None
    misses: int | None
    state: str
    groups: int | None
    frames: int | None
    note: str
    gpu: str
    """The number of the GPU that its work goes to."""
    past: tuple[float, ...]
    """Frames per second, or the share of the GPU of a task that shows none; the latest is last."""
    prediction_error: float | None = None
    """Of half of its last groups the cost was predicted this near, or nearer."""
    multiprocessors: float | None = None
    """Which part of them it may use beside others, if not all."""
    contexts: int = 1
    """How many tasks of its process this row stands for."""

    @property
    def program(self) -> str:
        """Its name without the pid, which has a column of its own."""
        name, pid, number = self.name.rpartition(f".{self.pid}")
        return name + number if pid and name else self.name

    @property
    def is_served(self) -> bool:
        """Whether the daemon knows it, and so could change it."""
        return self.state not in (STARTED, OUTSIDE)

    @property
    def lowest(self) -> bool:
        """Below every priority that a person can give."""
        return self.priority == str(BACKGROUND_LEVEL)

    @property
    def inherits(self) -> bool:
        """Whether it goes ahead of its own priority, on somebody's behalf; within a level too."""
        return bool(self.inherited_from) or self.raised

    @property
    def raised(self) -> bool:
        """Whether what it inherits is a higher level, and so a number one can show."""
        known = self.base is not None and self.effective is not None
        return known and (self.effective or 0) > (self.base or 0)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as its driver tells of it. None is what the driver does not tell."""

    index: int
    name: str
    utilisation: float | None
    memory_used: int | None
    memory_total: int | None
    temperature_c: int | None
    power_w: float | None


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that is shown at one time."""

    version: str | None
    pid: int | None
    uptime_s: float | None
    gpu_busy: float | None
    gpu_queue: int | None
    foreground: str | None
    display: str | None
    spec_problem: str | None
    rows: tuple[Row, ...]
    devices: tuple[Device, ...] = ()
    gpus: tuple[tuple[float | None, int | None, int | None], ...] = ()
    """Of each GPU that the daemon serves: how busy it is, groups that wait, tasks."""

    def mix(self) -> str:
        """How many tasks of which policy: 3 prt, 1 ht, 2 bg (Background)."""
        kinds = Counter(
            "bg" if row.background else row.policy for row in self.rows if row.is_served
        )
        return ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())


class Past:
    """Remembers what tasks did, as long as they are there."""

    def __init__(self) -> None:
        self._fps: dict[str, deque[float]] = {}
        self._shares: dict[str, deque[float]] = {}

    def read(self, status: dict[str, Any]) -> Board:
        """One status more."""
        channels = _dicts(status.get("channels"))
        served = {_whole(channel.get("pid")) for channel in channels}
        channels += [e for e in _unserved(status) if _whole(e.get("pid")) not in served]
        rows = tuple(self._row(channel) for channel in channels)
        for memory in (self._fps, self._shares):
            for gone in memory.keys() - {row.task for row in rows}:
                del memory[gone]
        gpu = status.get("gpu")
        gpu = gpu if isinstance(gpu, dict) else {}
        return Board(
            version=_text(status.get("version")),
            pid=_whole(status.get("pid")),
            uptime_s=_number(status.get("uptime_s")),
            gpu_busy=_number(gpu.get("busy")),
            gpu_queue=_whole(gpu.get("queue")),
            foreground=_foreground(status.get("foreground")),
            display=_text(status.get("display")),
            spec_problem=_text(status.get("spec_problem")),
            rows=rows,
            devices=tuple(_device(entry) for entry in _dicts(status.get("devices"))),
            gpus=tuple(
                (_number(g.get("busy")), _whole(g.get("queue")), _whole(g.get("tasks")))
                for g in _dicts(status.get("gpus"))
            ),
        )

    def _row(self, entry: dict[str, Any]) -> Row:
        task = str(entry.get("task", ""))
        fps, share = _number(entry.get("fps")), _number(entry.get("share"))
        past = self._remember(task, fps, share)
        effective = _whole(entry.get("effective"))
        priority = str(entry.get("priority", ""))
        base = _whole(entry.get("base"))
        reserve = _text(entry.get("reserve"))
        return Row(
            task=task,
            name=clean(task),
            pid=_whole(entry.get("pid")),
            uid=_whole(entry.get("uid")),
            policy=clean(entry.get("policy", "")),
            priority=clean(priority),
            base=_level(priority) if base is None else base,
            effective=effective,
            background=(reserve or "").partition(" ")[0] == POOL_MARK + BACKGROUND,
            foreground=entry.get("foreground") is True,
            inherited_from=tuple(clean(name) for name in _list(entry.get("inherited_from"))),
            reserve=reserve,
            budget_ns=_whole(entry.get("budget_ns")),
            capacity_ns=_whole(entry.get("capacity_ns")),
            period_ns=_whole(entry.get("period_ns")),
            queued=_whole(entry.get("queued")),
            fps=fps,
            gpu_share=share,
            wait_p50_ns=_whole(entry.get("wait_p50_ns")),
            wait_p99_ns=_whole(entry.get("wait_p99_ns")),
            misses=_whole(entry.get("misses")),
            state=clean(entry.get("state", "")),
            groups=_sum(_whole(entry.get("groups")), _whole(entry.get("passed"))),
            frames=_whole(entry.get("frames")),
            note=_note(entry),
            gpu="" if entry.get("gpu") is None else clean(str(entry["gpu"])),
            past=past,
            prediction_error=_error(entry.get("predictions")),
            multiprocessors=_part_of_all(entry.get("share_told")),
        )

    def _remember(self, task: str, fps: float | None, share: float | None) -> tuple[float, ...]:
        frames = self._fps.setdefault(task, deque(maxlen=REMEMBERED))
        shares = self._shares.setdefault(task, deque(maxlen=REMEMBERED))
        frames.append(fps or 0.0)
        shares.append(share or 0.0)
        return tuple(frames if any(frames) else shares)


def _error(predictions: object) -> float | None:
    return _number(predictions.get("median")) if isinstance(predictions, dict) else None


def _part_of_all(told: object) -> float | None:
    permille = _whole(told)
    return None if permille is None or permille >= WHOLE_PERMILLE else permille / WHOLE_PERMILLE


def matching(rows: Iterable[Row], pattern: str) -> list[Row]:
    """The rows whose name has the pattern in it, in any case; a|b is either, as in htop."""
    words = [word for word in pattern.casefold().split("|") if word]
    return [row for row in rows if not words or any(w in row.name.casefold() for w in words)]


def _unserved(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Programs that the daemon does not know, in words in which it tells of others."""
    rows = [{**entry, "state": STARTED} for entry in _dicts(status.get("started"))]
    rows += [
        {**entry, "state": OUTSIDE, "note": entry.get("why")}
        for entry in _dicts(status.get("unmanaged"))
    ]
    known = {_whole(entry.get("pid")) for entry in (*_dicts(status.get("channels")), *rows)}
    for device in _dicts(status.get("devices")):
        for process in _dicts(device.get("processes")):
            pid = _whole(process.get("pid"))
            if pid not in known:
                used = _whole(process.get("memory"))
                held = "" if used is None else f"has {size(used)} of GPU {device.get('index')} and "
                why = f"{held}was not started by headway run"
                task = f"{process.get('name', '?')}.{pid}"
                rows.append({"task": task, "pid": pid, "state": OUTSIDE, "note": why})
                known.add(pid)
    return rows


def _device(entry: dict[str, Any]) -> Device:
    return Device(
        _whole(entry.get("index")) or 0,
        clean(entry.get("name", "")),
        _number(entry.get("utilisation")),
        _whole(entry.get("memory_used")),
        _whole(entry.get("memory_total")),
        _whole(entry.get("temperature_c")),
        _number(entry.get("power_w")),
    )


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in _list(value) if isinstance(entry, dict)]


def _note(entry: dict[str, Any]) -> str:
    notes = [clean(entry["note"])] if entry.get("note") else []
    past_gate = _whole(entry.get("implicit"))
    if past_gate:
        notes.append(f"the driver submitted {past_gate} times past the gate")
    unknown = _whole(entry.get("unknown"))
    if unknown:
        notes.append(f"GPU functions that pass by: {unknown}")
    return "; ".join(notes)


def _foreground(value: object) -> str | None:
    """The tasks of the window a person looks at, or its pid where that is none of ours."""
    if not isinstance(value, dict):
        return _text(value)
    tasks = ", ".join(clean(task) for task in _list(value.get("tasks")))
    return tasks or f"pid {clean(value.get('pid'))}"


def _level(priority: str) -> int | None:
    try:
        return parse_priority(priority).level
    except ValueError:  # the daemon's own for Background is below what a person may give
        return BACKGROUND_LEVEL if priority == str(BACKGROUND_LEVEL) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return clean(value) if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return max(0.0, float(value))


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
