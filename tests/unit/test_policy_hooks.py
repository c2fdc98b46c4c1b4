"""What the engine asks policies and tells them, and what people may write of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from headway.engine.choice import parse_policy
from headway.engine.core import Engine
from headway.engine.model import Group, Task
from headway.engine.policies import Policy, policies, policy
from headway.engine.reading import BadInput, Table
from headway.engine.registry import ExtensionError, Registry
from headway.engine.spec import parse_spec
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario
from headway.view.errors import UserError
from headway.view.files import load_policy_file

MS = 1_000_000
WFQ = Path(__file__).resolve().parents[2] / "examples" / "policies" / "wfq.py"
load_policy_file(str(WFQ))


@policy("test-hooks")
class Hooks(Policy):
    """Notes what it hears; the key is the task's parameter, whatever it is then."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.keys: dict[str, int] = {}

    @classmethod
    def read_task(cls, table: Table) -> int:
        return table.integer("place", 5, least=0, most=9)

    def key(self, task: Task) -> int:
        return self.keys.get(task.name, int(task.parameters))

    def submitted(self, group: Group, engine: Engine) -> None:
        self.heard.append(f"submitted {group.task.name}{group.index}")

    def started(self, group: Group, engine: Engine) -> None:
        self.heard.append(f"started {group.task.name}{group.index}")

    def finished(self, group: Group, engine: Engine) -> None:
        ran = group.finished_ns - group.started_ns
        self.heard.append(f"finished {group.task.name}{group.index} {ran}")

    def removed(self, task: Task, engine: Engine) -> None:
        self.heard.append(f"removed {task.name}")


def hooked() -> tuple[Engine, Hooks]:
    hooks = Hooks()
    return Engine(named=[hooks]), hooks


def add(engine: Engine, name: str, text: str = "test-hooks") -> Task:
    return engine.add_task(name, 0, policy=text)[0]


def test_a_policy_hears_what_becomes_of_its_groups() -> None:
    engine, hooks = hooked()
    a, other = add(engine, "a"), add(engine, "o", "prt")
    group = Group(a, 0)
    engine.submit(group, 0)
    engine.submit(Group(other, 0), 0)
    assert engine.dispatch(0) is not None
    online = engine.gpus[0].online[0]
    engine.complete(online, 1, 4)
    assert engine.dispatch(4) is not None
    engine.complete(engine.gpus[0].online[0], 4, 9)
    engine.remove_task(a, 9)
    ran = 3 if online is group else 5
    assert hooks.heard == ["submitted a0", "started a0", f"finished a0 {ran}", "removed a"]


def test_only_the_policy_that_heard_of_a_group_hears_how_it_goes_on() -> None:
    engine, hooks = hooked()
    task = add(engine, "a", "prt")
    first, second = Group(task, 0), Group(task, 1)
    engine.submit(first, 0)
    engine.dispatch(0)
    engine.submit(second, 0)
    engine.set_policy(task, "test-hooks", 1)
    engine.complete(first, 0, 2)
    assert engine.dispatch(2) is second
    engine.set_policy(task, "prt", 3)
    engine.complete(second, 2, 4)
    assert hooks.heard == ["submitted a1", "started a1", "removed a"]


def test_the_key_is_asked_at_every_push_and_after_a_group_has_finished() -> None:
    engine, hooks = hooked()
    a, b = add(engine, "a", "test-hooks:place=1"), add(engine, "b", "test-hooks:place=2")
    running = Group(a, 0)
    engine.submit(running, 0)
    engine.dispatch(0)
    for task in (a, b):  # a's next one stands first
        engine.submit(Group(task, 1 - task.order), 0)
    hooks.keys["a"] = 3  # and is asked again when the one that runs is done
    engine.complete(running, 0, 1)
    assert [group.task.name for group in engine.ready()] == ["b", "a"]
    engine.set_policy(b, "test-hooks:place=7", 1)
    assert [group.task.name for group in engine.ready()] == ["a", "b"]


class Broken(Hooks):
    def key(self, task: Task) -> int:
        return self._fails(2.5, "key")

    def _fails(self, number: Any, what: str) -> int:
        return number if self.breaks == what else 0

    breaks = "key"

    def submitted(self, group: Group, engine: Engine) -> None:
        assert self.breaks != "submitted"

    def wake_ns(self, now_ns: int) -> int | None:
        return now_ns if self.breaks == "wake_ns" else None

    def admits(self, group: Group, gpu: Any, engine: Engine) -> bool:
        if self.breaks == "admits":
            raise ZeroDivisionError("by zero")
        return not gpu.online


