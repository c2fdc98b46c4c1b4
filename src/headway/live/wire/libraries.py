"""Where the libraries are that Headway is built with."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def installed(name: str) -> Path:
    """In `live/`, or where the build put it; FileNotFoundError: it is missing."""
    places = [Path(__file__).parents[1], Path(sysconfig.get_path("platlib")) / "headway" / "live"]
    for place in places:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"{name} is missing; run make setup, or install headway again")
