"""Device profiles: what is known of a kind of GPU, measured or given, never a constant elsewhere.

A profile is a small TOML file (`headway/profiles/h200.toml` is one). Of a GPU without a profile
nothing is known, and a rule that needs one of the numbers does not apply to that GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from headway.engine.reading import Report, Table, locate, parse_toml

DEFAULT = "h200"
COUNTS = ("multiprocessors", "copy_bytes_per_us", "local_bytes_per_us")
PROFILES = "headway.profiles"
"""The package whose files are the profiles that come with Headway."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The numbers of one kind of GPU."""

    name: str
    slice_ns: int
    """The hardware's time slice: for so long a program that has work keeps the GPU from others. 0:
    nobody knows, or there are none."""
    switch_ns: int
    """Lost when the GPU goes from one process to another."""
    shared_switch_ns: int
    """The same between clients of one MPS server."""
    gate_ns: int
    """What a gate that the GPU waits at takes of its time,"""
    mark_ns: int
    """and a mark that it writes."""
    open_ns: int
    """From the opening of a gate to the first work behind it."""
    launch_ns: int
    """CPU time of a launch."""
    start_ns: int
    """From there to the begin of the work on an idle GPU."""
    seen_ns: int
    """From the end of work to its program seeing that."""
    gap_ns: int
    """Between two kernels of one stream."""
    multiprocessors: int
    """SMs."""
    copy_bytes_per_us: int
    """From pinned memory to the GPU, or back."""
    local_bytes_per_us: int
    """From one place in the GPU's memory to another."""

    def preemption_ns(self, window_ns: int, *, side_by_side: bool) -> int:
        """What it costs a program to give its turn away and get it back: two switches, and what the
        other one has in flight by then."""
        switch_ns = self.shared_switch_ns if side_by_side else self.switch_ns
        return 2 * switch_ns + window_ns


UNKNOWN = DeviceProfile("unknown", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Of a GPU that nobody measured."""


def parse_profile(text: str, file: str) -> DeviceProfile:
    """Read a profile; BadInput lists every mistake."""
    report = Report(locate(text))
    top = Table(parse_toml(text, file), (), report)
    for key in COUNTS:
        if key not in top:
            top.bad(key, "nothing", "a whole number")
    profile = DeviceProfile(
        name=top.string("name", required=True),
        slice_ns=top.duration("slice", required=True),
        switch_ns=top.duration("switch", required=True),
        shared_switch_ns=top.duration("shared_switch", required=True),
        gate_ns=top.duration("gate", required=True),
        mark_ns=top.duration("mark", required=True),
        open_ns=top.duration("open", required=True),
        launch_ns=top.duration("launch", required=True),
        start_ns=top.duration("start", required=True),
        seen_ns=top.duration("seen", required=True),
        gap_ns=top.duration("gap", required=True),
        multiprocessors=top.integer("multiprocessors", 1, least=1, most=4096),
        copy_bytes_per_us=top.integer("copy_bytes_per_us", 1, least=1, most=10**9),
        local_bytes_per_us=top.integer("local_bytes_per_us", 1, least=1, most=10**9),
    )
    top.close()
    report.raise_if_any(file)
    return profile


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with Headway."""
    names = (item.name for item in files(PROFILES).iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


@cache
def shipped_profile(name: str = DEFAULT) -> DeviceProfile:
    """One of these. ValueError if there is none of that name."""
    if name not in shipped_profiles():
        raise ValueError(f"no profile called {name!r} comes with Headway")
    return parse_profile((files(PROFILES) / f"{name}.toml").read_text(), f"{name}.toml")
