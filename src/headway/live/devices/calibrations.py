"""What was calibrated of this user's devices, and the cost models that begin there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from headway.engine.cost_models import CostModel
from headway.engine.cost_models.adaptive import Adaptive
from headway.engine.cost_models.libetp import LibEtp
from headway.engine.rendering import Calibration
from headway.engine.rendering.calibration import from_json, to_json
from headway.live.wire.paths import user_folder

MAX_BYTES = 1 << 20
SOFTWARE = "llvmpipe"
_NAME = "gl-calibration.json"


class CalibrationError(OSError):
    """The file of calibrations cannot be read or written; one line."""


def path(state: Path | None = None) -> Path:
    """`headway/gl-calibration.json` in XDG_STATE_HOME, by default ~/.local/state."""
    return (state or user_folder("XDG_STATE_HOME", ".local/state")) / "headway" / _NAME


def load(file: Path | None = None) -> dict[str, Calibration]:
    """By device, the oldest first; CalibrationError says what is wrong with the file."""
    file = file or path()
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        found = json.loads(data) if len(data) <= MAX_BYTES else None
        if not isinstance(found, dict) or not isinstance(found.get("devices"), dict):
            raise ValueError("expected a JSON object with the key devices")
        devices = sorted(found["devices"].items(), key=lambda entry: _when(entry[1]))
        return {str(name): from_json(entry) for name, entry in devices}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CalibrationError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise CalibrationError(
            f"{file}: {error}; run headway calibrate gl, which writes it anew"
        ) from None


def _when(entry: Any) -> float:
    found = entry.get("at", 0) if isinstance(entry, dict) else 0
    return float(found) if isinstance(found, int | float) else 0.0


def store(calibration: Calibration) -> Path:
    """Keep it beside those of other devices, in place of what was known of this one. Programs that
    were calibrated before stay known."""
    try:
        known = load()
    except CalibrationError:
        known = {}
    before = known.pop(calibration.device, None)
    programs = {**(before.programs if before else {}), **calibration.programs}
    entry = {**to_json(calibration), "programs": _plain(programs), "at": time.time()}
    devices = {
        name: {**to_json(old), "at": number} for number, (name, old) in enumerate(known.items())
    }
    devices[calibration.device] = entry
    file = path()
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text(json.dumps({"devices": devices}, indent=1) + "\n")
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CalibrationError(f"{file}: cannot be written: {error.strerror}") from None
    return file


def _plain(programs: Any) -> dict[str, dict[str, float]]:
    return {
        name: {"vertex_ns": each.vertex_ns, "fragment_ns": each.fragment_ns}
        for name, each in programs.items()
    }


def calibrated(*, software: bool | None = None) -> list[CostModel]:
    """The cost models that know this machine: of the device that was calibrated last, if there is
    one, or of the last that is llvmpipe, or is not. A broken file counts as none."""
    try:
        known = load()
    except CalibrationError:
        known = {}
    found = [
        calibration
        for name, calibration in known.items()
        if software is None or name.startswith(SOFTWARE) == software
    ]
    last = found[-1] if found else Calibration()
    return [LibEtp(last), Adaptive(start=last.start())]
