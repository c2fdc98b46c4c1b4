"""What `headway top` shows, for the page: its columns, and a row for each program."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from headway.live.api.client import Refused
from headway.view.top.columns import BY_TITLE, COLUMNS, ordered
from headway.view.top.folding import fold
from headway.view.top.rows import Board, Past, Row
from headway.view.top.text import UNICODE


class Now:
    """Asks the daemon, and remembers what tasks did before."""

    def __init__(self, fetch: Callable[[], dict[str, Any]]) -> None:
        self._fetch = fetch
        self._past = Past()
        self._lock = threading.Lock()
        """Of the past, which several tabs add to."""

    def data(self) -> bytes:
        """As JSON; `problem` says why there is nothing else."""
        try:
            with self._lock:
                board = self._past.read(self._fetch())
        except (OSError, Refused, KeyError) as error:
            return json.dumps({"problem": str(error)}).encode()
        return json.dumps(_shown(board)).encode()


def _shown(board: Board) -> dict[str, Any]:
    rows = ordered(fold(board.rows), BY_TITLE["PRIO"])
    return {
        "problem": board.spec_problem and f"spec file not in force: {board.spec_problem}",
        "busy": board.gpu_busy,
        "queue": board.gpu_queue,
        "columns": [[column.title, column.help, column.left] for column in COLUMNS],
        "rows": [_row(row) for row in rows],
        "notes": [f"{row.name}: {row.note}" for row in board.rows if row.note],
    }


def _row(row: Row) -> dict[str, Any]:
    cells = []
    for column in COLUMNS:
        parts = column.cell(row, column.most, UNICODE)
        tone = next((tone for text, tone in parts if tone and text.strip()), "")
        cells.append(["".join(text for text, _ in parts).strip(), tone])
    return {"task": row.task, "served": row.is_served, "cells": cells}
