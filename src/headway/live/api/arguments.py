"""What a program may say of its tasks and jobs, checked here, whether there is a daemon or not."""

from __future__ import annotations

from typing import Any

from headway.engine.priorities import expected_priority, parse_priority
from headway.engine.units import DurationError, parse_duration, parse_slowdown
from headway.live.identity.options import parse_reserve

NAME_LENGTH = 200


def check_task(given: dict[str, Any]) -> None:
    """ValueError names the first argument that is wrong, what was found and what was expected."""
    _check_name(given["name"])
    for argument, value in given.items():
        if value is not None and argument != "name":
            _CHECKS[argument](argument, value)


def duration_ns(call: str, argument: str, value: object) -> int:
    """A duration above zero."""
    try:
        found_ns = parse_duration(value)
    except DurationError as error:
        raise _wrong(call, argument, value, str(error)) from None
    if not found_ns:
        raise _wrong(call, argument, value, 'a duration above zero, such as "5ms"')
    return found_ns


def _wrong(call: str, argument: str, value: object, expected: str) -> ValueError:
    found = repr(value)
    found = found if len(found) <= 60 else found[:57] + "..."
    return ValueError(f"headway.{call}: {argument}: found {found}, expected {expected}")


def _check_name(value: object) -> None:
    is_text = isinstance(value, str) and value.isprintable() and value.strip()
    if not is_text or len(str(value)) > NAME_LENGTH:
        expected = f'printable text of at most {NAME_LENGTH} characters, such as "detector"'
        raise _wrong("task", "name", value, expected)


def _check_priority(argument: str, value: object) -> None:
    try:
        parse_priority(value)
    except (TypeError, ValueError):
        raise _wrong("task", argument, value, expected_priority()) from None


def _check_reserve(argument: str, value: object) -> None:
    expected = 'text such as "5ms/20ms" or "5ms/20ms:ae"'
    if not isinstance(value, str):
        raise _wrong("task", argument, value, expected)
    try:
        parse_reserve(value)
    except ValueError as error:
        why = str(error).removeprefix("expected ").partition(", found")[0]
        raise _wrong("task", argument, value, why) from None


def _check_policy(argument: str, value: object) -> None:
    if not isinstance(value, str):
        raise _wrong("task", argument, value, "text; headway policies lists them")
    from headway.engine.choice import parse_policy  # policies take a while to load

    try:
        parse_policy(value)
    except ValueError as error:
        raise ValueError(f"headway.task: {argument}: {error}") from None


def _check_duration(argument: str, value: object) -> None:
    duration_ns("task", argument, value)


def _check_slowdown(argument: str, value: object) -> None:
    try:
        parse_slowdown(value)
    except ValueError as error:
        raise _wrong("task", argument, value, str(error)) from None


_CHECKS = {
    "priority": _check_priority,
    "reserve": _check_reserve,
    "policy": _check_policy,
    "period": _check_duration,
    "deadline": _check_duration,
    "slowdown": _check_slowdown,
}
