"""Programs: what each kind of simulated task does, and that nobody is stuck when another dies.

Times are milliseconds.
"""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from headway.engine.events import Observer
from headway.engine.model import Group, Task
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import read_scenario

MS = 1_000_000


class Seen(Observer):
    """What ran, what was shown, and how many groups of a task were online at once."""

    def __init__(self) -> None:
        self.spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.submitted_at: dict[str, list[float]] = defaultdict(list)
        self.shown_at: dict[str, list[float]] = defaultdict(list)
        self.deadlines: dict[str, list[float]] = defaultdict(list)
        self.most_online: dict[str, int] = defaultdict(int)
        self._online: dict[str, int] = defaultdict(int)

    def dispatched(self, group: Group, now_ns: int) -> None:
        name = group.task.name
        self._online[name] += 1
        self.most_online[name] = max(self.most_online[name], self._online[name])

    def completed(self, group: Group, now_ns: int) -> None:
        name = group.task.name
        self._online[name] -= 1
        self.spans[name].append((group.started_ns / MS, now_ns / MS))
        self.submitted_at[name].append(group.submitted_ns / MS)
        if group.deadline_ns is not None:
            self.deadlines[name].append(group.deadline_ns / MS)
        if group.frame:
            self.shown_at[name].append(now_ns / MS)

    def shown(self, task: Task, now_ns: int) -> None:
        self.shown_at[task.name].append(now_ns / MS)
        assert len(self.shown_at[task.name]) < 10_000, "more frames than any of these can draw"


def run(*tasks: dict[str, Any], until: float, seed: int = 0, **top: Any) -> tuple[Seen, Outcome]:
    seen = Seen()
    data = {"task": list(tasks), "run": {"duration": f"{until}ms", "seed": seed}, **top}
    return seen, simulate(read_scenario(data, "scenario"), observers=[seen])


def see(*tasks: dict[str, Any], until: float, seed: int = 0, **top: Any) -> Seen:
    return run(*tasks, until=until, seed=seed, **top)[0]


def task(
    name: str, kind: str, settings: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": name, kind: settings or {}, **more}


def busy(*spans: tuple[float, float], name: str = "busy") -> dict[str, Any]:
    """Something more important than all others that runs in these spans."""
    groups = [{"at": f"{a}ms", "cost": f"{b - a}ms"} for a, b in spans]
    return {"name": name, "priority": 100, "groups": groups}


# -- periodic --------------------------------------------------------------------------------


def test_periodic_releases_a_group_every_period_with_its_deadline() -> None:
    settings = {"period": "10ms", "cost": "2ms", "offset": "3ms", "deadline": "6ms"}
    seen = see(task("p", "periodic", settings), until=40)
    assert seen.spans["p"] == [(3, 5), (13, 15), (23, 25), (33, 35)]
    assert seen.deadlines["p"] == [9, 19, 29, 39]


def test_periodic_is_due_within_its_period_and_stops_at_its_count() -> None:
    settings = {"period": "10ms", "cost": "2ms", "count": 2}
    seen = see(task("p", "periodic", settings), until=100)
    assert seen.spans["p"] == [(0, 2), (10, 12)]
    assert seen.deadlines["p"] == [10, 20]


def test_periodic_catches_up_with_releases_it_missed() -> None:
    # One thread: the job of 10 is submitted when that of 0 is dispatched, at 25; that of 20 when
    # the second is. Deadlines stay those of the releases.
    settings = {"period": "10ms", "cost": "1ms", "count": 4}
    seen = see(busy((0, 25)), task("p", "periodic", settings), until=40)
    assert seen.spans["p"] == [(25, 26), (26, 27), (27, 28), (30, 31)]
    assert seen.submitted_at["p"] == [0, 25, 26, 30]
    assert seen.deadlines["p"] == [10, 20, 30, 40]


# -- greedy and bombs ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["prt", "ht", "fifo"])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_greedy_has_never_more_than_its_depth_online(policy: str, depth: int) -> None:
    greedy = task("g", "greedy", {"cost": ["1ms", "3ms"], "depth": depth}, policy=policy)
    other = task("o", "greedy", {"cost": "2ms", "depth": 3}, policy=policy)
    seen = see(greedy, other, until=100)
    assert seen.most_online["g"] == (1 if policy == "prt" else depth)
    assert seen.spans["g"]


def test_greedy_keeps_the_gpu_full() -> None:
    seen = see(task("g", "greedy", {"cost": "2ms"}), until=10)
    assert seen.spans["g"] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]


