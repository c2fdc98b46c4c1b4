"""A node of the fleet: what it starts, which claims it keeps, and what it says where it cannot."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway import __version__
from headway.fleet import joining, nodes, starting
from headway.fleet.claims import ClaimError, read_claim, written
from headway.fleet.joining import FleetError
from headway.fleet.nodes import Node, NodeGpu
from headway.fleet.notes import Note, Notes, choose, started
from headway.fleet.worker import LOWEST, options, take
from tests.integration.command import headway

TICKETS = [f"{number:032x}" for number in range(9)]
GPU = {"model": "NVIDIA-H200"}


def made(folder: Path, gpus: int = 1, **more: Any) -> Node:
    found = tuple(NodeGpu(number, "NVIDIA-H200", f"GPU-{number}") for number in range(gpus))
    node = Node("one", folder, found, **more)
    node.write()
    return node


def note(ticket: str, reserve: str = "6ms/10ms", **more: Any) -> Note:
    claim = written(read_claim({"name": "task", "reserve": reserve}))
    return Note(ticket, more.pop("gpu", 0), claim, made_s=time.time(), **more)


# -- starting --------------------------------------------------------------------------------------


def test_rays_node_counts_reserved_time_gpu_by_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the variable a share may be made of parts of several GPUs; with it Ray's own default
    is gone, so that is said again."""
    node = made(tmp_path, 2, labels={"zone": "b"}, address="10.0.0.1:6379")
    words = starting.command(node)
    (resources,) = [word for word in words if word.startswith("--resources=")]
    assert json.loads(resources.partition("=")[2])[joining.RESOURCE] == 2
    (labels,) = [word for word in words if word.startswith("--labels=")]
    told = dict(one.split("=") for one in labels.partition("=")[2].split(","))
    assert told == {
        "zone": "b", "headway/node": "one", "headway/gpu": "NVIDIA-H200",
        "headway/version": __version__,
    }  # fmt: skip
    assert "--address=10.0.0.1:6379" in words
    assert "--head" not in words
    units = starting.environment(node)["RAY_custom_unit_instance_resources"].split(",")
    assert units[-1] == joining.RESOURCE
    assert {"neuron_cores", "TPU"} <= {*units}
    other = {"class": "other.Plugin", "priority": 3}
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGINS", json.dumps([other]))
    plugins = json.loads(starting.environment(node)["RAY_RUNTIME_ENV_PLUGINS"])
    assert plugins == [other, {"class": "headway.fleet.plugin.Plugin"}]


def test_a_node_without_a_gpu_has_nothing_to_reserve(tmp_path: Path) -> None:
    node = made(tmp_path, 0)
    assert not any(word.startswith("--resources") for word in starting.command(node))
    assert node.ray_labels()["headway/gpu"] == "none"


def test_what_ray_complains_of_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "ray.log"
    log.write_text(
        "INFO starting\nTraceback (most recent call last):\n  File x\n"
        "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.49.0\n"
        "    This process was started with: Ray: 2.60.0\n"
    )
    assert "Version mismatch" in starting._why(log)
    assert "\n" not in starting._why(log)


def test_a_node_is_written_down_and_read_again(tmp_path: Path) -> None:
    node = made(tmp_path, 2, labels={"zone": "b"}, options=("--spin", "0ms"), ray=(1, 2))
    assert nodes.read_node(tmp_path) == node
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(FleetError, match="no node is there"):
        nodes.read_node(tmp_path)


# -- Ray that is not there, or not the right one ---------------------------------------------------


def test_without_ray_headway_works_and_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "import headway, headway.fleet\n"
        "made = headway.fleet.remote(priority=9, reserve='6ms/10ms')(lambda: None)\n"
        "made.remote()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert "headway fleet: Ray cannot be imported" in last
    assert last.endswith("run pip install 'headway[ray]'")
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from headway.view.cli import main\n"
        "sys.argv = ['headway', 'fleet', 'status']; main()"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    (line,) = done.stderr.splitlines()
    assert line.endswith("run pip install 'headway[ray]'")
    assert done.returncode == 1


def test_an_old_ray_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(__version__="2.9.3")
    monkeypatch.setattr(importlib, "import_module", lambda name: old)
    with pytest.raises(FleetError, match=r"found Ray 2\.9\.3, expected 2\.50 or newer"):
        joining.ray()


def fake_cluster(*versions: str | None) -> Any:
    """Ray with nodes of these versions of Headway, and no placer."""

    def get_actor(name: str, namespace: str) -> None:
        raise ValueError(name)

    def told(number: int, version: str | None) -> dict[str, Any]:
        labels = {} if version is None else {"headway/version": version, "headway/node": "other"}
        return {"Alive": True, "NodeID": str(number), "Labels": labels, "NodeManagerHostname": "h"}

    found = [told(number, version) for number, version in enumerate(versions)]
    return SimpleNamespace(get_actor=get_actor, nodes=lambda: found)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("here", "--address: found 'here', expected HOST:PORT"),
        ("127.0.0.1:99999", "--address: found '127.0.0.1:99999', expected HOST:PORT"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1; headway fleet up --head starts"),
    ],
)
@pytest.mark.parametrize("words", [["status"], ["up", "--name", "x"]], ids=["status", "up"])
def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, words: list[str], address: str, said: str
) -> None:
    done = headway(
        "fleet", *words, "--address", address, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"headway fleet: {said}")
    assert done.returncode == 1
    assert not list(tmp_path.glob("**/node.json"))


