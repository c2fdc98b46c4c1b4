"""The lines around the table: the GPU and the daemon above, the chosen task below."""

from __future__ import annotations

from rich.cells import cell_len

from headway.view.top.columns import reserve_text
from headway.view.top.rows import STARTED, Board, Device, Row
from headway.view.top.text import (
    ASCII,
    UNKNOWN,
    Glyphs,
    Line,
    clean,
    clock,
    fit,
    meter,
    percent,
    size,
)

FULL = 0.95


def header(board: Board, width: int, glyphs: Glyphs) -> list[Line]:
    """How busy the GPU is and with what, a line for each GPU whose driver tells, and the daemon."""
    devices = [_device(device, width, glyphs) for device in board.devices]
    return [*_gpus(board, width, glyphs), *devices, _daemon(board, width, glyphs)]


def _device(device: Device, width: int, glyphs: Glyphs) -> Line:
    facts = []
    if device.utilisation is not None:
        facts.append(("Used ", f"{percent(device.utilisation)}%"))
    if device.memory_used is not None and device.memory_total is not None:
        facts.append(("Memory ", f"{size(device.memory_used)} of {size(device.memory_total)}"))
    if device.temperature_c is not None:
        facts.append(("", f"{device.temperature_c} C"))
    if device.power_w is not None:
        facts.append(("", f"{device.power_w:.0f} W"))
    return _facts([(f"GPU {device.index} ", "label")], facts, device.name, width, glyphs)


def _gpus(board: Board, width: int, glyphs: Glyphs) -> list[Line]:
    if len(board.gpus) < 2:
        tasks = len(board.rows)
        return [_gpu("GPU", board.gpu_busy, board.gpu_queue, tasks, board.mix(), width, glyphs)]
    return [
        _gpu(f"GPU {number}", *facts, "" if number else board.mix(), width, glyphs)
        for number, facts in enumerate(board.gpus)
    ]


def _gpu(
    name: str,
    busy: float | None,
    queued: int | None,
    tasks: int | None,
    last: str,
    width: int,
    glyphs: Glyphs,
) -> Line:
    size = max(12, min(60, width * 2 // 5))
    tone = "dim" if busy is None else "good" if busy < FULL else "warn"
    label = UNKNOWN if busy is None else f"{percent(busy)}%"
    line: Line = [(f"{name} ", "label"), *meter(busy or 0.0, label, size, tone), ("  ", "")]
    known = (UNKNOWN if number is None else str(number) for number in (queued, tasks))
    facts = list(zip(("Queue ", "Tasks "), known, strict=True))
    return _facts(line, facts, last, width, glyphs)


def _daemon(board: Board, width: int, glyphs: Glyphs) -> Line:
    facts = [("Daemon ", UNKNOWN if board.pid is None else str(board.pid))]
    facts += [("Up ", clock(board.uptime_s))] if board.uptime_s is not None else []
    if board.foreground is not None:
        where = f" on {board.display}" if board.display else ""
        facts.append(("Foreground ", board.foreground + where))
    elif board.display:
        facts.append(("Display ", board.display))
    line: Line = [(f"headway {board.version}  ", "dim")] if board.version else []
    problem = f"spec file not in force: {board.spec_problem}" if board.spec_problem else ""
    return _facts(line, facts, problem, width, glyphs, tone="bad")


def _facts(
    line: Line,
    facts: list[tuple[str, str]],
    last: str,
    width: int,
    glyphs: Glyphs,
    tone: str = "dim",
) -> Line:
    """Labels and values as long as there is room; the last one is cut where it ends."""
    line = list(line)
    for label, value in facts:
        line += [(label, "label"), (clean(value, ascii_only=glyphs is ASCII), ""), ("  ", "")]
    line.append((clean(last, ascii_only=glyphs is ASCII), tone))
    return cut(line, width, glyphs)


def cut(line: Line, width: int, glyphs: Glyphs) -> Line:
    """A line of exactly this width."""
    kept: Line = []
    room = width
    for text, tone in line:
        if cell_len(text) > room:
            kept.append((fit(text, room, glyphs), tone))
            return kept
        kept.append((text, tone))
        room -= cell_len(text)
    return [*kept, (" " * room, "")]


def about(row: Row) -> str:
    """What there is to know about the chosen task, in a sentence."""
    if not row.is_served:
        state = "started, no GPU call yet" if row.state == STARTED else "unmanaged"
        return f"{row.name}: {state}" + (f"; {row.note}" if row.note else "")
    facts = [row.policy or UNKNOWN]
    facts += ["Background"] if row.background else []
    facts += [] if row.lowest else [f"priority {row.priority or UNKNOWN}"]
    if row.inherits:
        source = f" from {', '.join(row.inherited_from)}" if row.inherited_from else ""
        level = f" {row.effective}" if row.raised else ""
        facts.append(f"inherits{level}{source}")
    if row.capacity_ns is not None:
        facts.append(f"reserve {reserve_text(row)}")
    return f"{row.name}: {', '.join(facts)}" + (f"; {row.note}" if row.note else "")
