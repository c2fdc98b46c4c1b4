"""The programs and machines of the two papers, as the simulator sees them.

The parameters were chosen once for each machine and serve all of its figures. Where a paper states
a number, its section is named; everything else is marked "chosen" with the reason. The papers give
frame-rates relative to each other and hardly any absolute costs, so most of it had to be chosen. It
was searched for: among sizes that hardware of 2010 could have, those with which the most statements
of a paper come out, all figures at once. So a number that agrees shows that the mechanisms can
bring it about with one set of programs, not that the programs were these; and what does not come
out with any set that was tried says something about the model.

Times are whole microseconds; a pair is the range from which a value is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.engine.units import NS_PER, format_ns
from headway.sim.papers.results import Scenario

Range = tuple[int, int]
Reserve = dict[str, str]
Task = dict[str, Any]

X_HIGH = 9
"""The X server above everything (TimeGraph §6.1, PIX/RIX §2)."""
FOREGROUND = 5
BACKDROP = 1
"""What competes with the program that matters."""


def about(mean_us: int, swing: float) -> Range:
    """From `swing` below the mean to `swing` above it."""
    return round(mean_us * (1 - swing)), round(mean_us * (1 + swing))


@dataclass(frozen=True, slots=True)
class Machine:
    """A graphics card with its driver, and the X server that runs on it."""

    card: str
    decide_us: int
    """Of the GPU, per decision that keeps it waiting."""
    switch_us: int
    """Of the GPU, when it goes from one channel to another, managed or not."""
    submit_us: int
    """Of the program's CPU, per group that is submitted to a manager."""
    blit_us: int
    """GPU time to bring one frame to the screen."""
    blit_groups: int
    order: str
    """In which the X server takes requests."""


@dataclass(frozen=True, slots=True)
class Frames:
    """A program that draws frames: how many groups each, and what they cost.

    It does not begin a frame before the last one is on the screen: a swap blocks until the X server
    has answered (PIX/RIX §3 and Figure 6, the same Gallium3D as TimeGraph's), so `ahead` stays 1.
    """

    kind: str
    title: str
    groups: Range
    cost_us: Range
    """GPU time of a group."""
    cpu_us: Range
    """CPU time before each group."""
    prepare_us: Range
    """CPU time before a frame's first group, on top: game logic, culling, animation."""
    fps: int | None = None


# -- TimeGraph: GeForce 9800 GT, Xeon E5504, Linux 2.6.35, 1280 x 1024 (§6) ----------------------

TIMEGRAPH = Machine(
    card="GeForce 9800 GT",  # §6
    # Chosen: interrupt, wake-up and submission on a 2 GHz CPU. Figure 16 is an upper bound for it:
    # 15-30 times a 1 ms tick leaves a group at most 67 us, decision included.
    decide_us=50,
    switch_us=30,  # chosen: a channel switch is taken to be short beside a group
    # Chosen: §6.3 says that the manager runs upon every arrival, which is on the program's CPU.
    submit_us=20,
    blit_us=950,  # chosen: a 1280 x 1024 frame is read and written, with the 2-D engine's overhead
    blit_groups=5,  # chosen: clip rectangles and state, which the driver flushes in pieces
    order="fifo",  # chosen: an unmodified X server
)

# Chosen, all four: frames of some fifty small groups, at about 60 frames a second alone. What tells
# the games apart is how near CPU and GPU time of a frame are to each other: UT2004's are nearly
# equal, so its GPU falls idle most often; World of Padman and Urban Terror keep it busiest.
GAMES = {
    "openarena": Frames(
        "game", "OpenArena", (37, 51), about(240, 0.6), about(219, 0.6), about(3400, 0.2)
    ),
    "padman": Frames(
        "game", "World of Padman", (36, 48), about(280, 0.8), about(232, 0.6), about(3800, 0.2)
    ),
    "urbanterror": Frames(
        "game", "Urban Terror", (39, 53), about(250, 0.75), about(207, 0.6), about(3400, 0.2)
    ),
    "ut2004": Frames(
        "game", "UT2004", (48, 64), about(230, 0.5), about(220, 0.6), about(3600, 0.2)
    ),
}

# Chosen: a small scene in three groups (§6.2 speaks of a reasonable number of methods), each with
# about as much CPU time as GPU time before it: §6.1 says that the widget uses the GPU less than the
# games do and depends on the CPU. A tenth of the GPU gives it more than 25 frames a second (§6.1),
# so a frame takes less than 4 ms of the GPU.
WIDGET = Frames("widget", "Engine", (3, 3), about(1100, 0.05), (1200, 1200), about(1200, 0.2))

# Chosen: some dozens of full-screen clears in one group, and a ring of nearly 60 ms of work, which
# is what a game waits for at each synchronisation when nobody manages the GPU (§6.1: 3-6 times
# slower than with priorities, and nearly unresponsive with five of them).
BOMB_COST_US = about(4800, 0.05)
BOMB_DEPTH = 12
BOMB_CPU_US = 200

# 24 frames a second of 1920 x 800 (§6.1). Chosen: upload, conversion and scaling of a frame on the
# GPU in 4 ms, decoding on the CPU in 12 ms; half of its reserve of 10 ms every 40 ms.
VIDEO = Frames("video", "MPlayer", (1, 1), (4000, 4000), (12000, 12000), (0, 0), fps=24)

