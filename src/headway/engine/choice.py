"""Which policy a task gets, and with which parameters: `wfq:weight=3`, or the same as a table.

    policy = "prt"                              in a scenario or spec,
    policy = { name = "wfq", weight = 3 }       as a table,
    --policy wfq:weight=3                       in commands, requests and anywhere else as text

The policy's own `read_task` says which parameters there are; a mistake in them is told like any
other mistake in a file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headway.engine.policies import policies
from headway.engine.reading import Report, Table, one_of, shown

DEFAULT_POLICY: Final = "prt"
TURNS_POLICY: Final = "overlap"
"""What programs that take turns have if nobody chose: what others have in flight is a window, and
waiting for its end costs more than sharing the GPU with it for that moment."""
EXPECTED: Final = 'a policy such as "prt", with parameters "wfq:weight=3"'


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy for one task."""

    name: str
    text: str
    """The same with its parameters, as people write them."""
    parameters: Any = field(default=None, compare=False)
    """What the policy made of them; it finds this at `task.parameters`."""

    def __str__(self) -> str:
        return self.text


def parse_policy(text: str) -> Choice:
    """Read `wfq:weight=3,burst=2ms`; ValueError says what was expected."""
    name, _, rest = text.partition(":")
    values: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not key or not value or key in values:
            raise ValueError(f"found {shown(text)}, expected {EXPECTED}")
        values[key] = _plain(value)
    if name not in policies():
        raise ValueError(f"found {shown(name)}, expected one of {one_of(policies())}")
    report = Report()
    choice = _choose(name, Table(values, (f"policy {name}",), report))
    if report.problems:
        problem = report.problems[0]
        raise ValueError(f"{problem.key}: found {problem.found}, expected {problem.expected}")
    return choice


def read_policy(table: Table, key: str = "policy") -> Choice:
    """The `policy` of a task in a file: a name, text with parameters, or a table."""
    value = table.peek(key)
    if isinstance(value, str) and ":" in value:
        table.take(key)
        try:
            return parse_policy(value)
        except ValueError as error:
            found, _, expected = str(error).partition(", expected ")
            table.bad(key, found.replace("found ", "", 1), expected)
            return Choice(DEFAULT_POLICY, DEFAULT_POLICY)
    if not isinstance(value, dict):
        name = table.choice(key, policies(), DEFAULT_POLICY)
        return _choose(name, Table({}, (*table.path, key), table.report))
    inner = table.table(key)
    assert inner is not None
    if "name" not in inner:
        inner.bad("name", "nothing", one_of(policies()))
    name = inner.choice("name", policies(), DEFAULT_POLICY)
    if name != value.get("name"):  # nothing can be said of another policy's parameters
        return Choice(name, name)
    return _choose(name, inner)


def _choose(name: str, table: Table) -> Choice:
    """Have the policy read its parameters; keys that are left over are mistakes."""
    written = {key: value for key, value in table.items() if key != "name"}
    for key, value in written.items():
        if not isinstance(value, bool | int | float | str) or set(str(value)) & set(",="):
            table.bad(key, shown(value), "a number, true or false, or text without , and =")
    parameters = policies()[name].read_task(table)
    table.close()
    return Choice(name, _text(name, written), parameters)


def _text(name: str, values: Mapping[str, Any]) -> str:
    words = ",".join(f"{key}={_written(value)}" for key, value in values.items())
    return f"{name}:{words}" if words else name


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> Any:
    """A number, true or false, or else the text itself, such as a duration."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
