"""`headway fleet`"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from headway.view.cli import fleet_manifest
from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.errors import FAILED, UserError, say

LEAST_NS = 50_000_000
address_option = click.option(
    "--address", metavar="HOST:PORT", help="The cluster; else $RAY_ADDRESS, or this machine's."
)


@click.group(name="fleet", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Reserve GPU time on many machines, on Ray.

    Each node runs headway fleet up; programs use @headway.fleet.remote(priority=9,
    reserve="6ms/10ms"), or plain Ray with runtime_env={"headway": {...}}.
    """
    print_help_if_bare(context)


command.add_command(fleet_manifest.command)


@contextmanager
def one_line(code: int = FAILED) -> Iterator[None]:
    """What is wrong with the cluster is one line."""
    from headway.fleet.joining import FleetError

    try:
        yield
    except FleetError as error:
        raise UserError(str(error), code=code) from None


@command.command()
@click.option("--head", is_flag=True, help="Begin a new cluster.")
@click.option("--address", metavar="HOST:PORT", help="Join the cluster with this head.")
@click.option("--name", help="What the node is called; by default the machine's name.")
@click.option(
    "--software-gpus", type=click.IntRange(0, 16), default=0, help="GPUs that the CPU plays."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Claims may ask for it."
)
@click.option(
    "--daemon-option", "daemon_options", multiple=True, metavar="WORD", help="For the daemons."
)
@click.argument("ray_options", nargs=-1, type=click.UNPROCESSED)
def up(
    head: bool,
    address: str | None,
    name: str | None,
    software_gpus: int,
    labels: tuple[str, ...],
    daemon_options: tuple[str, ...],
    ray_options: tuple[str, ...],
) -> None:
    """Start this machine's node: Ray's, with reserved GPU time, and a daemon for each GPU.

    What follows -- goes to ray start. In a cluster's YAML: "headway fleet up --head" among
    head_start_ray_commands, "headway fleet up --address $RAY_HEAD_IP:6379" among those of workers.
    """
    if head == (address is not None):
        raise UserError("headway fleet up: expected --head, or --address of the cluster's head")
    from headway.fleet import starting
    from headway.view.tables import counted

    with one_line():
        node = starting.up(
            name=name,
            address=address,
            software=software_gpus,
            labels=_labels(labels),
            daemon_options=daemon_options,
            ray_options=ray_options,
        )
    click.echo(f"node {node.name}: {counted(len(node.gpus), 'GPU')}, in {node.folder}")
    if not node.gpus:
        say("headway fleet up: no NVIDIA GPU was found: this node takes no claims")


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    from headway.fleet.claims import ClaimError, read_claim

    found = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"headway fleet up: --label: found {text!r}, expected KEY=VALUE")
        found[key] = value
    try:
        read_claim({"labels": found})
    except ClaimError as error:
        raise UserError(f"headway fleet up: --label: {error}") from None
    return found


@command.command()
@click.option("--name", help="The node, if there are several on this machine.")
def down(name: str | None) -> None:
    """End this machine's node: Ray's, and its daemons. Programs on its GPUs end with it."""
    from headway.fleet import nodes, starting

    with one_line():
        found = [node for node in nodes.nodes_here() if name in (None, node.name)]
        if not found or (len(found) > 1 and name is None):
            names = ", ".join(node.name for node in nodes.nodes_here()) or "none"
            which = f"--name {name}" if name else "a node"
            raise UserError(
                f"headway fleet down: {which}: nodes of this machine are: {names}", code=FAILED
            )
        starting.down(found[0])
    click.echo(f"node {found[0].name}: ended")


@command.command()
@address_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def status(address: str | None, as_json: bool) -> None:
    """Show all nodes, GPUs, claims and tasks of the cluster."""
    from headway.view.fleet.tables import print_view

    view = fetch(address)
    if as_json:
        click.echo(json.dumps(view))
        return
    print_view(view)


@command.command()
@address_option
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option(
    "--interval", metavar="T", default="1s", show_default=True, help="Time between two refreshes."
)
def top(address: str | None, once: bool, interval: str) -> None:
    """Watch all nodes, GPUs, claims and tasks of the cluster."""
    import sys
    import time

    from headway.view.fleet.tables import print_view

    interval_ns = _duration("top", "--interval", interval)
    fetch(address)  # what is wrong is a line, on a screen that is as it was
    if once or not sys.stdout.isatty():
        print_view(fetch(address))
        return
    while True:
        view = fetch(address)
        click.clear()
        print_view(view)
        time.sleep(interval_ns / 1e9)


@command.command()
@address_option
@click.option("-o", "--output", required=True, metavar="F.pftrace", help="Where to write it.")
@click.option("--for", "duration", metavar="T", default="5s", show_default=True, help="How long.")
def trace(address: str | None, output: str, duration: str) -> None:
    """Record what all daemons do: one file for ui.perfetto.dev, with their clocks aligned."""
    from headway.fleet import asking
    from headway.view.fleet.merging import merge
    from headway.view.tables import counted

    seconds = _duration("trace", "--for", duration) / 1e9
    with one_line():
        found = asking.traces(address, seconds)
    if not found:
        raise UserError("headway fleet trace: no daemon of the cluster answers", code=FAILED)
    size = merge(output, found)
    apart = max(one.within_ns for one in found) / 1e6
    gpus = counted(len(found), "GPU")
    say(f"{output}: {gpus}, {size} bytes; clocks are aligned to within {apart:.2g} ms")


def _duration(command: str, option: str, text: str) -> int:
    from headway.engine.units import DurationError, parse_duration

    try:
        found = parse_duration(text)
    except DurationError as error:
        raise UserError(
            f"headway fleet {command}: {option}: found {text!r}, expected {error}"
        ) from None
    if found < LEAST_NS:
        raise UserError(f"headway fleet {command}: {option}: found {text!r}, expected 50ms or more")
    return found


@command.command()
@address_option
@click.option("--port", type=click.IntRange(1, 65535), default=9124, show_default=True)
def metrics(address: str | None, port: int) -> None:
    """Serve the cluster's metrics for Prometheus, at a port of this machine only."""
    import threading

    from prometheus_client import start_http_server
    from prometheus_client.registry import CollectorRegistry

    from headway.view.fleet.metrics import Fleet

    fetch(address)
    registry = CollectorRegistry()
    registry.register(Fleet(lambda: fetch(address)))
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        why = f"127.0.0.1:{port}: {error.strerror}"
        raise UserError(f"headway fleet metrics: --port: {why}", code=FAILED) from None
    click.echo(f"metrics of the cluster: http://127.0.0.1:{port}/metrics; Ctrl-C ends it")
    threading.Event().wait()


def fetch(address: str | None) -> dict[str, Any]:
    """What the placer tells of the cluster."""
    from headway.fleet import asking

    with one_line():
        return asking.view(address)