# The tests submit very many small groups (§6.3, §7); no cost is given. Chosen without regard to the
# outcome: each test's groups are twice as long as those of the one before.
VIEWPERF_US = {f"test {number + 1}": 5 * 2**number for number in range(8)}

# -- PIX/RIX: GeForce 9500 GT at 432 MHz, Xeon E5504, Linux 2.6.36 (§1, §7) ----------------------

PIX_RIX = Machine(
    card="GeForce 9500 GT",  # §1
    decide_us=20,  # chosen: below TimeGraph's, for a later version of it
    switch_us=10,  # chosen: small beside a group
    submit_us=0,  # every measurement of that paper is managed: it is part of the widget's CPU time
    # Chosen: this card is the slower one, with 16 GB/s of memory bandwidth (Table 1).
    blit_us=1590,
    blit_groups=1,  # chosen: the number is not given, one is the simplest
    # Chosen: §4 assumes the order of priority; §3 grants an unmodified server a part of that.
    order="priority",
)

# Chosen: about 170 frames a second alone, as Figures 12 and 13 need it (150-156 at the highest
# priority), with CPU time between the groups, in which others get at the GPU.
PIX_WIDGET = Frames("widget", "Engine", (3, 3), about(880, 0.33), about(280, 0.4), about(1180, 0.4))

# Chosen: Gears draws through the X server (§2); about 110 frames a second when the server is at its
# service, each nearly twice as long as a blit. It is greedy (§7).
GEARS = Frames("xclient", "Gears", (1, 1), about(2850, 0.05), about(6100, 0.2), (0, 0))

# 24 frames a second of 1920 x 800 (§7.2): TimeGraph's video, on a card that takes as much longer
# for it as it takes for a blit.
PIX_VIDEO_US = VIDEO.cost_us[0] * PIX_RIX.blit_us // TIMEGRAPH.blit_us
PIX_VIDEO = Frames(
    "xclient", "MPlayer", (1, 1), (PIX_VIDEO_US, PIX_VIDEO_US), (0, 0), (0, 0), fps=24
)
PIX_VIDEO_AHEAD = 1000
"""It does not wait for the server (§7.2)."""


# -- how they are written down -------------------------------------------------------------------


def duration(us: int) -> str:
    return format_ns(us * NS_PER["us"])


def _pair(bounds: Range, extra_us: int = 0) -> str | list[str]:
    low, high = (duration(value + extra_us) for value in bounds)
    return low if low == high else [low, high]


def reserve(kind: str, capacity: str, period: str, *, shared: str | None = None) -> Reserve:
    """A reserve; AE predicts from history, as the paper's does (TimeGraph §5.3)."""
    table = {"policy": kind, "capacity": capacity, "period": period}
    if kind == "ae":
        table["predict"] = "history"
    if shared is not None:
        table["shared"] = shared
    return table


def task(
    name: str, policy: str, priority: int, rest: dict[str, Any], *, reserved: Reserve | None = None
) -> Task:
    entry: Task = {"name": name, "policy": policy, "priority": priority}
    if reserved is not None:
        entry["reserve"] = reserved
    return entry | rest


def x_server(
    machine: Machine,
    policy: str = "prt",
    priority: int = X_HIGH,
    *,
    reserved: Reserve | None = None,
    pix: bool = False,
    rix: bool = False,
) -> Task:
    """The X server, which brings the others' frames to the screen."""
    serves: dict[str, Any] = {
        "order": machine.order,
        "blit": duration(machine.blit_us),
        "groups": machine.blit_groups,
    }
    serves |= {key: True for key, on in (("pix", pix), ("rix", rix)) if on}
    return task("x", policy, priority, {"serves": serves}, reserved=reserved)


def drawing(
    machine: Machine,
    name: str,
    frames: Frames,
    policy: str,
    priority: int,
    *,
    reserved: Reserve | None = None,
    ahead: int = 1,
) -> Task:
    """A task that draws frames and has the X server show them."""
    extra_us = 0 if policy == "fifo" else machine.submit_us
    table: dict[str, Any] = {"cost": _pair(frames.cost_us), "cpu": _pair(frames.cpu_us, extra_us)}
    if frames.groups != (1, 1):
        low, high = frames.groups
        table["groups"] = low if low == high else [low, high]
    if frames.prepare_us != (0, 0):
        table["prepare"] = _pair(frames.prepare_us)
    if frames.fps is not None:
        table["fps"] = frames.fps
    table["ahead"] = ahead
    return task(name, policy, priority, {"server": "x", frames.kind: table}, reserved=reserved)


def bombs(count: int, policy: str, *, reserved: Reserve | None = None) -> list[Task]:
    """Instances of Clearspd, at the lowest priority."""
    extra_us = 0 if policy == "fifo" else TIMEGRAPH.submit_us
    table = {
        "cost": _pair(BOMB_COST_US),
        "cpu": duration(BOMB_CPU_US + extra_us),
        "depth": BOMB_DEPTH,
    }
    return [
        task(f"bomb{number + 1}", policy, BACKDROP, {"bomb": dict(table)}, reserved=reserved)
        for number in range(count)
    ]


def scenario(machine: Machine, tasks: list[Task], *, seconds: int) -> Scenario:
    """These tasks on this machine, for so long."""
    return {
        "run": {"duration": f"{seconds}s", "seed": 1},
        "device": {
            "decide": duration(machine.decide_us),
            "switch": duration(machine.switch_us),
        },
        "task": tasks,
    }