def test_greedy_works_on_its_cpu_between_submissions() -> None:
    # Depth 1: the next is prepared when the last is done.
    seen = see(task("g", "greedy", {"cost": "2ms", "cpu": "1ms", "count": 3}), until=20)
    assert seen.spans["g"] == [(0, 2), (3, 5), (6, 8)]
    # Depth 2: while the first runs, the second is prepared; then one whenever one is done.
    deep = {"cost": "2ms", "cpu": "1ms", "count": 3, "depth": 2}
    seen = see(task("g", "greedy", deep, policy="fifo"), until=20)
    assert seen.spans["g"] == [(0, 2), (2, 4), (4, 6)]


def test_greedy_costs_vary_within_their_bounds() -> None:
    seen = see(task("g", "greedy", {"cost": ["1ms", "2ms"]}), until=300)
    costs = [round(end - start, 6) for start, end in seen.spans["g"]]
    assert all(1 <= cost <= 2 for cost in costs)
    assert min(costs) < 1.1
    assert max(costs) > 1.9


def test_a_bomb_fills_the_queue_of_a_driver_without_a_manager() -> None:
    # 32 groups of 1 ms are online when the game's arrives at 0.5.
    bomb = task("bomb", "bomb", policy="fifo")
    victim = {"name": "v", "policy": "fifo", "groups": [{"at": "0.5ms", "cost": "1ms"}]}
    seen = see(bomb, victim, until=50)
    assert seen.most_online["bomb"] == 32
    assert seen.spans["v"] == [(32, 33)]


# -- programs with frames --------------------------------------------------------------------


def test_a_widget_draws_one_frame_after_the_other() -> None:
    # 0.5 ms of CPU and 2 ms of GPU a frame, one at a time: 400 a second.
    seen, outcome = run(task("w", "widget"), until=1000)
    assert seen.spans["w"][:2] == [(0.5, 2.5), (3, 5)]
    assert outcome.statistics.fps("w") == 400


def test_a_widget_ahead_of_the_screen_overlaps_cpu_and_gpu() -> None:
    # Two frames ahead: the next is prepared while the last is drawn, so only the GPU counts.
    settings = {"cpu": "1ms", "cost": "2ms", "ahead": 2}
    seen = see(task("w", "widget", settings), until=20)
    assert seen.spans["w"][:4] == [(1, 3), (3, 5), (5, 7), (7, 9)]


def test_a_frame_of_several_groups_is_shown_when_its_last_is_done() -> None:
    settings = {"groups": 3, "cost": "1ms", "cpu": "0ms", "count": 2}
    seen = see(task("w", "widget", settings), until=20)
    assert seen.spans["w"] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert seen.shown_at["w"] == [3, 6]


def test_a_frame_rate_is_a_ceiling() -> None:
    seen, outcome = run(task("w", "widget", {"fps": 50}), until=1000)
    assert outcome.statistics.fps("w") == 50
    assert seen.spans["w"][1] == (20.5, 22.5)


@pytest.mark.parametrize("seconds", [1, 10])
def test_a_video_alone_shows_24_frames_a_second(seconds: int) -> None:
    _, outcome = run(task("v", "video"), until=1000 * seconds)
    assert outcome.statistics.by_name()["v"].frames == 24 * seconds
    assert outcome.statistics.fps("v") == 24


def test_a_video_that_was_held_up_drops_no_frame() -> None:
    # Held up for half a second, it shows what is due one after the other, 6 ms each (2 CPU, 4
    # GPU), and is back in time: 24 frames in the first second.
    seen = see(busy((0, 500)), task("v", "video"), until=1000)
    shown = seen.shown_at["v"]
    assert shown[:3] == [504, 510, 516]
    assert len(shown) == 24
    assert shown[-1] == pytest.approx(23 * 1000 / 24 + 6, abs=1e-5)


def test_a_games_frames_follow_a_scene() -> None:
    settings = {"groups": [4, 12], "cost": "0.1ms", "cpu": "0ms", "ahead": 1}
    seen = see(task("g", "game", settings), until=2000)
    ends = [end for _, end in seen.spans["g"]]
    frames = [0, *(ends.index(at) + 1 for at in seen.shown_at["g"])]
    sizes = [after - before for before, after in pairwise(frames)]
    assert all(4 <= size <= 12 for size in sizes)
    assert len(set(sizes)) > 4, "the scene changes"
    steps = [abs(after - before) for before, after in pairwise(sizes)]
    assert max(steps) <= 1, "but slowly: a step is at most 60 of 1000, half a group"


