"""What a program was seen to find and to call: the interposer's notes, read back.

shim/core/survey.h says how they look. They lie where the program could write too, so a line that
is none is passed over.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

APIS = {"OpenGL": ("gl", "egl"), "CUDA": ("cu",), "OpenCL": ("cl",), "Vulkan": ("vk",)}
"""By how the names of their functions begin; GLX and EGL come with OpenGL."""
_ROW = struct.Struct("<56sQ")
_VERSION = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")
_KNOWS = re.compile(rb"headway knows (\w+) (\d+)\0")
LINK = "link"
_EXTENSION = "clGetExtensionFunctionAddressForPlatform"


@dataclass(frozen=True, slots=True)
class Passed:
    """A function for GPU work that the program found and that is not hooked."""

    name: str
    way: str
    why: str
    calls: int | None
    """None if that could not be seen: a link is not on the way of anything of ours."""


@dataclass(slots=True)
class Api:
    """What was seen of one API."""

    name: str
    ways: list[str] = field(default_factory=list)
    hooked: dict[str, int] = field(default_factory=dict)
    """How often each function was called, of those that the program found or called."""
    passed: list[Passed] = field(default_factory=list)
    processes: dict[int, str] = field(default_factory=dict)

    @property
    def called(self) -> dict[str, int]:
        """The most often called first."""
        found = {name: count for name, count in self.hooked.items() if count}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


@dataclass(slots=True)
class Survey:
    """All that was seen of a program and its children."""

    processes: int = 0
    """How many the interposer was in."""
    apis: list[Api] = field(default_factory=list)


def known_apis(library: Path) -> dict[str, int]:
    """What an interposer was built with, from its file, and up to which version. OpenGL has none:
    its functions keep their names."""
    return {name.decode(): int(number) for name, number in _KNOWS.findall(library.read_bytes())}


def version_text(number: int) -> str:
    """13000 is 13.0; 13099 stands for every 13."""
    minor = number % 1000 // 10
    return f"{number // 1000}.{'x' if number % 1000 == 99 else minor}"


def api_of(function: str) -> str | None:
    """None for what belongs to no API that gives a GPU work."""
    return next((name for name, start in APIS.items() if function.startswith(start)), None)


def read_survey(lookups: Path, known: dict[str, int]) -> Survey:
    """`known`: what the interposer was built with."""
    calls = _read_calls(lookups.with_name(lookups.name + ".calls"))
    survey = Survey()
    apis = {name: Api(name) for name in APIS}
    programs: dict[int, str] = {}
    text = lookups.read_text(errors="replace") if lookups.exists() else ""
    for line in text.splitlines():
        pid, kind, way, *rest = (*line.split(" ", 3), "", "", "")[:4]
        if not pid.isdecimal() or not "".join(rest).isprintable():
            continue
        if kind == "loaded":
            survey.processes += 1
            programs[int(pid)] = rest[0]
            continue
        name, _, version = rest[0].partition(" ")
        found = apis.get(api_of(name) or "")
        if found is None or kind not in ("hooked", "passed"):
            continue
        _add(found.ways, way)
        found.processes[int(pid)] = programs.get(int(pid), "")
        if kind == "hooked":
            found.hooked[name] = calls.get(name, 0)
        else:
            asked = int(version) if version.isdecimal() else 0
            seen = None if way == LINK else calls.get(f"+{name}")
            why = why_passed(name, way, asked, set(calls), known)
            _add(found.passed, Passed(name, way, why, seen))
    for name, count in calls.items():  # some are called without having been noted: we need them too
        home = apis.get(api_of(name) or "")
        if count and home is not None:
            home.hooked[name] = count
    survey.apis = [api for api in apis.values() if api.ways or api.hooked]
    return survey


def _add(items: list[Any], item: Any) -> None:
    if item not in items:
        items.append(item)


def _read_calls(path: Path) -> dict[str, int]:
    data = path.read_bytes() if path.exists() else b""
    calls: Counter[str] = Counter()
    for name, count in _ROW.iter_unpack(data[: len(data) - len(data) % _ROW.size]):
        calls[name.split(b"\0", 1)[0].decode(errors="replace")] += count
    return calls


def why_passed(name: str, way: str, asked: int, hooks: set[str], known: dict[str, int]) -> str:
    """`asked`: the version the program asked for, if it said one."""
    api = api_of(name)
    if api == "OpenCL" and api not in known:
        return "this interposer was built without OpenCL"
    if api == "Vulkan":
        return "Vulkan is not managed"
    if way == _EXTENSION:
        return "functions of extensions are the driver's own"
    plain = _VERSION.sub("", name)
    others = sorted(hook for hook in hooks if _VERSION.sub("", hook) == plain)
    if not others:
        return "not known to this Headway"
    newest = known.get(api or "", 0)
    if asked > newest > 0:
        return f"version {version_text(asked)} was asked for; up to {version_text(newest)} is known"
    return f"another version than those known ({', '.join(others)})"
