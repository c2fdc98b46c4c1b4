"""Puts the live page together: what it is made of, and what it may change."""

from __future__ import annotations

import secrets
from importlib import resources
from pathlib import Path
from typing import Any

from headway.live.api import client
from headway.view.cli.status import complete
from headway.view.report.page import page
from headway.view.web.now import Now
from headway.view.web.recent import Recent
from headway.view.web.site import Change, Site

PATIENCE_S = 2.0
"""A daemon that is silent for so long counts as gone; the page asks again."""


def site(folder: Path, window_ns: int, *, changes: bool) -> tuple[Recent, Site]:
    """What the page of this folder's daemon needs; the thread is not started yet."""
    recent = Recent(folder, window_ns, writes=changes)

    def fetch() -> dict[str, Any]:
        status: dict[str, Any] = client.ask(folder, {"do": "status"}, timeout_s=PATIENCE_S)[
            "status"
        ]
        complete(status)
        return status

    script = "\n" + resources.files(__package__).joinpath("live.js").read_text(encoding="utf-8")
    return recent, Site(
        token=secrets.token_urlsafe(24),
        page=lambda: page("live", recent.data().decode(), then=script, connects="'self'").encode(),
        data=recent.data,
        now=Now(fetch).data,
        change=_change(folder) if changes else None,
    )


def _change(folder: Path) -> Change:
    def change(wanted: dict[str, str]) -> str:
        answer = client.ask(folder, {"do": "set", **wanted}, timeout_s=PATIENCE_S)
        return f"changed: {', '.join(answer['tasks'])}"

    return change