def test_a_cluster_without_headway_or_with_another_is_one_line() -> None:
    with pytest.raises(FleetError, match="no node of this cluster was started by Headway; run"):
        joining.placer(fake_cluster(None))
    with pytest.raises(FleetError, match=rf"found Headway 0\.0\.9 on .*expected {__version__}"):
        joining.placer(fake_cluster("0.0.9"))


async def test_a_node_with_another_version_takes_no_claims_and_the_rest_goes_on() -> None:
    pytest.importorskip("ray")
    from headway.fleet.placer import Placer

    placer = Placer()
    placer._watching.cancel()
    placer._burying.cancel()
    for version, said in (("0.0.9", "runs Headway 0.0.9"), (None, "does not run Headway")):
        (told,) = fake_cluster(version).nodes()
        placer._meet("id", told)
        (line,) = placer._strangers.values()
        assert said in line
        assert line.endswith("it takes no claims")
        assert not placer._members
        placer._strangers.clear()


# -- notes -----------------------------------------------------------------------------------------


def test_a_claim_is_kept_while_somebody_is_there_for_it(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    child = subprocess.Popen(["sleep", "60"])
    try:
        from headway.live.identity.launches import life

        pid, born = life(child.pid)
        kept = {
            "of an actor whose process is gone": note(
                TICKETS[0], actor="a", pid=pid, born=born + 1
            ),
            "plain and running": note(TICKETS[1], plain=True, pid=pid, born=born),
            "promised just now": note(TICKETS[2]),
        }
        gone = {
            "plain and dead": note(TICKETS[3], plain=True, pid=pid, born=born + 1),
            "of nobody known, whose worker ended": replace(
                note(TICKETS[5], pid=pid, born=born + 1), made_s=time.time() - 20
            ),
            "promised to nobody, long ago": replace(note(TICKETS[4]), made_s=time.time() - 3600),
        }
        for one in (*kept.values(), *gone.values()):
            notes.write(one)
        assert {n.ticket for n in notes.standing()} == {n.ticket for n in kept.values()}
        assert not (tmp_path / "claims" / f"{TICKETS[3]}.json").exists()
    finally:
        child.kill()
        child.wait()


def test_notes_that_say_nothing_count_for_nothing(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    for ticket, text in zip(TICKETS, ("", "[]", '{"ticket": 1}', "\xff"), strict=False):
        (tmp_path / "claims" / f"{ticket}.json").write_text(text)
    wrong = replace(note(TICKETS[5]), claim={"reserve": "12ms/10ms"})
    notes.write(wrong)
    assert notes.standing() == []
    assert notes.read("../../etc/passwd") is None


def test_a_node_promises_no_gpu_twice() -> None:
    claim = read_claim({"name": "new", "reserve": "6ms/10ms"})
    held = [note(TICKETS[0], gpu=0)]
    assert choose("n", [GPU, GPU], held, TICKETS[1], claim) == (1, "")
    assert choose("n", [GPU, GPU], held, TICKETS[1], claim, wanted=1) == (1, "")
    gpu, why = choose("n", [GPU, GPU], held, TICKETS[1], claim, wanted=0)
    assert gpu == 0
    assert why.startswith("it asks for 60 % of a GPU, and 60 % or more is reserved")
    assert choose("n", [GPU], held, TICKETS[0], claim) == (0, "")  # its own note is no hindrance


def test_a_worker_without_room_runs_behind_everybody(tmp_path: Path) -> None:
    node = made(tmp_path)
    notes = Notes(tmp_path)
    notes.write(note(TICKETS[0]))
    claim = read_claim({"name": "new", "priority": 9, "reserve": "6ms/10ms", "deadline": "12ms"})
    taken, is_first = take(node, claim, TICKETS[1], None)
    assert is_first
    assert "it asks for" in taken.misfit
    told = options(claim, taken)
    assert told == {"name": "new", "priority": str(LOWEST)}
    notes.drop(TICKETS[0])
    taken, _ = take(node, claim, TICKETS[1], None)  # Ray starts it again
    assert not taken.misfit
    assert options(claim, taken)["shared"] == f"new.{TICKETS[1][:8]}"


def test_what_a_worker_starts_shares_its_claim(tmp_path: Path) -> None:
    node, notes = made(tmp_path), Notes(tmp_path)
    child = subprocess.Popen(["sleep", "60"])
    try:
        from headway.live.identity.launches import life

        pid, born = life(child.pid)
        notes.write(replace(note(TICKETS[0]), pid=pid, born=born))
        claim = read_claim({"name": "task", "reserve": "6ms/10ms"})
        taken, is_first = take(node, claim, TICKETS[0], 0)
        assert not is_first
        assert taken.pid == pid
        assert len(notes.standing()) == 1
    finally:
        child.kill()
        child.wait()
    taken, is_first = take(node, claim, TICKETS[0], 0)
    assert is_first
    assert (taken.pid, taken.is_running) == (os.getpid(), True)
    assert started(taken).pid == os.getpid()


# -- what the runtime environment refuses ----------------------------------------------------------


def test_a_refused_claim_is_one_line_in_rays_words() -> None:
    pytest.importorskip("ray")
    from headway.fleet.plugin import ClaimRefused, Plugin

    with pytest.raises(ClaimRefused) as wrong:
        Plugin.validate({"headway": {"prio": 1}})
    error = wrong.value
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    assert text == "ClaimRefused: headway claim: found the key 'prio'; did you mean priority?\n"


def test_a_node_says_why_it_cannot_take_a_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from headway.fleet import plugin

    monkeypatch.setattr(plugin, "PATIENCE_S", 0.0)
    claim = read_claim({"priority": 9, "labels": {"model": "NVIDIA-L4"}})
    with pytest.raises(FleetError, match="node one has no GPU; expected resources="):
        plugin.why_not(made(tmp_path, 0), claim, None)
    node = made(tmp_path)
    with pytest.raises(FleetError, match="found model=NVIDIA-L4, expected one of NVIDIA-H200"):
        plugin.why_not(node, claim, None)
    with pytest.raises(
        FleetError, match=r"no daemon answers in .*; run headway fleet up --name one"
    ):
        plugin.why_not(node, read_claim({"priority": 9}), None)
    monkeypatch.delenv("HEADWAY_NODE", raising=False)
    with pytest.raises(FleetError, match="was not started by headway fleet up"):
        nodes.this_node()


# -- the decorator ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prioritty": 9}, None),  # an option of Ray's, as far as Headway knows
        ({"priority": "high"}, "priority: found 'high', expected an integer"),
        ({"reserve": "12ms/10ms"}, "reserve: expected a capacity above zero"),
        (
            {"priority": 1, "preemptible": True, "max_restarts": 0},
            "preemptible: found max_restarts",
        ),
        (
            {"priority": 1, "scheduling_strategy": "SPREAD"},
            "scheduling_strategy: the placer chooses",
        ),
        ({"priority": 1, "runtime_env": {"headway": {}}}, "runtime_env: its headway key is what"),
    ],
)
def test_a_bad_claim_fails_where_it_is_written(given: dict[str, Any], said: str | None) -> None:
    from headway.fleet import remote

    if said is None:
        assert remote(**given)(print).__name__ == "print"
        return
    with pytest.raises(ClaimError) as error:
        remote(**given)
    assert str(error.value).startswith(f"headway claim: {said}")
    assert "\n" not in str(error.value)


