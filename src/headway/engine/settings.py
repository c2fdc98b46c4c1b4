"""The parts that scenario files and spec files have in common: reserves, priorities, settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from headway.engine.cost_models import CostModel, cost_models
from headway.engine.cost_models.exact import Exact
from headway.engine.policies import Policy, policies
from headway.engine.policies.ht import Ht
from headway.engine.policies.overlap import Overlap
from headway.engine.policies.prt import Prt
from headway.engine.priorities import Fixed, PriorityRule, parse_priority
from headway.engine.reading import Path, Report, Table, shown
from headway.engine.reserves import (
    BACKGROUND,
    DEFAULT_BACKGROUND,
    KINDS,
    POOL_MARK,
    ReserveSpec,
    parse_reserve,
)
from headway.engine.units import format_ns, parse_slowdown

NAME_LENGTH = 200
ADMISSIONS = ("limit", "analysis")
DEFAULT_LONGEST_NS = 2_000_000
"""The time slice of an H200, after which its driver itself lets another program go on."""
DEFAULT_HOLDOFF_NS = 2_000_000
"""For how long programs find a GPU kept that they used last, where nobody says."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What concerns the system as a whole."""

    limit: Fraction | None = None
    """How much of the GPU may be reserved, 1 being all of it; None: admission control is off."""
    longest_ns: int | None = None
    """Admission by analysis: the longest group of tasks without a reserve; None: by the limit."""
    background: ReserveSpec = DEFAULT_BACKGROUND
    named: tuple[Policy | CostModel, ...] = ()
    """Policies and cost models that were given settings of their own."""


def with_holdoff(settings: Settings, holdoff_ns: int) -> tuple[Policy | CostModel, ...]:
    """What was given settings of its own; policies of which nothing is said get this hold-off."""
    given = {item.name for item in settings.named}
    ours = [cls(holdoff_ns) for cls in (Prt, Ht, Overlap) if cls.name not in given]
    return (*settings.named, *ours)


def read_settings(top: Table) -> Settings:
    """Take `[admission]`, `[background]`, `[policy.*]` and `[predict.*]` out of a file."""
    limit = longest_ns = None
    admission = top.table("admission")
    if admission is not None:
        by_proof = admission.choice("by", ADMISSIONS, ADMISSIONS[0]) == "analysis"
        if by_proof:
            longest_ns = admission.duration("longest", DEFAULT_LONGEST_NS, least=1)
        elif "longest" in admission:
            admission.take("longest")
            admission.bad("longest", "a longest group", 'none, or by = "analysis", which it is for')
        limit = Fraction(str(admission.number("limit", 100, least=0, most=100))) / 100
        admission.close()
    background = DEFAULT_BACKGROUND
    table = top.table("background")
    if table is not None:
        capacity_ns = table.duration("capacity", DEFAULT_BACKGROUND.capacity_ns, least=1)
        period_ns = table.duration("period", DEFAULT_BACKGROUND.period_ns, least=1)
        _check_capacity(table, capacity_ns, period_ns)
        background = ReserveSpec("pe", capacity_ns, period_ns, shared=BACKGROUND)
        table.close()
    named: list[Policy | CostModel] = []
    for key, known in (("policy", policies()), ("predict", cost_models())):
        outer = top.table(key)
        if outer is None:
            continue
        for name, cls in known.items():
            inner = outer.table(name)
            if inner is not None:
                named.append(cls.read(inner))
                inner.close()
        outer.close()
    return Settings(limit, longest_ns, background, tuple(named))


def _check_capacity(table: Table, capacity_ns: int, period_ns: int) -> None:
    if capacity_ns > period_ns:
        period = format_ns(period_ns)
        table.bad("capacity", format_ns(capacity_ns), f"at most the period, {period}")


def read_name(table: Table, taken: dict[str, Path]) -> str:
    """The `name` of a task; each may be used once."""
    name = table.string("name", required=True)
    if len(name) > NAME_LENGTH:
        table.bad("name", shown(name), f"at most {NAME_LENGTH} characters")
    elif name.startswith(POOL_MARK):
        table.bad("name", shown(name), f"a name that does not begin with {POOL_MARK}")
    elif name in taken:
        first = table.report.line_of(taken[name])
        where = f" (line {first} has it already)" if first else ""
        table.bad("name", f"the name {name!r} a second time{where}", "a name of its own")
    elif name:
        taken[name] = (*table.path, "name")
    return name


