"""Claims: what a task on a cluster is to get of a GPU, as people write it, checked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from headway.engine.model import BACKGROUND_LEVEL
from headway.engine.reserves import ReserveSpec
from headway.engine.units import format_ns
from headway.live.server import requests
from headway.live.server.requests import Refusal

BLOCKED_NS = 200_000
"""What may be on a GPU when a job comes: a daemon's window, if its node says nothing else."""
UNITS = 10_000
"""Parts of a GPU's time that a cluster counts in: Ray's precision is 0.0001."""
TASK_OPTIONS = ("name", "priority", "reserve", "deadline", "policy", "slowdown", "share")
"""Keys that the daemon of the GPU is told as they are."""
KEYS = (*TASK_OPTIONS, "preemptible", "labels")
_LABEL = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._*?/-]{0,62}")


class ClaimError(ValueError):
    """A claim that cannot be: one line, with what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Claim:
    """GPU time for one task."""

    name: str
    level: int = 0
    """Its priority; larger is more important."""
    rule: str = "fixed"
    reserve: ReserveSpec | None = None
    """As it is in force. None: the task gets what others leave."""
    period_ns: int = 0
    """Of its jobs: the reserve's period as it was written."""
    deadline_ns: int | None = None
    preemptible: bool = False
    """Whether the task may be moved, or wait, for a more important one's sake."""
    labels: tuple[tuple[str, str], ...] = ()
    """What a GPU must be: `(("model", "NVIDIA-H200"),)`."""
    words: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)
    """As it was written; what daemons are told."""

    @property
    def units(self) -> int:
        """Its part of a GPU, in `UNITS`, rounded up: sums never promise more than there is."""
        if self.reserve is None:
            return 0
        return -(-self.reserve.capacity_ns * UNITS // self.reserve.period_ns)

    @property
    def effective_level(self) -> int:
        """Who may be moved and has no reserve is behind everybody."""
        return BACKGROUND_LEVEL if self.preemptible and self.reserve is None else self.level

    def suits(self, labels: Mapping[str, str]) -> bool:
        """Whether a GPU with these labels will do."""
        return all(fnmatchcase(labels.get(key, ""), value) for key, value in self.labels)

    def options(self) -> dict[str, Any]:
        """What the daemon of its GPU is told."""
        told = {key: self.words[key] for key in TASK_OPTIONS if self.words.get(key) is not None}
        if self.reserve is not None and self.reserve.period_ns != self.period_ns:
            spec = self.reserve
            told["reserve"] = f"{spec.capacity_ns}ns/{spec.period_ns}ns:{spec.kind}"
        return told

    def describe(self) -> str:
        """A line for people."""
        parts = [f"priority {self.words.get('priority', 0)}"]
        if self.reserve is not None:
            parts.append(f"{format_ns(self.reserve.capacity_ns)}/{format_ns(self.period_ns)}")
        if self.deadline_ns is not None:
            parts.append(f"within {format_ns(self.deadline_ns)}")
        parts += [f"{key}={value}" for key, value in self.labels]
        if self.preemptible:
            parts.append("preemptible")
        return ", ".join(parts)


def label(text: str) -> str:
    """A device's name as a label: NVIDIA H200 is NVIDIA-H200."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:63].strip("-._")
    return cleaned or "unknown"


def read_claim(given: Mapping[str, Any] | None, name: str = "task") -> Claim:
    """A claim as it was written; ClaimError says what is wrong with it, in one line."""
    if not isinstance(given, Mapping):
        raise _error(f"found {_shown(given)}, expected its keys, such as priority and reserve")
    unknown = [key for key in given if key not in KEYS]
    if unknown:
        near = difflib.get_close_matches(str(unknown[0]), KEYS, 1)
        meant = f"; did you mean {near[0]}?" if near else f", expected some of {', '.join(KEYS)}"
        raise _error(f"found the key {_shown(unknown[0])}{meant}")
    words = {key: given[key] for key in TASK_OPTIONS if given.get(key) is not None}
    for key, value in words.items():
        if key != "priority" and not isinstance(value, str):
            raise _error(f"{key}: found {_shown(value)}, expected text such as {_EXAMPLES[key]}")
    words.setdefault("name", name)
    try:
        options = requests.task_options(words, -1)
    except Refusal as error:
        raise _error(str(error)) from None
    except ValueError as error:  # of reserves
        raise _error(f"reserve: {error}") from None
    preemptible = given.get("preemptible", False)
    if not isinstance(preemptible, bool):
        raise _error(f"preemptible: found {_shown(preemptible)}, expected True or False")
    _check_times(options.reserve, options.deadline_ns, words)
    if options.priority is not None and options.priority.name == "*":
        raise _error("priority: found '*', expected a number, rm or edf: a node has no foreground")
    return Claim(
        name=options.name or name,
        level=0 if options.priority is None else options.priority.level,
        rule="fixed" if options.priority is None else options.priority.name,
        reserve=_in_time(options.reserve, options.deadline_ns),
        period_ns=0 if options.reserve is None else options.reserve.period_ns,
        deadline_ns=options.deadline_ns,
        preemptible=preemptible,
        labels=_labels(given.get("labels")),
        words=words,
    )


def written(claim: Claim) -> dict[str, Any]:
    """What `read_claim` makes this claim of."""
    told: dict[str, Any] = {"name": claim.name, **claim.words}
    if claim.labels:
        told["labels"] = dict(claim.labels)
    return told | ({"preemptible": True} if claim.preemptible else {})


_EXAMPLES = {
    "name": '"detector"',
    "reserve": '"6ms/10ms"',
    "deadline": '"10ms"',
    "policy": '"prt"',
    "slowdown": '"10%"',
    "share": '"25%..100%"',
}


def _check_times(
    reserve: ReserveSpec | None, deadline_ns: int | None, words: Mapping[str, Any]
) -> None:
    if deadline_ns is None:
        return
    if reserve is None:
        raise _error(
            f"deadline: found {words['deadline']!r} without a reserve, expected reserve=C/T beside "
            "it: nothing can be said of work that nobody bounds"
        )
    if deadline_ns < reserve.capacity_ns:
        raise _error(
            f"deadline: found {words['deadline']!r}, expected no less than the reserve's "
            f"{format_ns(reserve.capacity_ns)}"
        )


def _in_time(reserve: ReserveSpec | None, deadline_ns: int | None) -> ReserveSpec | None:
    """The reserve that keeps the deadline of jobs of C every T. These come whenever they want, so a
    job may find the budget used and wait for the next replenishment: up to 2 C - (T - T') with a
    period T' of the reserve. Where C every T does not do, T' is made shorter, to leave room for
    what runs when the job comes, too."""
    if reserve is None or deadline_ns is None or reserve.kind != "pe":
        return reserve
    capacity_ns, period_ns = reserve.capacity_ns, reserve.period_ns
    length_ns = capacity_ns + BLOCKED_NS
    if 2 * length_ns <= deadline_ns:
        return reserve
    refill_ns = min(period_ns, deadline_ns + period_ns - 2 * length_ns)
    return replace(reserve, period_ns=max(capacity_ns, refill_ns))


def _labels(given: object) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise _error(f'labels: found {_shown(given)}, expected such as {{"model": "NVIDIA-H200"}}')
    for key, value in given.items():
        for text in (key, value):
            if not isinstance(text, str) or _LABEL.fullmatch(text) is None:
                expected = "letters, digits, ., _, -, / and, in values, * and ?"
                raise _error(f"labels: found {_shown(text)}, expected {expected}")
    return tuple(sorted(given.items()))


def _error(what: str) -> ClaimError:
    return ClaimError(f"headway claim: {what}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