@pytest.mark.parametrize("kind", ["game", "greedy"])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(kind: str) -> None:
    settings = {"cost": ["1ms", "3ms"]}
    first, again, other = (
        see(task("g", kind, settings), until=100, seed=seed).spans["g"] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_two_tasks_of_one_scenario_do_not_draw_the_same_numbers() -> None:
    settings = {"cost": ["1ms", "3ms"]}
    tasks = [task(name, "greedy", settings) for name in "ab"]
    seen = see(*tasks, until=100, device={"count": 2})
    assert seen.spans["a"] != seen.spans["b"]


def test_adding_a_task_does_not_change_what_another_draws() -> None:
    alone = see(task("g", "greedy", {"cost": ["1ms", "3ms"]}), until=50)
    beside = see(
        task("first", "video", priority=-1),
        task("g", "greedy", {"cost": ["1ms", "3ms"]}, priority=1),
        until=50,
    )
    assert beside.spans["g"] == alone.spans["g"]


# -- servers ---------------------------------------------------------------------------------


def server(**settings: Any) -> dict[str, Any]:
    return task("x", "serves", settings, priority=50)


def widget(name: str, cpu: float = 1, cost: float = 2, **more: Any) -> dict[str, Any]:
    settings = {"cpu": f"{cpu}ms", "cost": f"{cost}ms", **more.pop("settings", {})}
    return task(name, "widget", settings, server="x", **more)


def test_a_widget_with_a_server_waits_until_its_frame_is_on_the_screen() -> None:
    # 1 CPU, 1-3 rendered, 3-4 blitted; answered at 4, the next one begins: period 4.
    seen = see(server(blit="1ms"), widget("w"), until=12)
    assert seen.spans["w"] == [(1, 3), (5, 7), (9, 11)]
    assert seen.spans["x"] == [(3, 4), (7, 8), (11, 12)]
    assert seen.shown_at["w"] == [4, 8, 12]


def test_a_client_may_say_what_its_blit_costs() -> None:
    seen = see(server(blit="1ms"), widget("w", settings={"blit": "3ms"}), until=12)
    assert seen.spans["x"] == [(3, 6), (9, 12)]


def test_a_server_may_blit_in_several_groups() -> None:
    seen = see(server(blit="1ms", groups=4), widget("w"), until=4)
    assert [round(end - start, 6) for start, end in seen.spans["x"]] == [0.25] * 4
    assert seen.shown_at["w"] == [4]


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_server_submits_its_blit_when_the_frame_is_rendered_and_not_before(gpus: int) -> None:
    # The request is sent at 1, with the dispatch; a second GPU is idle then, and stays so until 3.
    seen = see(server(blit="1ms"), widget("w"), until=8, device={"count": gpus})
    assert seen.submitted_at["x"] == [3, 7]
    assert seen.spans["x"] == [(3, 4), (7, 8)]


def test_a_server_that_waits_for_a_frame_does_not_hold_up_the_gpu() -> None:
    # w's frame is rendered at 7: o runs in between though the server is more important.
    other = {"name": "o", "priority": 3, "groups": [{"at": "1.5ms", "cost": "2ms"}] * 2}
    rendering = widget("w", cost=2, settings={"groups": 2, "count": 1}, priority=1)
    seen = see(server(blit="1ms"), rendering, other, until=20)
    assert seen.spans["w"] == [(1, 3), (7, 9)]
    assert seen.spans["o"] == [(3, 5), (5, 7)]
    assert seen.spans["x"] == [(9, 10)]


@pytest.mark.parametrize(("blit_ns", "groups"), [(10, 3), (1000, 7), (999_999, 4), (5, 5)])
def test_the_groups_of_a_blit_come_to_the_blit(blit_ns: int, groups: int) -> None:
    client = widget("w", settings={"count": 1})
    seen, outcome = run(server(blit=f"{blit_ns}ns", groups=groups), client, until=5)
    assert len(seen.spans["x"]) == groups
    assert outcome.statistics.by_name()["x"].gpu_ns == blit_ns


@pytest.mark.parametrize("order", ["fifo", "priority"])
def test_equal_requests_are_served_in_the_order_in_which_they_came(order: str) -> None:
    # All ask at 1, 2, 3 and 4, while the first is served from 1 to 6, in another order than that of
    # the file.
    asks = {"d": 3, "b": 1, "a": 4, "c": 2}
    clients = [
        task(name, "xclient", {"cpu": f"{at}ms", "cost": "5ms", "count": 1}, server="x")
        for name, at in asks.items()
    ]
    seen = see(server(order=order), *clients, until=30)
    assert {name: at for name, (at,) in seen.shown_at.items()} == {
        "b": 6,
        "c": 11,
        "d": 16,
        "a": 21,
    }


def test_a_server_serves_one_request_at_a_time() -> None:
    # a's frame is drawn from 1 to 2 and blitted in three groups, before b's because the server is
    # more important. b's is drawn from 5 to 7 and blitted from 7 to 10; a's next (6 to 10) follows.
    seen = see(server(blit="3ms", groups=3), widget("a", cost=1), widget("b", cost=2), until=14)
    assert seen.spans["x"] == [(at, at + 1) for at in (2, 3, 4, 7, 8, 9, 11, 12, 13)]
    assert seen.shown_at == {"a": [5, 14], "b": [10]}


@pytest.mark.parametrize(
    ("order", "served"),
    [("fifo", ["first", "low", "mid", "high"]), ("priority", ["first", "high", "mid", "low"])],
)
def test_a_server_takes_requests_as_they_come_or_by_priority(order: str, served: list[str]) -> None:
    # first is served from 0 to 5; the others ask at 1, 2 and 3, then take 2 each.
    clients = [
        task(
            name,
            "xclient",
            {"cpu": f"{ask}ms", "cost": f"{cost}ms", "count": 1},
            server="x",
            priority=priority,
        )
        for name, ask, cost, priority in (
            ("first", 0, 5, 0),
            ("low", 1, 2, 1),
            ("mid", 2, 2, 2),
            ("high", 3, 2, 3),
        )
    ]
    seen = see(server(order=order), *clients, until=20)
    assert {name: seen.shown_at[name] for name in served} == dict(
        zip(served, ([5], [7], [9], [11]), strict=True)
    )


def test_an_xclient_never_touches_the_gpu_itself() -> None:
    # 1 CPU, 2 on the server, then the next.
    client = task("c", "xclient", {"cpu": "1ms", "cost": "2ms"}, server="x")
    seen, outcome = run(server(), client, until=9)
    assert not seen.spans["c"]
    assert seen.spans["x"] == [(1, 3), (4, 6), (7, 9)]
    assert outcome.statistics.by_name()["c"].frames == 3
    assert outcome.statistics.by_name()["c"].gpu_ns == 0


@pytest.mark.parametrize(("pix", "done"), [(True, 4), (False, 13)])
def test_with_pix_the_server_works_at_its_clients_priority(pix: bool, done: float) -> None:
    # The frame is rendered at 3. mid wants the GPU from 2 on for 3 x 3 ms: the server, below it,
    # comes first only through the client.
    x = task("x", "serves", {"blit": "1ms", "pix": pix}, priority=0)
    mid = {"name": "mid", "priority": 2, "groups": [{"at": "2ms", "cost": "3ms"}] * 3}
    seen = see(x, mid, widget("w", priority=3), until=13)
    assert seen.shown_at["w"][0] == done


@pytest.mark.parametrize(("rix", "shown"), [(True, [5, 10, 15, 20]), (False, [5, 22])])
def test_with_rix_the_server_works_on_its_clients_budget(rix: bool, shown: list[float]) -> None:
    # The server has 2 of 20 and a blit costs 2; a frame is 1 CPU and 2 GPU. At 5 the server's own
    # budget is used up. Without RIX the frame that is drawn at 8 waits for 20; with it the client,
    # which has 18 of 20, pays: 18 - 2 (its own group) = 16, 12, 8, 4 after each frame.
    reserve = {"policy": "pe", "capacity": "2ms", "period": "20ms"}
    x = task("x", "serves", {"blit": "2ms", "rix": rix}, priority=9, reserve=reserve)
    ample = {"policy": "pe", "capacity": "18ms", "period": "20ms"}
    seen = see(x, widget("w", priority=3, reserve=ample), until=22)
    assert seen.shown_at["w"] == shown


# -- deaths ----------------------------------------------------------------------------------

INSTANTS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.25, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 8.0]