def read_priority(table: Table) -> PriorityRule:
    """The `priority` of a task, 0 if none is given."""
    value = table.take("priority")
    try:
        return Fixed() if value is None else parse_priority(value)
    except ValueError as error:
        table.bad("priority", shown(value), str(error))
        return Fixed()


@dataclass(frozen=True, slots=True)
class ReserveOptions:
    """What a task says of its reserve: nothing, numbers of its own, or the Background reserve."""

    spec: ReserveSpec | None = None
    background: bool = False
    none: bool = False
    """It says so, rather than nothing."""


def read_predict(table: Table) -> str | None:
    """The `predict` of a task: the cost model for its groups; None: the usual one."""
    return table.choice("predict", cost_models(), "") or None


def read_reserve(table: Table, predict: str | None = None) -> ReserveOptions:
    """The `reserve` of a task: "5ms/20ms" as on the command line, a table of numbers, "background"
    or "none". `shared` names the pool of a reserve that is written in the first way. `predict` is
    what the task says of its cost model; an AE reserve in a table may name another one."""
    found = table.peek("reserve")
    if isinstance(found, str) and found not in (BACKGROUND, "none"):
        table.take("reserve")
        pool = table.string("shared") or None
        try:
            spec = parse_reserve(found, pool)
            return ReserveOptions(_predicted_by(spec, predict or spec.predict))
        except ValueError as error:
            table.bad("reserve", shown(found), str(error).removeprefix("expected "))
            return ReserveOptions()
    if table.peek("reserve") == BACKGROUND:
        table.take("reserve")
        return ReserveOptions(background=True)
    if table.peek("reserve") == "none":
        table.take("reserve")
        return ReserveOptions(none=True)
    inner = table.table("reserve")
    if inner is None:
        return ReserveOptions()
    before = len(table.report.problems)
    kind = inner.choice("policy", KINDS, "pe")
    capacity_ns = inner.duration("capacity", required=True, least=1)
    period_ns = inner.duration("period", required=True, least=1)
    shared = inner.string("shared") or None
    if shared == BACKGROUND:
        inner.bad("shared", repr(BACKGROUND), "another name: this one belongs to Headway")
    model = inner.choice("predict", cost_models(), predict or Exact.name)
    inner.close()
    if before == len(table.report.problems):
        _check_capacity(inner, capacity_ns, period_ns)
    spec = ReserveSpec(kind, capacity_ns, period_ns, shared)
    return ReserveOptions(_predicted_by(spec, model))


def _predicted_by(spec: ReserveSpec, model: str) -> ReserveSpec:
    """An AE reserve goes by this cost model; a PE reserve asks for no prediction."""
    return replace(spec, predict=model) if spec.kind == "ae" else spec


def read_slowdown(table: Table) -> float | None:
    """The `slowdown` of a task, as `headway run` has it; None: nothing is said."""
    found = table.take("slowdown")
    try:
        return None if found is None else parse_slowdown(found)
    except ValueError as error:
        table.bad("slowdown", shown(found), str(error))
        return None


class Pools:
    """All members of a shared reserve must say the same about it."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._first: dict[str, tuple[ReserveSpec, str]] = {}

    def check(self, spec: ReserveSpec | None, task: str, path: Path) -> None:
        if spec is None or spec.shared is None:
            return
        first, owner = self._first.setdefault(spec.shared, (spec, task))
        if first != spec:
            self._report.add(
                (*path, "reserve"),
                f"{describe(spec)} for the pool {spec.shared!r}",
                f"{describe(first)} as {owner!r} says",
            )


def describe(spec: ReserveSpec) -> str:
    """A reserve in a few words."""
    text = f"{spec.kind} {format_ns(spec.capacity_ns)} every {format_ns(spec.period_ns)}"
    return text if spec.predict == Exact.name else f"{text} by {spec.predict}"
