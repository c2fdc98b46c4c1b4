"""Random scenarios in which many things happen at the same instant.

Times are mostly small multiples of a millisecond, so that completions, replenishments and
submissions coincide often; half milliseconds and odd nanoseconds make near misses. Every scenario
is finite: costs, capacities and periods are positive, so every group completes in the end.
"""

import json
from typing import Any

from hypothesis import strategies as st

MS = 1_000_000
TASK_NAMES = ("a", "b", "c", "d", "e")
POOL_NAMES = ("pool0", "pool1")


def written(ns: int) -> st.SearchStrategy[str]:
    """The spellings of a duration that mean exactly `ns`: whole in any unit, or decimal in ms."""
    spellings = [f"{ns}ns"]
    for unit, size in (("us", 1_000), ("ms", MS), ("s", 1_000 * MS)):
        if ns % size == 0:
            spellings.append(f"{ns // size}{unit}")
    if ns % MS:
        spellings.append(f"{ns // MS}.{ns % MS:06d}".rstrip("0") + "ms")
    return st.sampled_from(spellings[::-1])


@st.composite
def times(draw: st.DrawFn, least_ms: int, most_ms: int) -> int:
    """Nanoseconds within the bounds: of eight, six on the 1 ms grid, one on the half, one odd."""
    ns = draw(st.integers(least_ms, most_ms)) * MS
    kind = draw(st.integers(0, 7))
    if kind == 6:
        ns += MS // 2
    elif kind == 7:
        ns += draw(st.sampled_from((1, 7, 333_333, MS - 1)))
    return min(ns, most_ms * MS)


@st.composite
def reserves(draw: st.DrawFn) -> dict[str, Any]:
    """A PE or AE reserve with capacity <= period; AE predicts exactly."""
    period = draw(times(2, 12))
    capacity = min(period, draw(times(1, 6)))
    reserve = {
        "policy": draw(st.sampled_from(("pe", "ae"))),
        "capacity": draw(written(capacity)),
        "period": draw(written(period)),
    }
    if reserve["policy"] == "ae":
        reserve["predict"] = "exact"
    return reserve


@st.composite
def group_lists(draw: st.DrawFn) -> list[dict[str, str]]:
    """One to six groups; of ten lists, nine have their `at` in ascending order."""
    ats = draw(st.lists(times(0, 20), min_size=1, max_size=6))
    if draw(st.integers(0, 9)) < 9:
        ats.sort()
    return [{"at": draw(written(at)), "cost": draw(written(draw(times(1, 5))))} for at in ats]


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """One to five tasks of mixed policy and few priorities, some with an own or pooled reserve.

    The dict is what `tomllib` reads from the text that `to_toml` writes.
    """
    pools = {name: {**draw(reserves()), "shared": name} for name in POOL_NAMES}
    tasks = []
    for name in TASK_NAMES[: draw(st.integers(1, len(TASK_NAMES)))]:
        task: dict[str, Any] = {
            "name": name,
            "policy": draw(st.sampled_from(("prt", "ht"))),
            "priority": draw(st.integers(-1, 2)),
        }
        kind = draw(st.sampled_from(("none", "own", *POOL_NAMES)))
        if kind == "own":
            task["reserve"] = draw(reserves())
        elif kind != "none":
            task["reserve"] = dict(pools[kind])
        task["groups"] = draw(group_lists())
        tasks.append(task)
    return {"task": tasks}


def to_toml(scenario: dict[str, Any]) -> str:
    """The scenario as the text of a scenario file."""
    lines: list[str] = []
    if "device" in scenario:
        lines += ["[device]", *(f"{k} = {_value(v)}" for k, v in scenario["device"].items()), ""]
    for task in scenario["task"]:
        lines += ["[[task]]", *(f"{key} = {_value(value)}" for key, value in task.items()), ""]
    return "\n".join(lines)


def _value(value: str | int | dict[str, Any] | list[Any]) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
    # JSON's strings and integers are TOML's too, as long as no character needs a surrogate pair.
    return json.dumps(value, ensure_ascii=False)
