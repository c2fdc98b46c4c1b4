"""`headway check`"""

from __future__ import annotations

import itertools

import click

from headway.engine.units import DurationError, format_ns, parse_duration
from headway.trace.checker import RULES, Checker
from headway.view.errors import UserError
from headway.view.traces.reader import read_events

VIOLATED = 1
LIVE_NS = 20_000_000
"""A daemon that had to wait for its CPU may be so late."""


def _help() -> str:
    rules = "\n\n".join(f"{name}: {text}" for name, text in RULES.items())
    return f"Check traces against the rules; exit 1 if one is broken.\n\n{rules}"


@click.command(name="check", help=_help())
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--tolerance",
    metavar="D",
    help="How much times may be off: by default 20ms in live traces, 0ns in simulated ones.",
)
def command(traces: tuple[str, ...], tolerance: str | None) -> int:
    try:
        given_ns = None if tolerance is None else parse_duration(tolerance)
    except DurationError as error:
        raise UserError(f"--tolerance: found {tolerance!r}, expected {error}") from None
    code = 0
    for trace in traces:
        stream = iter(read_events(trace))
        first = next(stream)
        live = first.ns > 0  # virtual time begins at zero
        checker = Checker(tolerance_ns=given_ns if given_ns is not None else LIVE_NS * live)
        events = 0
        for event in itertools.chain([first], stream):
            checker.feed(event)
            events += 1
        for violation in checker.violations:
            at = format_ns(violation.ns)
            click.echo(f"{trace}: at {at}: {violation.rule}: {violation.message}")
        if checker.count:
            code = VIOLATED
            click.echo(f"{trace}: {checker.count} violations in {events} events")
        else:
            click.echo(f"{trace}: fine, {events} events, {len(RULES)} rules")
        if checker.gaps:
            click.echo(
                f"{trace}: {checker.lost} events were dropped at {checker.gaps} places; nothing can"
                " be said about what happened there"
            )
    return code