def household(order: str) -> list[dict[str, Any]]:
    """A server with reserve and both protocols, two widgets, an xclient and a greedy one."""
    reserve = {"policy": "pe", "capacity": "6ms", "period": "20ms"}
    return [
        task(
            "x",
            "serves",
            {"blit": "1ms", "groups": 2, "order": order, "pix": True, "rix": True},
            reserve=reserve,
        ),
        widget("a", priority=3, reserve=reserve),
        widget("b", priority=2, settings={"ahead": 2}),
        task("c", "xclient", {"cpu": "1ms", "cost": "1ms"}, server="x", priority=1),
        task("g", "greedy", {"cost": "0.5ms", "depth": 2}, policy="ht", priority=-1),
    ]


@pytest.mark.parametrize("order", ["fifo", "priority"])
@pytest.mark.parametrize("victim", ["a", "b", "c", "g"])
def test_when_a_client_dies_the_others_go_on(victim: str, order: str) -> None:
    for at in INSTANTS:
        seen = see(*household(order), until=200, event=[{"at": f"{at}ms", "kill": victim}])
        for name in {"a", "b", "c"} - {victim}:
            assert seen.shown_at[name][-1] > 150, f"{name} after {victim} died at {at}"
        assert all(start <= at for start, _ in seen.spans[victim]), "a dead task sends nothing"


