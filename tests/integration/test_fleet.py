"""Three nodes of Ray on one machine, with software GPUs: claims are placed, kept and given back."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway
from benchmarks import fleet_jobs
from headway.fleet import ClaimError, joining
from tests.integration import command, opencl
from tests.integration.ray_nodes import RayNodes, claims, cluster, placer, view, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, and those of what it imports
]
RIGHT_S = 10.0
"""Within this after a death, claims are right again."""
ATTEMPTS = 3
NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    pytest.importorskip("ray", reason="no wheel of Ray for this Python")
    with tempfile.TemporaryDirectory(prefix="hw") as folder, cluster(Path(folder), NAMES) as made:
        yield made


@pytest.fixture
def kill(nodes: RayNodes) -> Iterator[Any]:
    """Kills actors; at the end, all that were made."""
    import ray

    made: list[Any] = []
    yield made
    for actor in made:
        ray.kill(actor)
    wait_until(lambda: not view()["claims"], "all claims are given back")


def worker(**claim: Any) -> Any:
    """A class of actors that tell who and where they are."""

    class Worker:
        def where(self) -> dict[str, Any]:
            variables = {k: v for k, v in os.environ.items() if k.startswith(("HEADWAY", "LD_"))}
            node = joining.ray().get_runtime_context().get_node_id()
            return {"pid": os.getpid(), "node": node, **variables}

    return headway.fleet.remote(name="worker", **claim)(Worker)


def test_claims_are_placed_held_and_given_back(nodes: RayNodes, kill: list[Any]) -> None:
    import ray

    important = worker(priority=9, reserve="6ms/10ms", deadline="10ms")
    actors = [important.remote() for _ in range(3)]
    kill += actors
    found = ray.get([actor.where.remote() for actor in actors], timeout=60)
    assert len({one["node"] for one in found}) == 3
    for one in found:  # the interposer is in the worker, and the daemon is that of its node
        assert one["LD_PRELOAD"].endswith("libheadway.so")
        assert one["HEADWAY_SOCKET"].startswith(one["HEADWAY_NODE"])
    held = important.remote()
    why = "it asks for 78.95 % of a GPU, and 78.95 % or more is reserved already on each of 3"
    told = nodes.status()
    (pending,) = [claim for claim in told["claims"] if claim["state"] == "pending"]
    assert pending["why"].startswith(why)
    assert [gpu["reserved"] for node in told["nodes"] for gpu in node["gpus"]] == [0.7895] * 3
    with pytest.raises(TimeoutError, match="worker waits: it asks for"):
        held.actor(timeout_s=0.1)
    ray.kill(actors.pop())
    kill.pop()
    kill.append(held.actor(timeout_s=30))
    assert ray.get(held.where.remote(), timeout=60)["LD_PRELOAD"]


def test_what_can_never_be_is_refused_at_once(nodes: RayNodes) -> None:
    import ray

    for claim, said in (
        ({"labels": {"model": "NVIDIA-H200"}}, "labels: found model=NVIDIA-H200, expected one of"),
        ({"labels": {"planet": "mars"}}, "labels: found 'planet', expected a label that GPUs here"),
        ({"reserve": "9ms/10ms", "deadline": "9ms"}, "its own jobs might miss their deadline"),
    ):
        with pytest.raises(ClaimError) as error:
            worker(**claim).remote()
        assert str(error.value).startswith(f"headway claim: {said}")
        assert "\n" not in str(error.value)
    assert not view()["claims"]

    def nothing() -> None: ...

    env = {"headway": {"priority": 9, "reserve": "12ms/10ms"}}
    plain = ray.remote(nothing).options(runtime_env=env, max_retries=0)
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError) as wrong:
        ray.get(plain.remote(), timeout=60)
    told = [line for line in str(wrong.value).splitlines() if "headway claim" in line]
    assert len(told) == 1
    assert "reserve: expected a capacity above zero and at most the period" in told[0]
    assert "Traceback" not in str(wrong.value)


def test_plain_code_of_ray_has_its_claim_too(nodes: RayNodes) -> None:
    import ray

    claim = {"name": "plain", "priority": 3, "reserve": "6ms/10ms"}

    class Plain:
        def where(self) -> tuple[str, str]:
            return os.environ["LD_PRELOAD"], ray.get_runtime_context().get_node_id()

    share = {joining.RESOURCE: 0.6}
    plain = ray.remote(Plain).options(runtime_env={"headway": claim}, resources=share, num_cpus=0)
    actors = [plain.remote() for _ in range(3)]
    found = ray.get([actor.where.remote() for actor in actors], timeout=60)
    assert len({node for _, node in found}) == 3
    assert all(library.endswith("libheadway.so") for library, _ in found)
    wait_until(lambda: len(claims("plain")) == 3, "the placer knows claims that it did not place")
    assert {gpu["reserved"] for node in view()["nodes"] for gpu in node["gpus"]} == {0.6}
    for actor in actors:
        ray.kill(actor)
    wait_until(lambda: not view()["claims"], "claims of the dead are given back", RIGHT_S)


def test_calls_of_functions_take_turns_where_there_is_no_room(nodes: RayNodes) -> None:
    import ray

    def square(number: int) -> tuple[int, int]:
        return number * number, os.getpid()

    work = headway.fleet.remote(priority=5, reserve="9ms/10ms", num_cpus=0)(square)
    found = ray.get([work.remote(number) for number in range(5)], timeout=90)
    assert [answer for answer, _ in found] == [0, 1, 4, 9, 16]
    assert len({pid for _, pid in found}) <= 3  # a claim is kept for the next call, with its worker
    wait_until(lambda: not view()["claims"], "claims that no call wants are given back")


def test_background_work_moves_away(nodes: RayNodes, kill: list[Any]) -> None:
    import ray

    greedy = worker(priority=1, reserve="5ms/10ms", preemptible=True)
    movable = [greedy.remote() for _ in range(3)]
    kill += movable
    before = ray.get([actor.where.remote() for actor in movable], timeout=60)
    assert len({one["node"] for one in before}) == 2  # two of them fill one GPU
    kill.append(worker(priority=8, reserve="9ms/10ms").options(name="big").remote())
    kill.append(worker(priority=9, reserve="9ms/10ms").remote())
    big, important = ray.get([actor.where.remote() for actor in kill[-2:]], timeout=60)
    assert big["node"] != important["node"]

    def states() -> list[str]:
        return sorted(claim["state"] for claim in view()["claims"])

    wait_until(lambda: states() == ["pending", *["running"] * 4], "who moved runs again, or waits")
    for node in view()["nodes"]:
        assert all(gpu["reserved"] <= 1 for gpu in node["gpus"])


def test_an_important_actor_is_faster_beside_greedy_ones(
    nodes: RayNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Job times of an OpenCL program; the bound is wide, the benchmark measures."""
    built = opencl.compile_all(tmp_path)
    for _attempt in range(ATTEMPTS):
        told = fleet_jobs.measure_all(built, "one", seconds=1.5, greedy=2)
        with capsys.disabled():
            print("\n" + fleet_jobs.table([told], greedy=2))
        ratio = told["Ray with Headway"]["p50_us"] / told["Ray alone"]["p50_us"]
        if ratio < 0.75:
            return
    pytest.fail(f"with Headway {ratio:.2f} of Ray alone in each of {ATTEMPTS} attempts")


