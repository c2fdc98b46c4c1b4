"""`headway daemon`"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import click

from headway.view.errors import UserError
from headway.view.files import load_policy_file, read_text


@click.command(name="daemon")
@click.option(
    "--spec",
    "spec_file",
    metavar="FILE",
    is_eager=True,
    callback=lambda context, _, given: _settings(context, given),
    help="Policies, priorities and reserves of programs; by default the settings file.",
)
@click.option(
    "--load", "loads", multiple=True, metavar="FILE.py", help="Load a policy from a file."
)
@click.option(
    "--split",
    metavar="T",
    default="0.5ms",
    show_default=True,
    help="Split OpenGL work that would take longer than this.",
)
@click.option(
    "--window",
    metavar="T",
    default="0.2ms",
    show_default=True,
    help="How much CUDA or OpenCL work may be on the GPU while others wait.",
)
@click.option(
    "--spin",
    metavar="T",
    default="auto",
    show_default=True,
    help="Poll for this long after a CUDA or OpenCL program asked. auto: 20ms if CPUs are free.",
)
@click.option(
    "--slowdown",
    metavar="P%",
    default="10%",
    show_default=True,
    help="How much longer than alone a job may take, unless its program says otherwise.",
)
@click.option(
    "--profile",
    metavar="NAME|FILE",
    help="What is known of the GPUs; by default found by their names.",
)
@click.option(
    "--holdoff",
    metavar="T",
    default="2ms",
    show_default=True,
    help="How long to keep an idle GPU for the program that used it last.",
)
@click.option(
    "--no-leases", is_flag=True, help="Decide on every group, without leases (for measurements)."
)
@click.option("--tick", metavar="T", help="Decide only at ticks, such as 1ms (for measurements).")
@click.option("--until-idle", is_flag=True, help="Stop when the last program has ended.")
@click.option("--trace", metavar="F.pftrace", help="Record everything until the daemon stops.")
@click.option(
    "--software-gpu", is_flag=True, help="Run all programs as headway run --software-gpu does."
)
@click.option(
    "--mps",
    is_flag=True,
    help="Start NVIDIA's MPS for the programs of this daemon, and stop it at the end.",
)
@click.option(
    "--inherit",
    default="pix,rix",
    show_default=True,
    type=click.Choice(["pix,rix", "pix", "rix", "none"]),
    help="What a window server inherits from its clients: priority (pix), reserve (rix).",
)
@click.option(
    "--nice-server",
    is_flag=True,
    help="Raise the CPU priority of an X server, too, while clients wait for it.",
)
@click.option(
    "--no-servers", is_flag=True, help="Do not look for window servers; nothing is inherited."
)
@click.option(
    "--rt-priority",
    metavar="N",
    default=2,
    show_default=True,
    type=click.IntRange(0, 99),
    help="Real-time priority of the daemon, if that is permitted; 0: none.",
)
@click.option(
    "--display",
    metavar="DISPLAY",
    help="The X display whose foreground window goes first; by default $DISPLAY. none: no display.",
)
@click.option(
    "--locks",
    "locks_file",
    metavar="FILE",
    help="Serve the GPU locks (tokens and units) that this file describes.",
)
@click.option(
    "--controller",
    metavar="NAME",
    default="slowdown",
    show_default=True,
    help="How misses change the GPU shares of others: slowdown, aimd, bisection, alone.",
)
@click.option(
    "--metrics",
    metavar="unix:/PATH|PORT",
    help="Serve metrics for Prometheus at this socket or port.",
)
@click.option("--cpu", metavar="N", type=click.IntRange(min=0), help="Keep the daemon on this CPU.")
def command(
    spec_file: str | None,
    loads: tuple[str, ...],
    split: str,
    window: str,
    spin: str,
    slowdown: str,
    profile: str | None,
    holdoff: str,
    no_leases: bool,
    tick: str | None,
    until_idle: bool,
    trace: str | None,
    software_gpu: bool,
    mps: bool,
    inherit: str,
    nice_server: bool,
    no_servers: bool,
    rt_priority: int,
    display: str | None,
    locks_file: str | None,
    controller: str,
    metrics: str | None,
    cpu: int | None,
) -> None:
    """Run the daemon in the foreground.

    headway run starts a daemon if there is none, so this is for services and for options. An option
    that is not given is taken from [daemon] in the spec, or in the settings file; headway config
    path says where that is.
    """
    from headway.engine.reading import BadInput
    from headway.engine.units import DurationError, parse_duration, parse_slowdown
    from headway.live.desktop.servers import Inherit
    from headway.live.devices import profiles
    from headway.live.devices.discovery import nvidia_gpus
    from headway.live.devices.inventory import Inventory
    from headway.live.devices.share_server import ShareError
    from headway.live.gate.arbiter import Bounds
    from headway.live.identity import launcher
    from headway.live.identity.options import parse_address
    from headway.live.server import spinning, startup
    from headway.live.server.daemon import Daemon
    from headway.live.server.loop import log
    from headway.live.server.startup import DaemonError
    from headway.live.wire import paths
    from headway.view import settings

    for path in loads:
        load_policy_file(path)
    durations_ns = {}
    given = {"--split": split, "--window": window, "--holdoff": holdoff, "--tick": tick}
    given |= {"--spin": None if spin == "auto" else spin}
    for option, text in given.items():
        try:
            if text is not None:
                durations_ns[option] = parse_duration(text)
        except DurationError as error:
            raise UserError(f"{option}: found {text!r}, expected {error}") from None
    try:
        goal = parse_slowdown(slowdown)
    except ValueError as error:
        raise UserError(f"--slowdown: found {slowdown!r}, expected {error}") from None
    try:
        address = None if metrics is None else parse_address(metrics)
    except ValueError as error:
        raise UserError(f"--metrics: {error}") from None
    try:
        known = None if profile is None else profiles.named(profile)
    except BadInput as error:
        raise UserError(str(error)) from None
    locks = None
    if locks_file is not None:
        from headway.engine.locks.jobs import LockError
        from headway.live.devices.policing import Policing
        from headway.sim.gpusync.scenario import parse_system

        locks = parse_system(read_text(locks_file), locks_file)
        try:
            Policing(locks)
        except LockError as error:
            raise UserError(f"{locks_file}: {error}") from None
    if durations_ns.get("--tick") == 0:
        raise UserError(f"--tick: found {tick!r}, expected a duration above zero, such as 1ms")
    # Before this process goes ahead of others: the one that writes must not.
    writer = None if trace is None else start_writer(trace)
    device = launcher.device_cpu() if software_gpu else None
    cpus = {cpu} if cpu is not None else os.sched_getaffinity(0) - {device}
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cpus)
    if spin == "auto":
        durations_ns["--spin"] = spinning.auto_ns()
    if rt_priority and not durations_ns["--spin"]:  # who never sleeps must not go first
        startup.go_first(rt_priority)
    try:
        with contextlib.ExitStack() as stack:
            if writer is not None:
                stack.callback(writer[1].wait)
                stack.callback(writer[0].close)
            daemon = Daemon(
                paths.runtime_folder(),
                spec_file=spec_file or str(settings.path()),
                is_spec_optional=spec_file is None,
                split_ns=durations_ns["--split"],
                spin_ns=durations_ns["--spin"],
                spin_if_free=spin == "auto",
                holdoff_ns=durations_ns["--holdoff"],
                bounds=Bounds(
                    leases=not no_leases,
                    tick_ns=durations_ns.get("--tick"),
                    slowdown=goal,
                    window_ns=durations_ns["--window"],
                ),
                until_idle=until_idle,
                software_gpu=device,
                mps=mps,
                display=os.environ.get("DISPLAY") if display is None else display,
                metrics=address,
                locks=locks,
                controller=controller,
                inventory=Inventory(nvidia_gpus(), known, log),
                inherit=Inherit(
                    "pix" in inherit, "rix" in inherit, nice=nice_server, watch=not no_servers
                ),
            )
            if writer is not None:
                daemon.recordings.start(writer[0].dup(), daemon.schedulers.engines, "trace")
            watched = bool(os.environ.get("WATCHDOG_USEC"))
            daemon.serve(
                lambda: ready(str(paths.runtime_folder())),
                (lambda: notify(b"WATCHDOG=1")) if watched else None,
            )
    except (DaemonError, ShareError, OSError) as error:
        raise UserError(f"headway daemon: {error}") from None


def _settings(context: click.Context, given: str | None) -> str | None:
    """The spec's `[daemon]` becomes the defaults of all other options."""
    from headway.engine.reading import BadInput
    from headway.view import settings

    if context.resilient_parsing:
        return given
    file = settings.path()
    if given is None:
        settings.check_owner(file)
        if not file.exists():
            return None
    try:
        context.default_map = settings.as_defaults(settings.read(given or str(file)))
    except BadInput as error:
        raise UserError(str(error)) from None
    return given


def ready(folder: str) -> None:
    """Tell who started this daemon that programs are served, and a person where."""
    notify(b"READY=1")
    if sys.stdout.isatty():
        click.echo(f"serving programs in {folder}; Ctrl-C stops it")


def start_writer(trace: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A process that draws and writes what this one records, and outlives it to do so."""
    from headway.live.api import isolated

    ours, theirs = socket.socketpair()
    with theirs:
        from_fd = ("--from-fd", str(theirs.fileno()))
        writer = subprocess.Popen(  # noqa: S603 - ourselves
            isolated.headway("trace", "-o", os.path.abspath(trace), *from_fd),  # noqa: PTH100
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd="/",
            env=isolated.environment(),
        )
    answer = ours.recv(4096).decode()
    if answer != "ready":
        writer.wait()
        raise UserError(answer or f"{trace}: the process that should write it ended")
    return ours, writer


def notify(message: bytes) -> None:
    """Tell systemd, where it started us (Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier, contextlib.suppress(OSError):
        notifier.connect("\0" + address[1:] if address.startswith("@") else address)
        notifier.send(message)
