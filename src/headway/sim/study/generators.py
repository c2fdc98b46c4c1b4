"""Random task sets: utilisations with a given sum, periods, and tasks that use GPUs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from headway.engine.locks.system import DeviceWork, LockTask
from headway.sim.gpusync.plan import TaskPlan, Variation

GENERATORS = ("uunifast", "randfixedsum")
TRIES = 10_000


def uunifast(rng: random.Random, count: int, total: float, most: float = 1.0) -> list[float]:
    """Utilisations that add up to `total`, evenly among all such vectors (Bini and Buttazzo 2005);
    vectors with one above `most` are drawn again."""
    _check(count, total, most)
    for _ in range(TRIES):
        left, drawn = total, []
        for others in range(count - 1, 0, -1):
            following = left * rng.random() ** (1 / others)
            drawn.append(left - following)
            left = following
        drawn.append(left)
        if max(drawn) <= most:
            return drawn
    raise ValueError(f"found no {count} utilisations up to {most:g} that add up to {total:g}")


def randfixedsum(rng: random.Random, count: int, total: float, most: float = 1.0) -> list[float]:
    """The same at once for any `most` (Stafford; Emberson, Stafford and Davis 2010)."""
    _check(count, total, most)
    if count == 1:
        return [total]
    total /= most
    whole = min(int(total), count - 1)
    above = [total - (whole - place) for place in range(count)]
    below = [(whole + count - place) - total for place in range(count)]
    weights = [[0.0] * (count + 1) for _ in range(count)]
    weights[0][1] = 1.0
    moves = [[0.0] * count for _ in range(count - 1)]
    for size in range(2, count + 1):
        for place in range(size):
            down = weights[size - 2][place + 1] * above[place] / size
            up = weights[size - 2][place] * below[count - size + place] / size
            both = down + up
            weights[size - 1][place + 1] = both
            if both > 0:
                rises = below[count - size + place] > above[place]
                moves[size - 2][place] = up / both if rises else 1 - down / both
        largest = max(weights[size - 1])
        weights[size - 1] = [weight / largest for weight in weights[size - 1]]
    drawn = []
    left, column, base, scale = total, whole + 1, 0.0, 1.0
    for size in range(count - 1, 0, -1):
        step = 1 if rng.random() <= moves[size - 1][column - 1] else 0
        along = rng.random() ** (1 / size)
        base += (1 - along) * scale * left / (size + 1)
        scale *= along
        drawn.append(base + scale * step)
        left -= step
        column -= step
    drawn.append(base + scale * left)
    rng.shuffle(drawn)
    return [value * most for value in drawn]


def _check(count: int, total: float, most: float) -> None:
    if count < 1:
        raise ValueError(f"found {count} tasks, expected at least one")
    if not 0 < total <= count * most:
        raise ValueError(
            f"found a utilisation of {total:g}, expected more than 0 and at most {count * most:g}, "
            f"which {count} tasks of at most {most:g} can have"
        )


def log_uniform(rng: random.Random, low_ns: int, high_ns: int, step_ns: int) -> int:
    """A period: its logarithm is even between the limits; a whole number of steps."""
    drawn = math.exp(rng.uniform(math.log(low_ns), math.log(high_ns + step_ns)))
    return max(low_ns, int(drawn) // step_ns * step_ns)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How task sets are drawn."""

    tasks: int = 12
    generator: str = "randfixedsum"
    most: float = 0.5
    """The largest utilisation of one task, CPU and GPU together."""
    periods_ns: tuple[int, int] = (10_000_000, 100_000_000)
    gpu_tasks: float = 0.5
    """The fraction of tasks that use GPUs."""
    gpu_part: float = 0.75
    """Of the utilisation of one that does: the fraction on GPUs."""
    copy_part: float = 0.25
    """Of that: the fraction for copies, half of it inwards."""
    kernels: int = 1
    """Into how many kernels a job's GPU time is cut."""
    state: float = 1.0
    """Bytes of state for each byte copied in or out."""
    jitter: float = 0.0
    """A job begins up to this fraction of its period after its release."""
    sporadic: float = 0.0
    """Releases are up to this fraction of a period farther apart than a period."""
    noise: float = 0.0
    """Standard deviation of a job's length, as a fraction of it (normal, cut at three)."""
    shortest: float = 1.0
    """Jobs are evenly between this fraction of their length and all of it."""

    def vary(self, task: LockTask) -> TaskPlan:
        """The task with its jobs' releases and lengths."""
        jitter_ns = int(self.jitter * task.period_ns)
        return TaskPlan(
            task,
            variation=Variation(
                self.noise, self.shortest, jitter_ns=jitter_ns, sporadic=self.sporadic
            ),
        )


def draw(
    rng: random.Random,
    recipe: Recipe,
    utilisation: float,
    rate: int,
    clusters: Sequence[tuple[int, int]] = ((0, 0),),
) -> list[LockTask]:
    """A task set. `rate`: bytes a second in the worst case, which makes bytes of copy time.
    `clusters`: of CPUs, and of devices among all; tasks are dealt in turn."""
    generate = {"uunifast": uunifast, "randfixedsum": randfixedsum}[recipe.generator]
    shares = generate(rng, recipe.tasks, utilisation, recipe.most)
    users = round(recipe.tasks * recipe.gpu_tasks)
    tasks = []
    for number, share in enumerate(shares):
        period_ns = log_uniform(rng, *recipe.periods_ns, 1_000_000)
        cost_ns = max(1000, int(share * period_ns))
        cpus, devices = clusters[number % len(clusters)]
        work = None
        if number < users:
            gpu_ns = int(cost_ns * recipe.gpu_part)
            copy_ns = int(gpu_ns * recipe.copy_part)
            size = copy_ns * rate // 2_000_000_000
            kernel_ns = max(1, (gpu_ns - copy_ns) // recipe.kernels)
            work = DeviceWork(
                (kernel_ns,) * recipe.kernels, size, size, int(2 * size * recipe.state)
            )
            cost_ns -= gpu_ns
        tasks.append(LockTask(f"t{number}", period_ns, period_ns, cost_ns, work, cpus, devices))
    return tasks
