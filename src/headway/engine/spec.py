"""The spec: which task gets which policy, priority and reserve (TimeGraph §3, Specification).

Two forms, one parser, the same objects. TOML:

    [[task]]
    name = "mplayer"              # `*` and `?` stand for any text and any character
    policy = "prt"                # or with parameters: { name = "wfq", weight = 3 }
    priority = 5                  # or "*", "rm", "edf"
    reserve = { policy = "pe", capacity = "10ms", period = "40ms" }
    slowdown = "10%"              # how much longer than alone its jobs may take, without a deadline
    share = "25%..100%"           # which part of the multiprocessors it may be given beside others

and the paper's line form, where C and T are microseconds and `-` or nothing means none:

    mplayer:prt:pe:5:10000:40000

The first entry that matches a name counts. A file with a mistake is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from headway.engine.choice import read_policy
from headway.engine.model import DEFAULT_LEVEL, MAX_LEVEL
from headway.engine.policies import policies
from headway.engine.priorities import PriorityRule
from headway.engine.reading import Path, Report, Table, locate, parse_toml, shown
from headway.engine.reserves import ReserveSpec
from headway.engine.settings import (
    Pools,
    ReserveOptions,
    Settings,
    read_name,
    read_predict,
    read_priority,
    read_reserve,
    read_settings,
    read_slowdown,
)
from headway.engine.shares import EXPECTED as EXPECTED_SHARE
from headway.engine.shares import Range, parse_share

FIELDS = ("name", "sched", "resv", "prio", "C", "T")
NONE = ("", "-", "none")
LINE_FORM = "name:sched:resv:prio:C:T"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the spec says of the tasks whose names match."""

    pattern: str
    policy: str
    priority: PriorityRule
    reserve: ReserveOptions
    period_ns: int | None = None
    """How often its jobs come."""
    deadline_ns: int | None = None
    """How long a job may take; without one the period."""
    slowdown: float | None = None
    """By which part of what jobs take alone they may take longer, if they have no deadline."""
    chosen: bool = True
    """The policy stands in the spec: it is not what counts where none does."""
    shares: Range | None = None
    """Which share of the multiprocessors its tasks may be given beside others."""
    predict: str | None = None
    """The cost model of the tasks' groups; None: the usual one."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Who beside the owner may be served by a daemon, and how far they may go: `[allow]`."""

    uids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    priority: int = DEFAULT_LEVEL
    """The highest priority level they may ask for."""
    channels: int | None = None
    """Connections, and so tasks, that one user may have at a time."""
    policies: tuple[str, ...] = ()
    """Policies that pass more important tasks, and may be used all the same."""
    pools: tuple[str, ...] = ()
    """Pools of this file that they may join."""
    reserves: int | None = None
    """Reserves that one user may have at a time."""
    limit: Fraction | None = None
    """How much of the GPU the reserves of one user may come to."""
    nice: bool = False
    """Whether their window servers may be raised on the CPU."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole spec file."""

    settings: Settings = field(default_factory=Settings)
    entries: tuple[Entry, ...] = ()
    allowed: Allowed = field(default_factory=Allowed)
    daemon: tuple[tuple[str, str | int | bool], ...] = ()
    """Options of `headway daemon` that its command line does not give: `[daemon]`."""

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
    allowed_table = top.table("allow")
    pools = Pools(report)
    taken: dict[str, Path] = {}
    entries = []
    for table in top.tables("task"):
        name = read_name(table, taken)
        chosen = "policy" in table
        predict = read_predict(table)
        entry = Entry(
            name,
            read_policy(table).text,
            read_priority(table),
            read_reserve(table, predict),
            table.duration("period", 0, least=1) or None,
            table.duration("deadline", 0, least=1) or None,
            read_slowdown(table),
            chosen,
            _read_share(table),
            predict,
        )
        pools.check(entry.reserve.spec, name, table.path)
        table.close()
        entries.append(entry)
    daemon = _read_daemon(top)
    allowed = _read_allowed(allowed_table, {e.reserve.spec for e in entries})
    top.close()
    return Spec(settings, tuple(entries), allowed, daemon)


def _read_daemon(top: Table) -> tuple[tuple[str, str | int | bool], ...]:
    """Which keys there are is known to the command whose options they are."""
    table = top.table("daemon")
    found = () if table is None else tuple(table.items())
    for key, value in found:
        if table is not None and not isinstance(value, str | int):
            table.bad(key, shown(value), "what the option takes: text, a number, true or false")
    return found


def _read_share(table: Table) -> Range | None:
    found = table.take("share")
    try:
        return None if found is None else parse_share(str(found))
    except ValueError:
        table.bad("share", shown(found), EXPECTED_SHARE)
        return None


def _read_allowed(table: Table | None, reserves: Collection[ReserveSpec | None]) -> Allowed:
    if table is None:
        return Allowed()
    uids = table.take("uids") or []
    if not isinstance(uids, list) or not all(type(uid) is int and uid >= 0 for uid in uids):
        table.bad("uids", shown(uids), "a list of user numbers such as [1000, 1001]")
        uids = []
    shared = sorted({spec.shared for spec in reserves if spec is not None and spec.shared})
    limit = table.number("limit", -1, least=0, most=100)
    allowed = Allowed(
        tuple(uids),
        _names(table, "users", None, 'a list of user names such as ["anna"]'),
        _names(table, "groups", None, 'a list of group names such as ["video"]'),
        table.integer("priority", DEFAULT_LEVEL, least=-MAX_LEVEL, most=MAX_LEVEL),
        table.integer("channels", 0, least=1, most=1_000_000) or None,
        _names(table, "policies", policies(), f"a list of policies: {', '.join(policies())}"),
        _names(table, "pools", shared, "a list of pools that reserves of this file share"),
        table.integer("reserves", 0, least=1, most=1_000_000) or None,
        None if limit < 0 else Fraction(str(limit)) / 100,
        table.boolean("nice", False),
    )
    table.close()
    return allowed


def _names(table: Table, key: str, known: Collection[str] | None, expected: str) -> tuple[str, ...]:
    """A list of names, of these if there are such."""
    found = table.take(key) or []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        table.bad(key, shown(found), expected)
        return ()
    unknown = [name for name in found if known is not None and name not in known]
    if unknown:
        table.bad(key, shown(unknown[0]), expected)
    return tuple(found)


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
