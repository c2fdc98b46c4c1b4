"""Claims as people write them, and what is said of wrong ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headway.engine.reserves import parse_reserve
from headway.fleet.claims import ClaimError, label, read_claim, written
from headway.fleet.proofs import objection_alone

WRONG: list[tuple[Any, str]] = [
    (7, "found 7, expected its keys, such as priority and reserve"),
    ({"prio": 9}, "found the key 'prio'; did you mean priority?"),
    ({"qqq": 9}, "found the key 'qqq', expected some of name, priority, reserve, deadline, policy"),
    ({"priority": "high"}, "priority: found 'high', expected an integer from -1000000 to 1000000"),
    ({"priority": "*"}, "priority: found '*', expected a number, rm or edf: a node has no foreg"),
    ({"reserve": "12ms/10ms"}, "reserve: expected a capacity above zero and at most the period"),
    ({"reserve": "6/10"}, 'reserve: expected a reserve such as "5ms/20ms"'),
    ({"reserve": 0.6}, 'reserve: found 0.6, expected text such as "6ms/10ms"'),
    ({"deadline": "10ms"}, "deadline: found '10ms' without a reserve, expected reserve=C/T"),
    ({"reserve": "6ms/10ms", "deadline": "5ms"}, "deadline: found '5ms', expected no less than"),
    ({"reserve": "6ms/10ms", "deadline": "soon"}, "deadline: found 'soon', expected a duration"),
    ({"preemptible": "yes"}, "preemptible: found 'yes', expected True or False"),
    ({"labels": "h200"}, "labels: found 'h200', expected such as"),
    ({"labels": {"model": "a b"}}, "labels: found 'a b', expected letters, digits"),
    ({"name": "\n"}, "name: expected printable text"),
    ({"share": "half"}, "share: found 'half'"),
]


@pytest.mark.parametrize(("found", "said"), WRONG, ids=[text[:30] for _, text in WRONG])
def test_a_wrong_claim_is_one_line(found: Any, said: str) -> None:
    with pytest.raises(ClaimError) as error:
        read_claim(found)
    assert str(error.value).startswith(f"headway claim: {said}")
    assert "\n" not in str(error.value)


def test_a_claim_means_what_it_says() -> None:
    claim = read_claim({"priority": 9, "reserve": "6ms/10ms", "deadline": "10ms"}, "detector")
    assert (claim.name, claim.level, claim.units, claim.deadline_ns) == (
        "detector", 9, 7895, 10_000_000,
    )  # fmt: skip
    assert claim.options() == {
        "name": "detector", "priority": 9, "reserve": "6000000ns/7600000ns:pe", "deadline": "10ms",
    }  # fmt: skip
    assert claim.describe() == "priority 9, 6ms/10ms, within 10ms"


def test_a_reserve_keeps_its_own_deadline() -> None:
    """Jobs of 6 ms every 10 ms that find their budget used wait for the next replenishment: with
    6 ms every 10 ms up to 12 ms in all. So the period in force is as short as the deadline needs,
    and where the deadline is long enough, it is what was asked for."""
    for reserve, deadline, share in (("4ms/10ms", "10ms", 4000), ("6ms/10ms", "13ms", 6000)):
        claim = read_claim({"reserve": reserve, "deadline": deadline})
        assert claim.units == share
        assert claim.options()["reserve"] == reserve
    tight = read_claim({"reserve": "6ms/10ms", "deadline": "10ms"})
    assert not objection_alone(tight, 200_000)
    assert objection_alone(replace(tight, reserve=parse_reserve("6ms/10ms")), 0)


def test_shares_are_rounded_up_to_what_a_cluster_counts_in() -> None:
    assert read_claim({"reserve": "1ms/3ms"}).units == 3334
    assert read_claim({"reserve": "1us/1s"}).units == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NVIDIA H200", "NVIDIA-H200"),
        ("GeForce GTX 1080 (Ti)", "GeForce-GTX-1080-Ti"),
        ("", "unknown"),
    ],
)
def test_a_devices_name_is_a_label(name: str, said: str) -> None:
    assert label(name) == said
    assert read_claim({"labels": {"model": said}}).suits({"model": label(name)})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(-5, 9) | st.sampled_from(["rm", "edf@3"]),
            "reserve": st.sampled_from(["6ms/10ms", "1ms/3ms:ae"]),
            "preemptible": st.booleans(),
            "labels": st.sampled_from([{"model": "*H200"}, {"model": "a", "zone": "b"}]),
            "name": st.sampled_from(["x", "a b"]),
        },
    )
)
def test_what_was_written_reads_the_same(found: dict[str, Any]) -> None:
    claim = read_claim(found)
    assert read_claim(written(claim)) == claim
