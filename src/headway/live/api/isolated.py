"""Starting Headway's own Python programs, so that nothing in the working folder or the environment
gets into them that is meant for others."""

from __future__ import annotations

import os
import sys

KEPT = ("PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE")
"""Where Python and what was installed for it is found: Headway may be among it."""
OTHERS = ("HEADWAY_", "LD_AUDIT", "LD_PRELOAD", "OPENCL_LAYERS")
"""How variables begin that are meant for the program that is started."""
SERVICES = ("LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_")
"""The same, for the service that starts it."""


def python(*words: str) -> list[str]:
    """The command of a Python like this one that imports nothing from the working folder."""
    return [sys.executable, "-P", *words]


def headway(*words: str) -> list[str]:
    """The command of a `headway` like this one."""
    return python("-m", "headway", *words)


def environment(**more: str) -> dict[str, str]:
    """The environment of such a Python: whole paths in PYTHONPATH, no other setting of Python's,
    and nothing that would load other code into it."""
    env = {name: value for name, value in os.environ.items() if _is_kept(name)}
    places = [p for p in env.pop("PYTHONPATH", "").split(os.pathsep) if p.startswith("/")]
    if places:
        env["PYTHONPATH"] = os.pathsep.join(places)
    return env | more


def _is_kept(name: str) -> bool:
    if name.startswith("PYTHON"):
        return name in KEPT
    return not name.startswith(OTHERS + SERVICES)
