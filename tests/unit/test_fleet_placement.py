"""Where the placer puts claims: examples, and what holds after any history."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headway.engine.analysis.groups import GroupTask, analyse_groups
from headway.engine.analysis.verdicts import HARD
from headway.fleet.books import Place
from headway.fleet.claims import Claim, read_claim
from headway.fleet.placement import Placed, Placement, Refused, Waits

H200, L4 = {"model": "NVIDIA-H200"}, {"model": "NVIDIA-L4"}


def claim(name: str = "task", **given: Any) -> Claim:
    return read_claim({"name": name, **given})


def cluster(*nodes: int, **switches: bool) -> Placement:
    """Nodes with so many GPUs each."""
    made = Placement(**switches)
    for number, gpus in enumerate(nodes):
        made.node_came(f"n{number}", [H200] * gpus)
    return made


def put(placement: Placement, ticket: str, **given: Any) -> Any:
    return placement.submit(ticket, claim(ticket, **given))


# -- where claims go -------------------------------------------------------------------------------


def test_three_shares_of_six_tenths_take_three_gpus() -> None:
    placement = cluster(2, 1)
    found = [put(placement, t, reserve="6ms/10ms").place for t in "abc"]
    assert len(set(found)) == 3
    assert put(placement, "d", reserve="6ms/10ms") == Waits(
        "d",
        "it asks for 60 % of a GPU, and 60 % or more is reserved already on each of 3 that suit it",
    )


def test_a_claim_goes_where_it_fits_best() -> None:
    """So that larger ones still find a whole GPU."""
    placement = cluster(1, 1)
    first = put(placement, "a", reserve="3ms/10ms").place
    assert put(placement, "b", reserve="3ms/10ms").place == first
    assert put(placement, "c", reserve="10ms/10ms").place != first


def test_claims_without_a_reserve_are_spread() -> None:
    placement = cluster(2, 2)
    assert len({put(placement, t, preemptible=True).place for t in "abcd"}) == 4


def test_labels_choose_the_gpu() -> None:
    placement = Placement()
    placement.node_came("a", [H200])
    placement.node_came("b", [L4])
    assert put(placement, "x", labels={"model": "*L4"}).place == Place("b", 0)
    refused = put(placement, "y", labels={"model": "*A100"})
    assert refused == Refused(
        "y", "labels: found model=*A100, expected one of NVIDIA-H200, NVIDIA-L4"
    )
    refused = put(placement, "z", labels={"zone": "eu"})
    assert refused == Refused(
        "z", "labels: found 'zone', expected a label that GPUs here have: model"
    )


def test_a_deadline_that_another_claim_would_break_is_kept_elsewhere() -> None:
    """40 ms that nobody interrupts would make a deadline of 10 ms late, though both fit in."""
    placement = cluster(1)
    assert isinstance(put(placement, "slow", reserve="40ms/100ms"), Placed)
    waits = put(placement, "quick", priority=9, reserve="2ms/10ms", deadline="10ms")
    assert isinstance(waits, Waits)
    assert waits.why.startswith("on GPU 0 of node n0 its own jobs might miss their deadline")
    (placed,) = placement.node_came("n1", [H200])
    assert placed == Placed("quick", Place("n1", 0))
    assert isinstance(put(placement, "slow2", reserve="40ms/100ms"), Placed)
    assert placement.books.where["slow2"].place.node == "n0"


def test_counting_alone_would_put_them_together() -> None:
    placement = cluster(1, proves=False)
    put(placement, "slow", reserve="40ms/100ms")
    assert isinstance(put(placement, "q", priority=9, reserve="2ms/10ms", deadline="10ms"), Placed)


def test_a_deadline_that_cannot_be_kept_alone_is_refused_at_once() -> None:
    refused = put(cluster(1), "x", reserve="6ms/10ms:ae", deadline="10ms")
    assert isinstance(refused, Refused)
    assert "its reserve goes by predictions that may be wrong" in refused.why


# -- who makes room --------------------------------------------------------------------------------


def test_preemptible_work_moves_away_for_a_more_important_claim() -> None:
    placement = cluster(1, 1)
    background = put(placement, "back", reserve="5ms/10ms", preemptible=True).place
    put(placement, "other", reserve="5ms/10ms", labels={"model": "NVIDIA-H200"})
    (home,) = {Place("n0", 0), Place("n1", 0)} - {background}
    assert placement.books.where["other"].place == background
    placed = put(placement, "main", priority=9, reserve="8ms/10ms")
    assert placed.place == home  # nobody had to move
    placed = put(placement, "main2", priority=9, reserve="5ms/10ms")
    assert placed.place == background
    assert [(m.ticket, m.to) for m in placed.moved] == [("back", None)]
    assert placement.waiting["back"].why.startswith("main2, more important, needed the room; it as")
    assert [p.ticket for p in placement.release("main")] == ["back"]


@pytest.mark.parametrize(
    "other",
    [{"priority": 9, "preemptible": True}, {"priority": 0}, {"priority": 10, "preemptible": True}],
)
def test_equals_and_those_that_may_not_be_moved_stay(other: dict[str, Any]) -> None:
    placement = cluster(1)
    put(placement, "there", reserve="6ms/10ms", **other)
    assert isinstance(put(placement, "new", priority=9, reserve="6ms/10ms"), Waits)
    assert "there" in placement.books.where


def test_no_more_moves_than_must() -> None:
    placement = cluster(1)
    for ticket, reserve in (("a", "4ms/10ms"), ("b", "1ms/10ms"), ("c", "5ms/10ms")):
        put(placement, ticket, reserve=reserve, preemptible=True)
    placed = put(placement, "new", priority=9, reserve="5ms/10ms")
    assert [m.ticket for m in placed.moved] == ["c"]


# -- nodes and daemons that die --------------------------------------------------------------------


def test_claims_of_a_dead_node_go_elsewhere_the_most_important_first() -> None:
    placement = cluster(1, 1)
    put(placement, "low", priority=1, reserve="6ms/10ms")
    put(placement, "high", priority=9, reserve="6ms/10ms")
    node = placement.books.where["high"].place.node
    placement.release("low")
    (other,) = {"n0", "n1"} - {node}
    put(placement, "low", priority=1, reserve="3ms/10ms")
    assert placement.books.where["low"].place.node == node
    decisions = placement.node_gone(node)
    assert decisions[0] == Placed("high", Place(other, 0))
    assert placement.books.where["low"].place.node == other


def test_a_gpu_whose_daemon_is_down_takes_nothing_and_loses_nothing() -> None:
    placement = cluster(1)
    put(placement, "a", reserve="3ms/10ms")
    placement.gpu_down(Place("n0", 0), "its daemon does not answer")
    waits = put(placement, "b", reserve="3ms/10ms")
    assert waits == Waits("b", "GPU 0 of node n0: its daemon does not answer")
    assert "a" in placement.books.where
    assert [p.ticket for p in placement.gpu_up(Place("n0", 0))] == ["b"]


def test_what_runs_somewhere_is_where_it_runs() -> None:
    """Ray has the last word, and a placer that was restarted finds claims there."""
    placement = cluster(2)
    one = claim("a", reserve="6ms/10ms")
    first = placement.submit("a", one)
    assert isinstance(first, Placed)
    there = Place("n0", 1 - first.place.gpu)
    assert placement.found("a", one, there)
    assert placement.books.where["a"].place == there
    assert [gpu.units for _, gpu in sorted(placement.books.gpus.items())] == [
        6000 * (n == there.gpu) for n in (0, 1)
    ]
    assert not placement.found("b", one, Place("n7", 0))


# -- after any history -----------------------------------------------------------------------------

CLAIMS = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 4),
        "reserve": st.sampled_from(
            [None, "1ms/10ms", "2ms/10ms", "6ms/10ms", "3333us/10ms", "9ms/30ms", "40ms/100ms"]
        ),
        "preemptible": st.booleans(),
        "timed": st.booleans(),
        "labels": st.sampled_from([None, {"model": "NVIDIA-L4"}, {"model": "*"}]),
    }
)


class Histories(RuleBasedStateMachine):
    """Claims come and go, nodes join and die, daemons fail and come back."""

    tickets: Bundle[str] = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.placement = Placement()
        self.all: dict[str, Claim] = {}
        self.nodes: set[str] = set()
        self.count = 0

    @rule(node=st.sampled_from("uvw"), kinds=st.lists(st.sampled_from([H200, L4]), max_size=3))
    def join(self, node: str, kinds: list[dict[str, str]]) -> None:
        if node not in self.nodes:
            self.nodes.add(node)
            self.placement.node_came(node, kinds)

    @rule(node=st.sampled_from("uvw"))
    def die(self, node: str) -> None:
        self.nodes.discard(node)
        self.placement.node_gone(node)
        assert all(gpu.place.node != node for gpu in self.placement.books.where.values())

    @rule(node=st.sampled_from("uvw"), gpu=st.integers(0, 2), up=st.booleans())
    def daemon(self, node: str, gpu: int, up: bool) -> None:
        if up:
            self.placement.gpu_up(Place(node, gpu))
        else:
            self.placement.gpu_down(Place(node, gpu), "down")

    @rule(target=tickets, given=CLAIMS)
    def submit(self, given: dict[str, Any]) -> str:
        self.count += 1
        ticket = f"t{self.count}"
        words = {key: value for key, value in given.items() if value is not None}
        if words.pop("timed") and "reserve" in words:
            words["deadline"] = words["reserve"].partition("/")[2]
        made = read_claim({"name": ticket, **words})
        before = dict(self.placement.books.where)
        decision = self.placement.submit(ticket, made)
        if not isinstance(decision, Refused):
            self.all[ticket] = made
        highest = max((claim.level for claim in self.all.values()), default=0)
        for other, gpu in before.items():
            if self.placement.books.where.get(other) is not gpu:
                assert isinstance(decision, Placed)
                assert decision.moved
                assert self.all[other].preemptible
                assert self.all[other].effective_level < highest
        return ticket

    @rule(ticket=consumes(tickets))
    def release(self, ticket: str) -> None:
        self.all.pop(ticket, None)
        self.placement.release(ticket)

    @invariant()
    def no_claim_is_lost_or_twice_there(self) -> None:
        placed = [t for gpu in self.placement.books.gpus.values() for t in gpu.held]
        assert sorted([*placed, *self.placement.waiting]) == sorted(self.all)
        assert set(placed) == set(self.placement.books.where)

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        """In exact arithmetic."""
        for gpu in self.placement.books.gpus.values():
            specs = [c.reserve for c in gpu.held.values() if c.reserve is not None]
            assert sum((s.share for s in specs), Fraction(0)) <= 1
            assert all(claim.suits(gpu.labels) for claim in gpu.held.values())

    @invariant()
    def every_deadline_is_proven(self) -> None:
        for gpu in self.placement.books.gpus.values():
            tasks = [
                GroupTask(
                    ticket,
                    held.effective_level,
                    "fixed",
                    "prt",
                    gpu.longest_ns if held.reserve is None else held.reserve.capacity_ns,
                    period_ns=held.period_ns or None,
                    deadline_ns=held.deadline_ns,
                    reserve=held.reserve,
                )
                for ticket, held in gpu.held.items()
            ]
            due = {ticket for ticket, held in gpu.held.items() if held.deadline_ns is not None}
            verdicts = [v for v in analyse_groups(tasks) if v.task in due]
            assert all(verdict.schedulable == HARD for verdict in verdicts)

    @invariant()
    def nobody_waits_beside_a_gpu_for_it(self) -> None:
        """Of those that wait none could be placed."""
        assert not self.placement.settle()


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
TestHistories = Histories.TestCase
