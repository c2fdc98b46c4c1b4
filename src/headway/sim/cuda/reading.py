"""`[device]` and `[manager]` of scenarios with CUDA programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headway.engine.controllers import controllers
from headway.engine.profile import (
    DEFAULT,
    DeviceProfile,
    parse_profile,
    shipped_profile,
    shipped_profiles,
)
from headway.engine.reading import BadInput, Table, one_of, shown
from headway.engine.turns.windows import DEFAULT_SPLIT_NS, DEFAULT_WINDOW_NS
from headway.sim.cuda.kinds import DEVICES
from headway.sim.cuda.manager import Management
from headway.sim.cuda.run import DEFAULT_KIND, CudaDevice

KINDS = ("headway", "shares", "none")
RESTARTS = ("few", "every")


def read_cuda_device(device: Table | None, manager: Table | None, seed: int) -> CudaDevice:
    """Both tables; what is not said is an H200, time-sliced, with Headway as it comes."""
    kind, profile = DEFAULT_KIND, shipped_profile()
    if device is not None:
        kind = device.choice("kind", DEVICES, DEFAULT_KIND)
        profile = _read_profile(device)
        if kind == DEFAULT_KIND and not profile.slice_ns:
            device.bad("slice", "a profile that does not know it", 'a duration, such as "2ms"')
        device.close()
    return CudaDevice(kind, profile, _read_management(manager))


def _read_profile(table: Table) -> DeviceProfile:
    """A shipped profile by its name, or a file, with single numbers set otherwise."""
    name = table.string("profile", DEFAULT)
    profile = shipped_profile(name) if name in shipped_profiles() else _from_file(table, name)
    return replace(
        profile,
        slice_ns=table.duration("slice", profile.slice_ns, least=1),
        switch_ns=table.duration("switch", profile.switch_ns),
        multiprocessors=table.integer(
            "multiprocessors", profile.multiprocessors, least=1, most=4096
        ),
    )


def _from_file(table: Table, name: str) -> DeviceProfile:
    try:
        return parse_profile(Path(name).read_text(encoding="utf-8"), name)
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        names = one_of([*shipped_profiles(), "the path of a profile"])
        table.bad("profile", f"{shown(name)} ({why})", names)
        return shipped_profile()


def _read_management(table: Table | None) -> Management:
    if table is None:
        return Management()
    default = Management()
    polls = table.boolean("polls", default.polls)
    management = Management(
        kind=table.choice("kind", KINDS, default.kind),
        window_ns=table.duration("window", DEFAULT_WINDOW_NS, least=1),
        split_ns=table.duration("split", DEFAULT_SPLIT_NS, least=1),
        hold_ns=table.duration("hold", default.hold_ns, least=1),
        controller=table.choice("controller", controllers(), default.controller),
        restart_ns=table.duration("restart", least=1) if "restart" in table else None,
        few_restarts=table.choice("restarts", RESTARTS, "few") == "few",
        spaces=table.boolean("spaces", default.spaces),
        slowdown=table.number("slowdown", default.slowdown, least=0.001, most=10),
        tick_ns=table.duration("tick", least=1) if "tick" in table else None,
        polls=polls,
        reacts_ns=table.duration("reacts", default.reacts_ns, least=1000),
        wakes_ns=table.duration("wakes", default.wakes_ns, least=1000),
    )
    table.close()
    return management
