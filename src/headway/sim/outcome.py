"""Run a scenario: builds the engine and the programs it describes and simulates them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.engine.admission import Answer
from headway.engine.core import Engine
from headway.engine.cost_models.exact import Exact
from headway.engine.cost_models.recent import Recent
from headway.engine.events import Observer
from headway.engine.model import Task
from headway.engine.settings import DEFAULT_HOLDOFF_NS, Settings, with_holdoff
from headway.engine.spec import Spec
from headway.sim.cuda.program import DoneJob
from headway.sim.cuda.run import CudaRun, CudaStatistics, Happening
from headway.sim.programs import Program
from headway.sim.programs.cuda import CudaProgram
from headway.sim.programs.serves import Server
from headway.sim.scenario import EventPlan, Scenario, TaskPlan
from headway.sim.simulator import Action, Progress, Simulator
from headway.trace.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    statistics: Statistics
    complete: bool
    turned_away: dict[str, str]
    """Tasks whose reserve was not admitted, and why."""
    jobs: dict[str, list[DoneJob]] = field(default_factory=dict)
    """Of CUDA programs, by the names of their tasks."""


def simulate(
    scenario: Scenario,
    *,
    observers: Iterable[Observer] = (),
    spec: Spec | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a scenario to its end. With `spec`, policies, priorities and reserves come from there,
    and a task that it does not name is Background, as on a live system."""
    takes_turns = scenario.cuda is not None
    statistics = CudaStatistics() if takes_turns else Statistics()
    statistics.gpus = scenario.device.count
    settings = scenario.settings if spec is None else spec.settings
    engine = new_engine(scenario, settings, (statistics, *observers))
    programs: dict[Task, Program] = {}
    turned_away: dict[str, str] = {}
    for plan in scenario.tasks:
        task, answer = add_task(engine, plan, spec)
        programs[task] = plan.program
        if not answer.accepted:
            turned_away[plan.name] = answer.why
    if isinstance(statistics, CudaStatistics) and scenario.cuda is not None:
        plans = {t: p.plan for t, p in programs.items() if isinstance(p, CudaProgram)}
        happenings = [_happening(event, turned_away) for event in scenario.events]
        run = CudaRun(engine, plans, scenario.cuda, statistics, happenings)
        complete = run.run(scenario.duration_ns, progress)
        return Outcome(statistics, complete, turned_away, statistics.jobs)
    actions = [_action(event, turned_away) for event in scenario.events]
    simulator = Simulator(engine, programs, scenario.device, actions)
    complete = simulator.run(scenario.duration_ns, progress=progress)
    return Outcome(statistics, complete, turned_away)


def new_engine(
    scenario: Scenario, settings: Settings, observers: Iterable[Observer] = ()
) -> Engine:
    """The engine that a scenario's tasks come to."""
    takes_turns = scenario.cuda is not None
    return Engine(
        gpus=scenario.device.count,
        ticks=scenario.cuda is not None and scenario.cuda.management.tick_ns is not None,
        limit=settings.limit,
        longest_ns=settings.longest_ns,
        background=settings.background,
        named=with_holdoff(settings, DEFAULT_HOLDOFF_NS) if takes_turns else settings.named,
        observers=observers,
        cost_model=Recent.name if takes_turns else Exact.name,
    )


def add_task(engine: Engine, plan: TaskPlan, spec: Spec | None = None) -> tuple[Task, Answer]:
    """A task of a scenario comes to the engine, and admission answers about its reserve."""
    program = plan.program
    pix = isinstance(program, Server) and program.pix
    rix = isinstance(program, Server) and program.rix
    policy, priority, reserve, predict = plan.policy, plan.priority, plan.reserve, plan.predict
    if spec is not None:
        entry = spec.match(plan.name)
        if entry is None:
            return engine.add_background_task(plan.name, 0), Answer(True)
        policy, priority, reserve = entry.policy, entry.priority, entry.reserve
        predict = entry.predict
    if reserve.background:
        return engine.add_background_task(plan.name, 0, policy=policy), Answer(True)
    return engine.add_task(
        plan.name,
        0,
        policy=policy,
        priority=priority,
        reserve=reserve.spec,
        period_ns=program.period_ns,
        pix=pix,
        rix=rix,
        predict=predict,
    )


def _happening(event: EventPlan, turned_away: dict[str, str]) -> Happening:
    def act(run: CudaRun) -> None:
        engine, now_ns = run.engine, run.clock.now_ns
        task = engine.tasks.get(event.task)
        if task is None:  # it has ended
            return
        if event.kind == "kill":
            run.kill(task)
            return

        def change() -> None:
            if event.kind == "focus":
                engine.set_foreground([task], now_ns)
            _change(engine, task, event, turned_away, now_ns)

        run.change(task, change)

    return Happening(event.at_ns, event.task, act)


def _change(
    engine: Engine, task: Task, event: EventPlan, turned_away: dict[str, str], now_ns: int
) -> None:
    if event.priority is not None:
        engine.set_priority(task, event.priority, now_ns)
    if event.reserve.background:
        engine.make_background(task, now_ns)
    elif event.reserve.spec is not None or event.reserve.none:
        answer = engine.set_reserve(task, event.reserve.spec, now_ns)
        if not answer.accepted:
            turned_away[event.task] = answer.why


def _action(event: EventPlan, turned_away: dict[str, str]) -> Action:
    def act(simulator: Simulator) -> None:
        engine, now_ns = simulator.engine, simulator.now_ns
        task = engine.tasks.get(event.task)
        if task is None:  # it died before
            return
        if event.kind == "focus":
            engine.set_foreground([task], now_ns)
        elif event.kind == "kill":
            simulator.kill(task)
        _change(engine, task, event, turned_away, now_ns)

    return Action(event.at_ns, act)
