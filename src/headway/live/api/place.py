"""A place on a GPU for a whole program: the launcher's part of `headway run --gpu auto`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from headway.engine.units import parse_duration
from headway.live.api.gpu_line import Gone, Line, LockMisuse
from headway.live.wire.paths import control_socket, runtime_folder

SAY_S = 1.0
"""Who waits longer for a place is told."""
Misuse = LockMisuse


class NoPlaces(ConnectionError):
    """Nobody serves places on GPUs; one line."""


def wait(
    path: str, options: Mapping[str, str | None], *, units: bool, waits: Callable[[], None]
) -> dict[str, str]:
    """Wait for a token, have the daemon keep the token for as long as this process lives, and
    return the variables that make the program use the token's GPU. `waits` is called if that takes
    a while; `units`: the interposer is to pass the locks of the GPU's units."""
    request = {"name": options.get("name") or Path(path).name, "priority": _level(options)}
    period = options.get("period")
    if period is not None:
        request["period_ns"] = parse_duration(period)
    try:
        line = Line()
    except OSError as error:
        raise NoPlaces(str(error)) from None
    try:
        answer = line.ask(act="token", cluster="any", **request)
        if answer.get("wait"):
            granted = line.read(SAY_S)
            if granted is None:
                waits()
                granted = line.read(None)
            assert granted is not None
            answer = granted
        kept = line.ask(act="keep")
    except Gone as error:
        raise NoPlaces(str(error)) from None
    except LockMisuse as error:
        if "serves no tokens" not in str(error):
            raise
        raise NoPlaces(str(error)) from None
    finally:
        line.close()
    return _variables(answer, str(kept["place"]), units)


def _level(options: Mapping[str, str | None]) -> int:
    """The priority among tokens: a number, and 0 for rules that follow windows or deadlines."""
    text = options.get("priority")
    try:
        return 0 if text is None else int(text)
    except ValueError:
        return 0


def _variables(answer: Mapping[str, object], place: str, units: bool) -> dict[str, str]:
    device, slices = int(str(answer["device"])), int(str(answer["slices"]))
    found = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": str(device // slices),
    }
    if slices > 1:
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 // slices)
    if units:
        found |= {"HEADWAY_PLACE": place, "HEADWAY_UNITS": str(control_socket(runtime_folder()))}
    return found