# -- deaths ----------------------------------------------------------------------------------------


def pids(actors: list[Any]) -> list[int]:
    import ray

    return [one["pid"] for one in ray.get([a.where.remote() for a in actors], timeout=60)]


def test_a_daemon_and_the_placer_are_killed(nodes: RayNodes, kill: list[Any]) -> None:
    import ray

    half = worker(priority=7, reserve="5ms/10ms")
    actors = [half.remote() for _ in range(4)]
    kill += actors
    before = pids(actors)
    books = wait_until(lambda: running(4), "all run")
    old = nodes.daemon_pid("two")
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: nodes.daemon_pid("two") != old, "another daemon is there", RIGHT_S)
    wait_until(lambda: healthy() and running(4) == books, "claims are right", RIGHT_S)
    first = view()["placer"]
    ray.kill(placer(), no_restart=False)
    wait_until(lambda: view()["placer"] != first, "another placer is there", RIGHT_S)
    wait_until(lambda: running(4) == books, "the next placer knows them", RIGHT_S)
    kill += [half.remote() for _ in range(2)]
    held = half.remote()
    assert "it asks for 50 % of a GPU" in held.why
    held.cancel()
    with pytest.raises(ClaimError, match="worker was given up"):
        held.actor(timeout_s=5)
    assert pids(actors) == before


def running(number: int) -> list[tuple[str, str, int]]:
    """Who runs where, if so many do."""
    found = [
        (c["ticket"], c["node"], c["gpu"]) for c in view()["claims"] if c["state"] == "running"
    ]
    return sorted(found) if len(found) == number else []


def healthy() -> bool:
    return all(not gpu["problem"] for node in view()["nodes"] for gpu in node["gpus"])


def test_a_node_is_killed(nodes: RayNodes, kill: list[Any]) -> None:
    """The last test: the node stays dead."""
    import ray

    half = worker(priority=7, reserve="5ms/10ms", max_restarts=-1, max_task_retries=-1)
    actors = [half.remote() for _ in range(4)]
    kill += actors
    homes = [one["node"] for one in ray.get([a.where.remote() for a in actors], timeout=60)]
    before = pids(actors)
    victims = ("two", "three")
    doomed = next(n for n in victims if nodes.ray_id(n) in homes and homes.count(nodes.ray_id(n)))
    dead = nodes.ray_id(doomed)
    nodes.kill(doomed)

    def is_right() -> bool:
        seen = running(4)
        return bool(seen) and doomed not in {node for _, node, _ in seen}

    wait_until(is_right, "its claims are held elsewhere, by actors that run", 4 * RIGHT_S)
    for actor, home, pid in zip(actors, homes, before, strict=True):
        if home != dead:
            assert pids([actor]) == [pid]
    assert all(gpu["reserved"] <= 1 for node in view()["nodes"] for gpu in node["gpus"])


def test_studies_on_the_cluster_have_the_same_results(nodes: RayNodes) -> None:
    words = ["study", "acceptance", "--json", "--sets", "12", "--tasks", "6"]
    words += ["--utilisation", "0.1:0.2:0.1", "--allocators", "r2dglp-wc"]
    here = command.headway(*words, "--jobs", "1")
    there = command.headway(*words, "--ray", nodes.address, timeout_s=120, env=nodes.env)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert '"accepted":' in here.stdout
    figure = ["papers", "run", "timegraph/fig6", "--json"]
    there = command.headway(*figure, "--ray", nodes.address, timeout_s=120, env=nodes.env)
    assert there.stdout == command.headway(*figure).stdout
