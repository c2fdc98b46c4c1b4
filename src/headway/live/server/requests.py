"""What a request on the control socket asks for, checked: each key is read by one function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.engine.choice import parse_policy
from headway.engine.cost_models import cost_models
from headway.engine.cost_models.exact import Exact
from headway.engine.priorities import PriorityRule, expected_priority, parse_priority
from headway.engine.reserves import ReserveSpec
from headway.engine.shares import Range, parse_share
from headway.engine.units import DurationError, parse_duration, parse_slowdown
from headway.live.identity.options import TaskOptions, parse_reserve

Request = dict[str, Any]
"""A JSON object."""
TASK_OPTIONS = (
    "name", "policy", "priority", "reserve", "shared", "period", "deadline", "slowdown", "predict",
    "share",
)  # fmt: skip
"""What the options of a task are."""


class Refusal(ValueError):
    """A request that cannot be done; the text goes back to the caller."""


def task_options(request: Request, uid: int) -> TaskOptions:
    """What a user wants of a program."""
    predict = cost_model(request)
    return TaskOptions(
        name=text(request, "name"),
        policy=policy(request),
        priority=priority(request),
        reserve=reserve(request, predict),
        period_ns=duration(request, "period"),
        deadline_ns=duration(request, "deadline"),
        slowdown=slowdown(request),
        predict=predict,
        shares=shares(request),
        uid=uid,
    )


def text(request: Request, key: str) -> str | None:
    value = request.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > 200 or not value.isprintable():
        raise Refusal(f"{key}: expected printable text")
    return value


def policy(request: Request) -> str | None:
    value = text(request, "policy")
    try:
        return None if value is None else parse_policy(value).text
    except ValueError as error:
        raise Refusal(f"policy: {error}") from None


def priority(request: Request) -> PriorityRule | None:
    value = request.get("priority")
    try:
        return None if value is None else parse_priority(value)
    except (TypeError, ValueError):
        found = str(value)[:40]
        raise Refusal(f"priority: found {found!r}, expected {expected_priority()}") from None


def duration(request: Request, key: str) -> int | None:
    value = text(request, key)
    if value is None:
        return None
    try:
        duration_ns = parse_duration(value)
    except DurationError as error:
        raise Refusal(f"{key}: found {value!r}, expected {error}") from None
    if not duration_ns:
        raise Refusal(f"{key}: expected a duration above zero")
    return duration_ns


def shares(request: Request) -> Range | None:
    value = text(request, "share")
    try:
        return None if value is None else parse_share(value)
    except ValueError as error:
        raise Refusal(f"share: {error}") from None


def slowdown(request: Request) -> float | None:
    value = text(request, "slowdown")
    try:
        return None if value is None else parse_slowdown(value)
    except ValueError as error:
        raise Refusal(f"slowdown: found {value!r}, expected {error}") from None


def cost_model(request: Request) -> str | None:
    value = text(request, "predict")
    if value is not None and (value not in cost_models() or value == Exact.name):
        known = ", ".join(sorted(name for name in cost_models() if name != Exact.name))
        raise Refusal(f"predict: found {value[:40]!r}, expected one of {known}")
    return value


def reserve(request: Request, predict: str | None = None) -> ReserveSpec | None:
    """An AE reserve goes by what this cost model predicts, or else by history."""
    value = text(request, "reserve")
    if value is None:
        return None
    found = parse_reserve(value, text(request, "shared"))
    return found if predict is None else replace(found, predict=predict)
