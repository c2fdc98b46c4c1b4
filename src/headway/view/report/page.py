"""Puts the page together: template, style, scripts and data in one file.

Task names and file names are whatever somebody chose. So they reach the page only as JSON in which
nothing can end the element that holds it, the scripts set text and never HTML, and the page's own
policy lets the browser run these scripts, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib import resources
from typing import Any

from headway import __version__
from headway.trace.analysis import History, Occupancy, summarise
from headway.view.files import whole_or_nothing
from headway.view.report.data import Data
from headway.view.report.others import data_of_others
from headway.view.traces.others import Track

SCRIPTS = ("numbers.js", "parts.js", "timeline.js", "charts.js", "page.js")


def write_report(
    path: str,
    history: History,
    *,
    title: str,
    facts: dict[str, Any],
    from_ns: int,
    to_ns: int,
    others: Sequence[Track] = (),
) -> None:
    """Write the page; `facts` go to its header, tracks of other tools to its timeline."""
    data = data_of(history, facts=facts, from_ns=from_ns, to_ns=to_ns, others=others)
    text = page(title, data.decode())
    with whole_or_nothing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def text_of(
    history: History, *, title: str, facts: dict[str, Any], from_ns: int, to_ns: int
) -> str:
    """The page of a run."""
    return page(title, data_of(history, facts=facts, from_ns=from_ns, to_ns=to_ns).decode())


def data_of(
    history: History,
    *,
    facts: dict[str, Any],
    from_ns: int,
    to_ns: int,
    zero_ns: int | None = None,
    others: Sequence[Track] = (),
) -> bytes:
    """What the page of a stretch of a run shows, as JSON; times are told from `zero_ns` on, by
    default from the beginning of the run."""
    occupancy = Occupancy(history)
    summary = summarise(history, from_ns, to_ns, occupancy=occupancy)
    head = {
        "facts": facts,
        "version": __version__,
        "gpus": history.gpus,
        "known": len(history.tasks),
        "events": history.events,
        "start": from_ns - (history.begin_ns if zero_ns is None else zero_ns),
        "duration": to_ns - from_ns,
        "whole": history.end_ns - history.begin_ns,
        "busy": summary.busy_ns,
        "complete": history.complete,
        "others": data_of_others(others, from_ns, to_ns),
    }
    return Data(history, occupancy, summary).encode(head)


def page(title: str, data: str, *, then: str = "", connects: str = "'none'") -> str:
    """The whole page around this JSON, with another script after its own that may ask there."""
    script, style = _script() + then, css_of_page()
    policy = f"default-src 'none'; script-src {hash_of(script)}; style-src {hash_of(style)}"
    policy += f"; connect-src {connects}"
    name = title.encode("utf-8", "replace").decode()
    parts = {
        "@POLICY@": policy,
        "@TITLE@": html.escape(name),
        "@STYLE@": style,
        "@DATA@": data.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"),
        "@SCRIPT@": script,
    }
    # In the order of the template, so that nothing in a part is taken for a place.
    result, rest = "", _part("page.html")
    for place, text in parts.items():
        before, rest = rest.split(place)
        result += before + text
    return result + rest


def _script() -> str:
    return "'use strict';\n" + "\n".join(_part(name) for name in SCRIPTS)


def css_of_page() -> str:
    """The style that all pages have."""
    return _part("page.css")


def policy_of() -> str:
    """What a page around such a page must let the browser run."""
    return f"{hash_of(_script())} {hash_of(css_of_page())}"


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