def test_a_remote_function_says_how_to_call_it() -> None:
    from headway.fleet import remote

    def work() -> None: ...

    with pytest.raises(TypeError, match=r"call work\.remote"):
        remote(priority=1)(work)()
    with pytest.raises(ClaimError, match="expected its keys by name"):
        remote(9)


# -- the agent -------------------------------------------------------------------------------------


def test_a_worker_gets_its_reserve_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of the second claim runs behind everybody until the first claim is over; and until
    it is known to the daemon, it cannot be given anything."""
    from headway.fleet import agent
    from headway.live.api import client

    node, notes = made(tmp_path), Notes(tmp_path)
    monkeypatch.setenv("HEADWAY_NODE", str(tmp_path))
    asked: list[dict[str, Any]] = []
    is_known = False

    def ask(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        assert folder == node.gpu_folder(0)
        if request["do"] == "status":
            raise client.NoDaemon("none")
        asked.append(request)
        if not is_known:
            raise client.Refused("no task is called so")
        return {}

    monkeypatch.setattr(client, "ask", ask)
    notes.write(note(TICKETS[0]))
    claim = read_claim({"name": "new", "priority": 9, "reserve": "6ms/10ms", "deadline": "13ms"})
    take(node, claim, TICKETS[1], None)
    made_agent = agent.Agent(restarts=False)

    def misfits() -> dict[str, str]:
        return {one.ticket: one.misfit for one in made_agent.look().notes}

    assert "it asks for" in misfits()[TICKETS[1]]
    assert not asked
    made_agent.drop([TICKETS[0]])
    assert misfits()[TICKETS[1]]
    is_known = True
    assert misfits() == {TICKETS[1]: ""}
    assert asked[-1] == {
        "do": "set", "task": str(os.getpid()), "priority": 9, "reserve": "6ms/10ms",
        "deadline": "13ms", "shared": f"new.{TICKETS[1][:8]}",
    }  # fmt: skip
    assert made_agent.hold(TICKETS[2], written(claim), 0, "", []).startswith("it asks for")
