"""Engines with a mistake in them, each of which the checker has to find."""

from __future__ import annotations

from collections.abc import Callable

from headway.engine.core import Engine
from headway.engine.model import Group
from headway.engine.reserves import Reserve
from tests.bench.drives import (
    MS,
)


def _replenish_fully(reserve: Reserve, periods: int = 1) -> None:
    reserve.budget_ns = reserve.capacity_ns


def _replenish_never(reserve: Reserve, periods: int = 1) -> None:
    pass


def _replenish_without_cap(reserve: Reserve, periods: int = 1) -> None:
    reserve.budget_ns += reserve.capacity_ns


def _pay_twice(engine: Engine, group: Group, executed_ns: int) -> None:
    if group.task.reserve is not None:
        engine.ledger.charge(group.task.reserve, executed_ns, engine.now_ns)


def _charge_in_words(engine: Engine, group: Group, *amount: int) -> None:
    engine.tell("charged", group, *amount[:2])


def _dispatch_at_times(dispatch: Callable[..., Group | None]) -> Callable[..., Group | None]:
    def wrong(engine: Engine, now_ns: int) -> Group | None:
        return dispatch(engine, now_ns) if now_ns % (3 * MS) else None

    return wrong


CORE = "headway.engine.core"
LEDGER = "headway.engine.ledger"
POLICIES = "headway.engine.policies"
_PRT_PROMISES = ("needs_idle", "takes_idle", "keeps_rank", "decides")
"""Whatever it does."""
RESERVE = "headway.engine.reserves.Reserve"
MISTAKES: list[tuple[str, dict[str, object], set[str]]] = [
    ("every group is let through", {f"{RESERVE}.lets_through": lambda *_: True}, {"budget"}),
    (
        "overruns are forgotten",
        {f"{RESERVE}.replenish": _replenish_fully},
        {"budget", "bandwidth"},
    ),
    ("nothing is replenished", {f"{RESERVE}.replenish": _replenish_never}, {"budget"}),
    (
        "budget is saved up without end",
        {f"{RESERVE}.replenish": _replenish_without_cap},
        {"budget"},
    ),
    (
        "prt does not wait for an idle GPU",
        {
            f"{POLICIES}.prt.Prt.admits": lambda *_: True,
            f"{POLICIES}.prt.Prt.needs_idle": False,
            f"{POLICIES}.prt.Prt.promises": classmethod(lambda _: _PRT_PROMISES),
        },
        {"one-online"},
    ),
    (
        "ht does not care who waits",
        {
            f"{POLICIES}.ht.Ht.admits": lambda _, group, gpu, engine: (
                not gpu.online or gpu.online[0].task is group.task
            )
        },
        {"ht-order"},
    ),
    ("ht follows anybody", {f"{POLICIES}.ht.Ht.admits": lambda *_: True}, {"ht-order"}),
    (
        "ht is prt",
        {f"{POLICIES}.ht.Ht.admits": lambda _, group, gpu, engine: not gpu.online},
        {"work-conserving"},
    ),
    (
        "the least important goes first",
        {f"{POLICIES}.prt.Prt.key": lambda _, task: -task.rank, f"{POLICIES}.prt.Prt.orders": True},
        {"priority"},
    ),
    (
        "decisions are put off",
        {f"{CORE}.Engine.dispatch": _dispatch_at_times(Engine.dispatch)},
        {"work-conserving"},
    ),
    (
        "a server gets the worst of its clients' ranks",
        {
            "headway.engine.ranks.inherited_rank": lambda base, links: min(
                base, max((r.client.rank for r in links.serving.values()), default=base)
            )
        },
        {"inheritance"},
    ),
    (
        "clients get all of it back",
        {f"{LEDGER}.returned_ns": lambda lent, *_: lent},
        {"inheritance"},
    ),
    ("clients get nothing back", {f"{LEDGER}.returned_ns": lambda *_: 0}, {"inheritance"}),
    ("what was charged is charged again", {f"{CORE}.Engine._charge": _pay_twice}, {"budget"}),
    ("charges are only told", {f"{CORE}.Engine.charge": _charge_in_words}, {"budget"}),
    (
        "whoever lends keeps it",
        {f"{LEDGER}.Ledger._move": lambda ledger, *move: ledger._tell("moved", *move)},
        {"budget"},
    ),
]
