"""`headway check`"""

from __future__ import annotations

import click

from headway.engine.units import format_ns
from headway.sim.checker import RULES, Checker
from headway.view.traces.reader import read_events

VIOLATED = 1


def _help() -> str:
    rules = "\n\n".join(f"{name}: {text}" for name, text in RULES.items())
    return f"Check traces against the rules; exit 1 if one is broken.\n\n{rules}"


@click.command(name="check", help=_help())
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--tolerance-ns",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="How far measured instants may be off (live traces).",
)
def command(traces: tuple[str, ...], tolerance_ns: int) -> int:
    code = 0
    for trace in traces:
        checker = Checker(tolerance_ns=tolerance_ns)
        events = 0
        for event in read_events(trace):
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
