"""The spec: which task gets which policy, priority and reserve (TimeGraph §3, Specification).

Two forms, one parser, the same objects. TOML:

    [[task]]
    name = "mplayer"              # `*` and `?` stand for any text and any character
    policy = "prt"
    priority = 5                  # or "*", "rm", "edf"
    reserve = { policy = "pe", capacity = "10ms", period = "40ms" }

and the paper's line form, where C and T are microseconds and `-` or nothing means none:

    mplayer:prt:pe:5:10000:40000

The first entry that matches a name counts. A file with a mistake is refused as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from headway.engine.model import DEFAULT_LEVEL, MAX_LEVEL
from headway.engine.policies import policies
from headway.engine.priorities import PriorityRule
from headway.engine.reading import Path, Report, Table, locate, parse_toml, shown
from headway.engine.settings import (
    Pools,
    ReserveWish,
    Settings,
    read_name,
    read_priority,
    read_reserve,
    read_settings,
)

FIELDS = ("name", "sched", "resv", "prio", "C", "T")
NONE = ("", "-", "none")
LINE_FORM = "name:sched:resv:prio:C:T"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the spec says of the tasks whose names match."""

    pattern: str
    policy: str
    priority: PriorityRule
    reserve: ReserveWish


@dataclass(frozen=True, slots=True)
class Allowed:
    """Who beside the owner may be served by a daemon, and how far they may go: `[allow]`."""

    uids: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    priority: int = DEFAULT_LEVEL
    """The highest priority level they may ask for."""
    channels: int | None = None
    """Connections that one user may have at a time."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole spec file."""

    settings: Settings = field(default_factory=Settings)
    entries: tuple[Entry, ...] = ()
    allowed: Allowed = field(default_factory=Allowed)

    def match(self, name: str) -> Entry | None:
        """The first entry for this task name; None means Background."""
        return next((e for e in self.entries if _matches(name, e.pattern)), None)


def _matches(name: str, pattern: str) -> bool:
    """`*` and `?` stand for others; brackets, which program names have, only for themselves."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def parse_spec(text: str, file: str = "spec") -> Spec:
    """Read a spec in either form; BadInput lists every mistake."""
    if is_line_form(text):
        report = Report()
        data = _read_lines(text, report)
        lines: dict[Path, int] = {("task", i): line for i, (_, line) in enumerate(data)}
        report = Report(lines, report.problems)
        document: dict[str, Any] = {"task": [entry for entry, _ in data]}
    else:
        document = parse_toml(text, file)
        report = Report(locate(text))
    spec = _read(document, report)
    report.raise_if_any(file)
    return spec


def is_line_form(text: str) -> bool:
    """Whether the first line that says something is of the paper's form."""
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        if content:
            return ":" in content and "=" not in content and not content.startswith("[")
    return False


def _read(document: dict[str, Any], report: Report) -> Spec:
    top = Table(document, (), report)
    settings = read_settings(top)
    allowed = _read_allowed(top.table("allow"))
    pools = Pools(report)
    taken: dict[str, Path] = {}
    entries = []
    for table in top.tables("task"):
        name = read_name(table, taken)
        entry = Entry(
            name,
            table.choice("policy", policies(), "prt"),
            read_priority(table),
            read_reserve(table),
        )
        pools.check(entry.reserve.spec, name, table.path)
        table.close()
        entries.append(entry)
    top.close()
    return Spec(settings, tuple(entries), allowed)


def _read_allowed(table: Table | None) -> Allowed:
    if table is None:
        return Allowed()
    uids, groups = table.take("uids") or [], table.take("groups") or []
    if not isinstance(uids, list) or not all(type(uid) is int and uid >= 0 for uid in uids):
        table.bad("uids", shown(uids), "a list of user numbers such as [1000, 1001]")
        uids = []
    if not isinstance(groups, list) or not all(isinstance(name, str) for name in groups):
        table.bad("groups", shown(groups), 'a list of group names such as ["video"]')
        groups = []
    priority = table.integer("priority", DEFAULT_LEVEL, least=-MAX_LEVEL, most=MAX_LEVEL)
    channels = table.integer("channels", 0, least=1, most=1_000_000) or None
    table.close()
    return Allowed(tuple(uids), tuple(groups), priority, channels)


def _read_lines(text: str, report: Report) -> list[tuple[dict[str, Any], int]]:
    """The line form as the tables that the TOML form would give, with their line numbers."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        fields = [field.strip() for field in content.split(":")]
        if len(fields) != len(FIELDS):
            report.add_at(number, "", f"{len(fields)} fields in {shown(content)}", LINE_FORM)
            continue
        entries.append((_entry(dict(zip(FIELDS, fields, strict=True)), number, report), number))
    return entries


def _entry(fields: dict[str, str], number: int, report: Report) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": fields["name"]}
    if fields["sched"] not in NONE:
        entry["policy"] = fields["sched"].lower()
    if fields["prio"] not in NONE:
        entry["priority"] = fields["prio"].lower()
    kind = fields["resv"].lower()
    if kind == "background":
        entry["reserve"] = kind
    elif kind not in NONE:
        reserve: dict[str, Any] = {"policy": kind}
        for field, key in (("C", "capacity"), ("T", "period")):
            value = fields[field]
            if value.isascii() and value.isdigit() and len(value) <= 15:
                reserve[key] = f"{value}us"
            else:
                report.add_at(number, field, shown(value), "a whole number of microseconds")
                reserve[key] = "1us"
        entry["reserve"] = reserve
    elif fields["C"] not in (*NONE, "0") or fields["T"] not in (*NONE, "0"):
        found = f"C and T without a reserve policy in {shown(fields['name'])}"
        report.add_at(number, "resv", found, "pe or ae, or no C and T")
    return entry
