"""Lock files: requests for the tokens of one allocator, as JSON (docs/locks.md is the manual)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headway.engine.locks.settings import AllocatorSettings
from headway.engine.reading import BadInput, Problem, Report, Table, one_of, shown
from headway.engine.units import MAX_NS

Name = str | int
ACTIONS = ("cancel", "priority", "vunlock")


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """A request for a token, held for exactly `hold` once granted."""

    name: Name
    at: int
    hold: int
    priority: int


@dataclass(frozen=True, slots=True)
class EventPlan:
    """Something that happens to a request at an instant."""

    at: int
    action: str
    name: Name
    to: int | None
    """The new priority."""


@dataclass(frozen=True, slots=True)
class LockPlan:
    """A lock file that was read and found right."""

    settings: AllocatorSettings
    requests: tuple[RequestPlan, ...]
    events: tuple[EventPlan, ...]
    remarks: tuple[str, ...] = ()
    """What is allowed and probably not meant."""


def parse_lock_file(text: str, file: str = "lock file") -> LockPlan:
    """Read a lock file; BadInput names the first mistake."""

    def refuse(found: str, line: int | None = None, key: str = "") -> NoReturn:
        raise BadInput(file, [Problem(line, key, found, "a JSON object")])

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            names = [key for key, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            refuse(f"the key {shown(twice)} twice in one object")
        return table

    def no_number(text: str) -> NoReturn:
        refuse(f"{text}, which is no JSON number")

    try:
        data = json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except json.JSONDecodeError as error:
        refuse(f"text that is not JSON ({error.msg} at column {error.colno})", error.lineno)
    except RecursionError:
        refuse("lists nested too deeply")
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        refuse("a number of more than 4000 digits")
    if not isinstance(data, dict):
        refuse(shown(data))
    return _read(data, file)


def _read(data: dict[str, Any], file: str) -> LockPlan:
    report = Report()
    top = Table(data, (), report)
    settings = AllocatorSettings(
        tokens=_whole(top, "k"),
        devices=_whole(top, "g"),
        top=_whole(top, "m"),
        length=_whole_or_none(top, "f"),
        cap=_whole_or_none(top, "cap"),
        order=_order(top),
    )
    if not report.problems:
        for key, found, expected in settings.mistakes():
            top.bad(key, found if found is not None else "null (unlimited)", expected)
    if "requests" not in top:
        top.bad("requests", "nothing", "a list of requests")
    names: dict[tuple[type, Name], int] = {}
    requests = [_request(table, names) for table in _rows(top, "requests")]
    events = [_event(table, names) for table in _rows(top, "events")]
    top.close()
    if report.problems:
        raise BadInput(file, report.problems[:1])
    return LockPlan(settings, tuple(requests), tuple(events), tuple(_remarks(settings)))


def _remarks(settings: AllocatorSettings) -> list[str]:
    remarks = []
    if settings.tokens % settings.devices:
        found = f"k = {settings.tokens} and g = {settings.devices}"
        remarks.append(f"g: found {found}: devices have unequal numbers of tokens")
    if settings.order == "priority" and (settings.length, settings.cap) != (1, settings.tokens):
        remarks.append(f"f, cap: order priority takes f = 1 and cap = k = {settings.tokens}")
    return remarks


def _rows(top: Table, key: str) -> list[Table]:
    value = top.take(key)
    if value is None:
        return []
    if not isinstance(value, list):
        top.bad(key, shown(value), "a list of objects")
        return []
    rows = []
    for index, item in enumerate(value):
        if isinstance(item, dict):
            rows.append(Table(item, (key, index), top.report))
        else:
            top.report.add((key, index), shown(item), "an object")
    return rows


def _whole(table: Table, key: str, *, least: int | None = None, most: int | None = None) -> int:
    if key not in table or table.peek(key) is None:
        found = "null" if key in table else "nothing"
        table.take(key)
        table.bad(key, found, "a whole number")
        return 1
    return table.integer(key, 1, least=least, most=most)


def _whole_or_none(table: Table, key: str) -> int | None:
    if key in table and table.peek(key) is None:
        table.take(key)
        return None
    if key not in table:
        table.take(key)
        table.bad(key, "nothing", "a whole number, or null for unlimited")
        return None
    return table.integer(key, 1)


def _order(top: Table) -> str:
    if "order" not in top:
        top.take("order")
        top.bad("order", "nothing", "donation or priority")
    return top.choice("order", ("donation", "priority"), "donation")


def _instant(table: Table, key: str) -> int:
    return _whole(table, key, least=0, most=MAX_NS)


def _name(table: Table) -> Name:
    value = table.take("id")
    right = isinstance(value, str | int) and not isinstance(value, bool)
    if not right or (isinstance(value, str) and not (value and value.isprintable())):
        table.bad("id", shown(value), "a name in quotes or a whole number")
        return ""
    assert isinstance(value, str | int)
    return value


def _request(table: Table, names: dict[tuple[type, Name], int]) -> RequestPlan:
    name = _name(table)
    key = (type(name), name)
    if name != "" and key in names:
        first = f"requests[{names[key]}]"
        table.bad("id", f"{shown(name)}, which {first} has too", "an id that no other request has")
    names.setdefault(key, int(table.path[1]))
    plan = RequestPlan(
        name, _instant(table, "at"), _instant(table, "hold"), _whole(table, "priority")
    )
    table.close()
    return plan


def _event(table: Table, names: dict[tuple[type, Name], int]) -> EventPlan:
    at = _instant(table, "at")
    action = table.take("do")
    if action not in ACTIONS:
        table.bad("do", shown(action), one_of(ACTIONS))
        action = "cancel" if "to" not in table else "priority"
    name = _name(table)
    if name != "" and (type(name), name) not in names:
        table.bad("id", shown(name), "the id of a request")
    to = None
    if action == "priority":
        to = _whole(table, "to")
    elif table.take("to") is not None:
        table.bad("to", f"a new priority with {action!r}", "none")
    table.close()
    return EventPlan(at, str(action), name, to)
