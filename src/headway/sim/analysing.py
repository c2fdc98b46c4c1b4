"""From scenario files to what the analyses bound, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from headway.engine.analysis.frames import Frame, Serving
from headway.engine.analysis.gpusync import MIGRATION, UNITS, analyse
from headway.engine.analysis.groups import GroupTask, analyse_groups
from headway.engine.analysis.omlp import Sharer, kx_omlp
from headway.engine.analysis.verdicts import OWN, Verdict
from headway.engine.locks.system import DeviceWork, LockTask
from headway.engine.model import BACKGROUND_LEVEL
from headway.engine.reserves import ReserveSpec
from headway.sim.gpusync.plan import GpuSyncPlan, TaskPlan
from headway.sim.outcome import add_task, new_engine
from headway.sim.programs.frames import Frames, XClient
from headway.sim.programs.greedy import Greedy
from headway.sim.programs.listed import Listing
from headway.sim.programs.periodic import Periodic
from headway.sim.programs.recorded import Recorded
from headway.sim.programs.serves import Server
from headway.sim.scenario import Scenario
from headway.sim.scenario import TaskPlan as PlainTask

POLICIES = ("prt", "ht")


@dataclass(frozen=True, slots=True)
class Analysis:
    """Verdicts on a file."""

    verdicts: list[Verdict]
    remarks: list[str]
    """What the bounds do not cover."""


# -- machines with tokens --------------------------------------------------------------------


def worst_case(entry: TaskPlan) -> LockTask:
    """A task whose jobs are all as long as its longest."""
    task, variation = entry.task, entry.variation
    longer = Fraction(1) + 3 * Fraction(str(variation.noise))
    if variation.aberrant_every_ns:
        longer *= variation.aberrant_factor

    def times(ns: int) -> int:
        return -(-ns * longer.numerator // longer.denominator)

    work = task.work
    if work is not None:
        factor = int(longer) if longer > 2 else 1  # copies of aberrant jobs, noise included
        work = DeviceWork(
            tuple(times(ns) for ns in work.kernels_ns),
            work.input_bytes * factor,
            work.output_bytes * factor,
            work.state_bytes,
        )
    least = Fraction(str(variation.shortest)) * (1 - 3 * Fraction(str(variation.noise))) / longer
    return replace(
        task,
        cpu_ns=times(task.cpu_ns),
        work=work,
        least=max(least, Fraction(0)),
        jitter_ns=variation.jitter_ns,
    )


def analyse_machine(plan: GpuSyncPlan) -> Analysis:
    """Bounds for a scenario with `[gpusync]`."""
    remarks = []
    verdicts = analyse(plan.system, [worst_case(entry) for entry in plan.tasks])
    if any(entry.variation.aberrant_every_ns for entry in plan.tasks):
        remarks.append("aberrant jobs are counted in full, whatever budgets do")
    return Analysis(verdicts, remarks)


# -- one GPU ---------------------------------------------------------------------------------


def analyse_scenario(scenario: Scenario) -> Analysis:
    """Bounds for a scenario without tokens."""
    remarks = []
    if scenario.events:
        remarks.append("events are not counted: the bounds hold until the first one")
    tasks = [_group_task(scenario, plan, reserve) for plan, reserve in _reserves(scenario)]
    refused = _refusal(scenario)
    if refused:
        tasks = [replace(task, refused=refused) for task in tasks]
    others = [task.name for task in tasks if task.period_ns is None]
    if others:
        remarks.append(f"without a period there is no response time to bound: {', '.join(others)}")
    return Analysis(analyse_groups(tasks), remarks)


def _refusal(scenario: Scenario) -> str:
    """Why nothing can be bounded."""
    if scenario.device.count > 1:
        return f"{scenario.device.count} GPUs without tokens; the analysis knows one"
    wrong = sorted({task.policy for task in scenario.tasks} - set(POLICIES))
    if wrong:
        return f"the policy {wrong[0]} is not analysed, {' and '.join(POLICIES)} are"
    if any(getattr(setting, "holdoff_ns", 0) for setting in scenario.settings.named):
        return "a hold-off keeps the GPU for tasks that may not come"
    device = scenario.device
    free = not device.charges_overhead and (device.switch_ns or device.decide_ns)
    if free and any(task.reserve.spec is not None for task in scenario.tasks):
        return "nobody is charged for switches and decisions, so reserves do not bound what runs"
    serves = any(isinstance(task.program, Server) for task in scenario.tasks)
    if serves and any(task.policy != "prt" for task in scenario.tasks):
        return "beside a server the analysis knows the policy prt only"
    return ""


def _reserves(scenario: Scenario) -> list[tuple[PlainTask, ReserveSpec | None]]:
    """Each task with the reserve that admission gives it."""
    engine = new_engine(scenario, scenario.settings)
    found: list[tuple[PlainTask, ReserveSpec | None]] = []
    for plan in scenario.tasks:
        task, _ = add_task(engine, plan)
        found.append((plan, None if task.reserve is None else task.reserve.spec))
    return found


def _group_task(scenario: Scenario, plan: PlainTask, reserve: ReserveSpec | None) -> GroupTask:
    program, device = plan.program, scenario.device
    in_background = reserve is not None and reserve == scenario.settings.background
    swing = Fraction(1) + Fraction(str(device.jitter))
    extra_ns = device.switch_ns + device.decide_ns

    def longest(cost_ns: int) -> int:
        return -(-cost_ns * swing.numerator // swing.denominator) + extra_ns

    cost_ns, depth = 1, 1
    total_ns = deadline_ns = period_ns = None
    frame, serving = None, None
    if isinstance(program, Periodic):
        cost_ns, period_ns, deadline_ns = program.cost_ns, program.period_ns, program.deadline_ns
    elif isinstance(program, Greedy):
        cost_ns, depth = program.longest_ns, program.depth
    elif isinstance(program, Listing):
        costs = program.costs_ns
        cost_ns, depth = max(costs, default=1), max(1, len(costs))
        total_ns = sum(map(longest, costs))
    elif isinstance(program, Recorded):
        cost_ns = program.longest_ns
    elif isinstance(program, Frames):
        frame, cost_ns = _frame(scenario, plan, program, longest)
        deadline_ns = period_ns = program.period_ns
    elif isinstance(program, Server):
        serving = Serving(program.by_rank, program.groups, program.pix, program.rix)
        clients = [c.program for c in scenario.tasks if c.program.server == plan.name]
        blits = [_blit(client, program) for client in clients if isinstance(client, Frames)]
        cost_ns = -(-max(blits, default=1) // program.groups)
    order_ns = reserve.period_ns if reserve is not None else program.period_ns
    return GroupTask(
        plan.name,
        BACKGROUND_LEVEL if in_background else plan.priority.level,
        "fixed" if in_background else plan.priority.name,
        plan.policy,
        longest(cost_ns),
        extra_ns,
        period_ns,
        deadline_ns,
        order_ns,
        reserve,
        depth,
        total_ns,
        _refused(plan, reserve, swing > 1),
        frame,
        serving,
    )


def _refused(plan: PlainTask, reserve: ReserveSpec | None, swings: bool) -> str:
    """Why there is no bound for this task, whatever the others do."""
    if isinstance(plan.program, Frames) and plan.program.limits.ahead > 1:
        return "it runs ahead of the screen"
    if reserve is None:
        return ""
    if reserve.shared is not None:
        return f"it shares its reserve ({reserve.shared}) with tasks that may use all of it"
    if reserve.kind == "ae" and reserve.predict != "exact":
        return "its reserve goes by predictions that may be wrong"
    if reserve.kind == "ae" and swings:
        return "with jitter its groups cost more than predicted"
    return ""


def _blit(client: Frames, server: Server) -> int:
    """What the server runs on the GPU for a frame of this client."""
    limits = client.limits
    if isinstance(client, XClient):
        return limits.cost_ns
    return server.blit_ns if limits.blit_ns is None else limits.blit_ns


def _frame(
    scenario: Scenario, plan: PlainTask, program: Frames, longest: Callable[[int], int]
) -> tuple[Frame, int]:
    """A frame of this task, and its longest group."""
    limits = program.limits
    server = next((task for task in scenario.tasks if task.name == program.server), None)
    blit_ns = 0
    if server is not None and isinstance(server.program, Server):
        groups = server.program.groups
        each_ns = -(-_blit(program, server.program) // groups)
        blit_ns = groups * longest(each_ns)
    draws = not isinstance(program, XClient)
    frame = Frame(
        limits.groups if draws else 0,
        limits.cpu_ns,
        limits.prepare_ns,
        limits.ahead,
        program.server,
        blit_ns,
    )
    return frame, limits.cost_ns if draws else 1


# -- another protocol ------------------------------------------------------------------------


def omlp_waits(plan: GpuSyncPlan, analysis: Analysis) -> dict[str, int]:
    """What each task would wait for its token under the clustered k-exclusion OMLP, with the
    sections and the response times (or else periods) that the analysis found."""
    verdicts = {verdict.task: verdict for verdict in analysis.verdicts}
    each = len(list(plan.system.clusters)) // (
        plan.system.clusters.cpus // plan.system.clusters.cpus_each
    )
    found: dict[str, int] = {}
    for cpus in sorted({entry.task.cpus for entry in plan.tasks}):
        here = [entry.task for entry in plan.tasks if entry.task.cpus == cpus]
        here.sort(key=lambda task: task.period_ns)
        sharers = []
        for task in here:
            verdict = verdicts[task.name]
            section_ns = sum(
                verdict.parts.get(part, 0) for part in (OWN, UNITS, MIGRATION)
            ) - _computing(plan, task)
            response_ns = verdict.bound_ns or task.period_ns
            requests = {task.devices: (1, section_ns)} if task.work is not None else {}
            sharers.append(Sharer(0, task.period_ns, response_ns, requests))
        tokens = plan.system.rho * plan.system.clusters.devices_each
        replicas = dict.fromkeys(range(cpus * each, (cpus + 1) * each), tokens)
        waits = kx_omlp(sharers, [plan.system.clusters.cpus_each], replicas)
        for task, wait in zip(here, waits, strict=True):
            found[task.name] = wait.total_ns
    return found


def _computing(plan: GpuSyncPlan, task: LockTask) -> int:
    """The CPU time of a job at its longest, outside its section."""
    entry = next(entry for entry in plan.tasks if entry.task is task)
    return worst_case(entry).cpu_ns
