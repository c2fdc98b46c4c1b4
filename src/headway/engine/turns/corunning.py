"""Co-running: whether others may be on the GPU during a client's jobs, or the client has the GPU
for itself.

A job that is bound by the GPU is only fast if others are off it: they are gated in time. One that
is bound by its CPU loses little to others where the hardware runs both side by side, as under MPS,
and gating them would cost them much for nothing: they stay, as far as the task can stand that. In
time slices, without MPS, every one of its many synchronisations would wait for a slice: there it
keeps the GPU while it has a job.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from headway.engine.jobs import Job
from headway.engine.shares import WHOLE_PERMILLE
from headway.engine.turns.client import Client
from headway.engine.turns.port import JobReport

LEAST_TIME = 125
"""Of a job's time others have so many thousandths at least, or none: they would get next to nothing
done, and what they have in flight at the end of each bit costs the job as much as ever."""
GPU_BOUND = 0.5
"""Who waits for the GPU for more than this part of its jobs is bound by the GPU."""


def level_of(client: Client) -> float:
    """For which part of the time of the client's jobs others may be on the GPU beside it."""
    task, share = client.task, client.jobs.usage.gpu_share
    if task is None or not client.company.side_by_side or not task.policy.at_once:
        return 0.0
    if share is None or share > GPU_BOUND:
        return 0.0
    level = client.company.controller.level(task)
    if client.company.in_space:
        return 1.0 if level else 0.0
    return level / WHOLE_PERMILLE if level >= LEAST_TIME else 0.0


def mixes_with(client: Client) -> Hashable | None:
    """With which equals it need not take turns: where the hardware runs programs side by side, with
    those of its own user. So the GPU is not idle while one of them copies or waits. Nobody can tell
    their times apart, so whoever has a budget takes turns."""
    task = client.task
    if task is None or task.reserve is not None or not task.policy.at_once:
        return None
    return ("user", client.user) if client.company.side_by_side and client.turns else None


def notice(online: Collection[Client], now_ns: int) -> None:
    """Who is on the GPU with others that may go on there."""
    going = [client for client in online if client.goes_on]
    for client in online:
        company = client.company
        if client.goes_on and len(going) > 1:
            company.until_ns = None
        elif company.until_ns is None:
            company.until_ns = now_ns


def left(client: Client, now_ns: int, *, waited_for: bool) -> None:
    """The client is not on the GPU any more, perhaps as others waited for that."""
    if client.company.until_ns is None:
        client.company.until_ns = now_ns
    if waited_for:
        client.company.lost_ns = now_ns


def judge(
    client: Client, number: int, report: JobReport, goal: float, now_ns: int | None = None
) -> Job:
    """A job that is over: how it went, and what is learned from it. `now_ns`: when that is; several
    jobs may have ended since the last look."""
    assert client.task is not None
    company, usage = client.company, client.jobs.usage
    had = company.until_ns is None or company.until_ns > report.begun_ns
    response_ns = report.ended_ns - report.begun_ns
    waited_ns = report.waited_ns + report.held_ns
    deadline_ns = report.deadline_ns or client.deadline_ns
    slowdown = usage.slowdown(response_ns, waited_ns, report.groups)
    missed = slowdown is not None and had and slowdown > goal
    if deadline_ns is not None:
        missed = response_ns > deadline_ns
    lost = report.begun_ns < company.lost_ns < report.ended_ns
    if not had and not lost and report.groups:
        usage.alone(response_ns, waited_ns, report.groups)
    job = Job(
        client.task,
        number,
        report.begun_ns,
        report.ended_ns,
        deadline_ns,
        waited_ns,
        slowdown,
        missed,
    )
    _tell(client, job, goal, now_ns)
    return job


def _tell(client: Client, job: Job, goal: float, now_ns: int | None) -> None:
    """Have the controller hear of a job, unless it began while others still had what they had
    before the last change: of what they have now it says nothing."""
    company, task = client.company, client.task
    assert task is not None
    if job.begun_ns < company.settled_ns:
        return
    before = company.controller.level(task)
    company.controller.job_ended(job, goal)
    if now_ns is not None and company.controller.level(task) != before:
        company.settled_ns = now_ns


def judge_frame(
    client: Client, number: int, report: JobReport, goal: float, now_ns: int | None = None
) -> Job:
    """A frame that was shown. Nobody knows how long the GPU itself took for it, so nothing is said
    of how much slower than alone it was: it is a miss if the program was told a period or deadline,
    and so a frame rate, that frames of this length do not keep."""
    assert client.task is not None
    response_ns, deadline_ns = report.ended_ns - report.begun_ns, client.deadline_ns
    job = Job(
        client.task,
        number,
        report.begun_ns,
        report.ended_ns,
        deadline_ns,
        report.held_ns,
        missed=deadline_ns is not None and response_ns > deadline_ns,
    )
    if deadline_ns is not None:
        _tell(client, job, goal, now_ns)
    return job