@pytest.mark.parametrize("hook", ["key", "submitted", "wake_ns", "admits"])
def test_a_policy_whose_code_fails_is_named_with_the_hook(hook: str) -> None:
    def go(engine: Engine) -> None:
        engine.submit(Group(add(engine, "a"), 0), 0)
        engine.dispatch(0)
        engine.submit(Group(add(engine, "b"), 0), 0)
        engine.next_timer_ns()

    broken = Broken()
    broken.name, broken.breaks = "test-hooks", hook  # type: ignore[misc]
    with pytest.raises(ExtensionError, match=f"policy test-hooks: {hook} failed: "):
        go(Engine(named=[broken]))
    failures: list[ExtensionError] = []
    engine = Engine(named=[broken], on_failure=failures.append)
    other = add(engine, "o", "prt")
    engine.submit(Group(other, 0), 0)
    go(engine)
    assert engine.gpus[0].online, "others go on"
    engine.next_timer_ns()
    if hook != "admits":
        assert {failure.name for failure in failures} == {"test-hooks"}


def test_weights_are_shares_in_the_simulator() -> None:
    for weights in ((3, 1), (1, 1), (2, 5)):
        names = [f"w{place}" for place in range(len(weights))]
        tasks = [
            {
                "name": name,
                "policy": {"name": "wfq", "weight": weight},
                "greedy": {"cost": ["1ms", "5ms"], "depth": depth},
            }
            for depth, (name, weight) in enumerate(zip(names, weights, strict=True), 1)
        ]
        scenario = {"task": tasks, "run": {"duration": "5s"}}
        table = simulate(read_scenario(scenario, "test")).statistics.as_dict()["tasks"]
        shares = [table[name]["gpu_share"] for name in names]
        assert shares == pytest.approx([w / sum(weights) for w in weights], abs=0.005)


def test_who_rested_gets_no_credit_for_it_and_priorities_come_first() -> None:
    def greedy(name: str, at: str, **more: Any) -> dict[str, Any]:
        groups = [{"at": at, "cost": "1ms"}] * 1000
        return {"name": name, "policy": "wfq", "groups": groups, **more}

    tasks = [greedy("early", "0ms"), greedy("late", "500ms")]
    tasks.append(greedy("above", "900ms", priority=1))
    scenario = {"task": tasks, "run": {"duration": "1s"}}
    table = simulate(read_scenario(scenario, "test")).statistics.as_dict()["tasks"]
    assert [table[name]["gpu_ns"] // MS for name in ("early", "late", "above")] == [700, 200, 100]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("wfq:weight=0", "weight: found 0, expected a whole number from 1 to 1000"),
        ("wfq:wait=3", 'did you mean "weight"'),
        ("wfq:weight", "found 'wfq:weight', expected a policy such as"),
        ("wfq:weight=1,weight=2", "expected a policy such as"),
        ("prt:weight=3", "unknown key 'weight', expected no key"),
        ("wfc", "found 'wfc', expected one of"),
    ],
)
def test_a_mistake_in_a_policys_parameters_is_told_everywhere(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=found.replace("(", r"\(")):
        parse_policy(text)
    for read in (
        lambda: parse_spec(f'[[task]]\nname = "a"\npolicy = "{text}"\n'),
        lambda: read_scenario({"task": [{"name": "a", "policy": text, "groups": []}]}, "s"),
    ):
        with pytest.raises(BadInput, match="policy"):
            read()


def test_all_forms_say_the_same() -> None:
    assert parse_policy("wfq: weight = 3").text == "wfq:weight=3"
    for written in ('"wfq:weight=3"', '{ name = "wfq", weight = 3 }'):
        spec = parse_spec(f'[[task]]\nname = "a"\npolicy = {written}\n')
        assert [entry.policy for entry in spec.entries] == ["wfq:weight=3"]
    engine = Engine()
    assert add(engine, "a", "wfq:weight=3").parameters == 3
    assert add(engine, "b", "wfq").parameters == 1


def test_a_name_has_one_owner() -> None:
    assert policies()["prt"].__name__ == "Prt"
    with pytest.raises(ValueError, match="wants the name that"):
        policy("prt")(Hooks)
    with pytest.raises(ValueError, match="expected a name"):
        Registry[type]("policy", __name__)("a:b")


def test_a_loaded_file_may_have_dataclasses_and_what_fails_is_one_line(tmp_path: Path) -> None:
    good = tmp_path / "withdata.py"
    good.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Fact:\n    number: int = 1\n"
    )
    load_policy_file(str(good))
    bad = tmp_path / "bad.py"
    bad.write_text("import nothing_of_this_name\n")
    with pytest.raises(UserError, match="cannot be loaded: ModuleNotFoundError"):
        load_policy_file(str(bad))
    assert importlib.util.find_spec("headway") is not None
