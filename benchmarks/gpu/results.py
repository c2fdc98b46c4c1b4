"""What sections hand back: tables, goals that are met or missed, and the numbers."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"{self.title}\n\n{body}" if self.title else body


def latencies(title: str, rows: Mapping[str, Mapping[str, Any]], result: str) -> Table:
    """Programs that also say what they computed: the time of an iteration, and the result."""
    head = ["", "p50 us", "p99 us", "max us", result, "the other's share", "passed the gate"]
    lines = [
        [
            way,
            *(f"{row[key]:.0f}" for key in ("p50_us", "p99_us", "max_us")),
            str(row[result]),
            f"{row['share']:.2f}" if "share" in row else "",
            str(row.get("passed", "")),
        ]
        for way, row in rows.items()
    ]
    return Table(title, head, lines)


@dataclass(frozen=True)
class Goal:
    """A number and what it should be."""

    what: str
    found: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    @property
    def verdict(self) -> str:
        return "met" if self.met else "**missed**"

    def row(self) -> list[str]:
        sign = "at least" if self.at_least else "at most"
        return [self.what, f"{sign} {self.limit:.4g}", f"{self.found:.4g}", self.verdict]


@dataclass
class Outcome:
    """What one section found."""

    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: Any = None
    error: str = ""
    took_s: float = 0.0

    def tried(self, title: str, part: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What a part of it found; None: it failed, which is noted, and the others go on."""
        try:
            found = part()
        except Exception as error:
            problem = f"{title}: {type(error).__name__}: {' '.join(str(error).split())}"
            print(problem, flush=True)
            self.error = "; ".join(filter(None, [self.error, problem]))
            return None
        print(title, found, flush=True)
        return found

    def markdown(self) -> str:
        parts = [table.markdown() for table in self.tables]
        if self.goals:
            head = ["goal", "wanted", "found", ""]
            parts.append(Table("", head, [goal.row() for goal in self.goals]).markdown())
        parts.extend(self.notes)
        if self.error:
            parts.append(f"**failed**: {self.error}")
        parts.append(f"({self.took_s:.0f} s)")
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        goals = [vars(goal) | {"met": goal.met} for goal in self.goals]
        return {"took_s": self.took_s, "error": self.error, "goals": goals, "data": self.data}


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def facts() -> dict[str, str]:
    """When, where and how this was measured."""
    gpu = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = gpu.partition("\n")[0].partition(", ")
    commit = os.environ.get("HEADWAY_COMMIT") or _said("git", "rev-parse", "--short", "HEAD")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "GPU": name or "unknown",
        "driver": driver or "unknown",
        "CPUs": str(os.cpu_count()),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "commit": commit or "unknown",
        "command": shlex.join(["benchmarks/gpu/run", *sys.argv[1:]]),
    }


def document(found: Mapping[str, str], outcomes: Mapping[str, Outcome]) -> str:
    lines = ["# Measurements on a GPU", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in found.items()]
    for name, outcome in outcomes.items():
        lines += ["", f"## {name}", "", outcome.markdown()]
    return "\n".join(lines) + "\n"