@pytest.mark.parametrize("order", ["fifo", "priority"])
def test_when_the_server_dies_its_clients_go_on(order: str) -> None:
    for at in INSTANTS:
        seen = see(*household(order), until=200, event=[{"at": f"{at}ms", "kill": "x"}])
        for name in ("a", "b"):
            assert seen.spans[name][-1][1] > 150, f"{name} after the server died at {at}"
        assert all(start <= at for start, _ in seen.spans["x"])


@pytest.mark.parametrize(
    "client",
    [
        task("c", "xclient", {"cost": "1ms"}, server="x"),
        task("c", "widget", {"cost": "1ms", "cpu": "0ms"}, server="x", policy="ht"),
    ],
    ids=["xclient", "widget"],
)
def test_time_goes_on_for_a_client_without_cpu_time_whose_server_died(
    client: dict[str, Any],
) -> None:
    other = {"name": "o", "priority": 9, "groups": [{"at": "9ms", "cost": "1ms"}]}
    seen = see(server(), client, other, until=20, event=[{"at": "5ms", "kill": "x"}])
    assert [end - start for start, end in seen.spans["o"]] == [1]


def test_a_frame_that_nobody_blitted_was_not_shown() -> None:
    # The server dies at 3.5, in the middle of the first blit: no frame reached the screen.
    seen = see(server(blit="1ms"), widget("w"), until=20, event=[{"at": "3.5ms", "kill": "x"}])
    assert seen.shown_at["w"] == []
    assert seen.spans["w"][-1][1] > 15


def test_everybody_may_die_at_once() -> None:
    names = [entry["name"] for entry in household("fifo")]
    events = [{"at": "4ms", "kill": name} for name in names]
    seen = see(*household("fifo"), until=50, event=events)
    assert all(start <= 4 for spans in seen.spans.values() for start, _ in spans)


def test_a_second_death_and_a_focus_on_the_dead_mean_nothing() -> None:
    events = [{"at": f"{at}ms", what: "a"} for at, what in ((1, "kill"), (2, "kill"), (3, "focus"))]
    seen = see(task("a", "widget"), task("b", "widget"), until=20, event=events)
    assert seen.shown_at["b"]


def test_a_task_that_dies_at_the_gate_leaves_no_hole() -> None:
    # a waits from 0 and dies at 2; at 5 b goes.
    a = {"name": "a", "priority": 2, "groups": [{"at": "0ms", "cost": "9ms"}]}
    b = {"name": "b", "priority": 1, "groups": [{"at": "1ms", "cost": "1ms"}]}
    seen = see(busy((0, 5)), a, b, until=10, event=[{"at": "2ms", "kill": "a"}])
    assert seen.spans["b"] == [(5, 6)]
    assert not seen.spans["a"]


def test_a_group_that_executes_when_its_task_dies_is_finished() -> None:
    a = {"name": "a", "priority": 2, "groups": [{"at": "0ms", "cost": "5ms"}] * 2}
    b = {"name": "b", "priority": 1, "groups": [{"at": "1ms", "cost": "1ms"}]}
    seen = see(a, b, until=10, event=[{"at": "2ms", "kill": "a"}])
    assert seen.spans == {"a": [(0, 5)], "b": [(5, 6)]}


def test_all_of_it_is_repeatable() -> None:
    events = [{"at": "20ms", "kill": "b"}, {"at": "40ms", "focus": "a"}]
    first, again = (see(*household("priority"), until=100, event=events) for _ in range(2))
    assert first.spans == again.spans
    assert first.shown_at == again.shown_at
