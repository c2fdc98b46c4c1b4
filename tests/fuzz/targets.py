"""What strangers may hand to Headway, one function each.

A function takes bytes and returns nothing. It lets the one kind of error pass that the reader
promises; any other exception is a mistake of the reader's.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from headway.engine.reading import BadInput
from headway.engine.spec import parse_spec
from headway.engine.units import DurationError, parse_duration
from headway.live.server import requests
from headway.live.wire import protocol
from headway.live.wire.layout import HELLO
from headway.sim.scenario import parse_scenario, parse_variants
from headway.view.doctor.survey import read_survey
from headway.view.report.others import data_of_others
from headway.view.traces import others as other_traces
from headway.view.traces.reader import read_events
from headway.view.traces.records import TraceError

ROOT = Path(__file__).resolve().parents[2]
Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


@target
def hello(data: bytes) -> None:
    """Also what follows the right version: what was found before has that of its time."""
    ours = protocol.build_hello("")[: HELLO.at("name")]
    for said in (data, ours + data[len(ours) :]):
        with contextlib.suppress(protocol.ProtocolError):
            protocol.parse_hello(said)


@target
def message(data: bytes) -> None:
    with contextlib.suppress(protocol.ProtocolError):
        protocol.parse_message(data)


@target
def page(data: bytes) -> None:
    """The daemon reads as many bytes as the page has, whatever is in them."""
    size = protocol.CLIENT_PAGE_SIZE
    protocol.parse_client_page(data.ljust(size, b"\0")[:size])


@target
def request(data: bytes) -> None:
    with contextlib.suppress(requests.Refusal, ValueError, RecursionError):
        said = json.loads(data)
        if isinstance(said, dict):
            requests.task_options(said, 1000)


@target
def duration(data: bytes) -> None:
    with contextlib.suppress(DurationError):
        parse_duration(data.decode(errors="replace"))


@target
def spec(data: bytes) -> None:
    with contextlib.suppress(BadInput):
        parse_spec(data.decode(errors="replace"))


@target
def scenario(data: bytes) -> None:
    text = data.decode(errors="replace")
    with contextlib.suppress(BadInput):
        parse_scenario(text)
    with contextlib.suppress(BadInput):
        parse_variants(text)


@target
def trace(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pftrace") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(TraceError):
            for _ in read_events(file.name):
                pass


@target
def others(data: bytes) -> None:
    """Traces of other tools: whatever is read can be shown."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(TraceError):
            found = other_traces.read(file.name)
            data_of_others(found.tracks, *found.bounds())


@target
def survey(data: bytes) -> None:
    """What the interposer noted lies where the program could write, too."""
    lines, _, calls = data.partition(b"\n\n")
    with tempfile.TemporaryDirectory() as folder:
        lookups = Path(folder) / "lookups"
        lookups.write_bytes(lines)
        lookups.with_name("lookups.calls").write_bytes(calls)
        read_survey(lookups, {})


def broken(data: bytes) -> None:
    """A reader with a mistake that coverage leads to: the fuzzer itself is tested with it."""
    if data[:1] == b"[":
        while data[1:2] == b"t":
            data = data[2:]
            if data[0] == ord("]"):
                raise IndexError
