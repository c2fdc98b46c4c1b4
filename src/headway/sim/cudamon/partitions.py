"""Figures 4 and 5, the response-time staircase, and the partitions by hand of §5.2."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from headway.sim.cudamon.runs import Measured, Series
from headway.sim.cudamon.workloads import (
    DEADLINE,
    HIGH,
    LOW,
    MULTIPROCESSORS,
    THREADS,
    Scenario,
    alone,
    detection,
    in_one,
    manual,
)
from headway.sim.papers.claims import Claim, judged, near
from headway.sim.papers.figure import Curve, Plot

Results = Mapping[str, Measured]
SAME = 0.01
"""Responses that differ by less, as a part, are one stair of the figure."""
CLOSE = 0.02
"""How far a response may be from the report's, as a part of that."""
IN_ONE = (1, 32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
IN_ALL = (1, 40, 80, 81, 120, 160, 161, 200, 240, 320, 400, 480, 560, 640, 800, 960, 1120, 1280)


def fig4_variants() -> dict[str, Scenario]:
    return {f"{threads}": in_one(threads) for threads in IN_ONE}


def fig5_variants() -> dict[str, Scenario]:
    return {f"{blocks}": alone(blocks) for blocks in IN_ALL}


def _responses(results: Results) -> dict[int, float]:
    return {int(name): result.tasks[HIGH].typical_ms for name, result in results.items()}


def staircase_rows(results: Results) -> list[tuple[str, ...]]:
    return [(str(number), f"{ms:.2f} ms") for number, ms in _responses(results).items()]


def _is_flat(values: list[float]) -> bool:
    return max(values) <= (1 + SAME) * min(values)


def _stairs(responses: dict[int, float], width: int) -> list[list[float]]:
    """Responses by the number of blocks, or warps' worths of threads, that share a place."""
    stairs: dict[int, list[float]] = {}
    for number, ms in responses.items():
        stairs.setdefault(-(-number // width), []).append(ms)
    return [stairs[height] for height in sorted(stairs)]


def _rises(stairs: list[list[float]]) -> bool:
    return all(max(low) * (1 + SAME) < min(high) for low, high in pairwise(stairs))


def fig4_claims(results: Results) -> list[Claim]:
    stairs = _stairs(_responses(results), THREADS)
    first = stairs[0]
    return [
        judged(
            "no increase in response time until 128 threads",
            "flat to 128 threads",
            f"{min(first):.2f} to {max(first):.2f} ms",
            _is_flat(first),
            f"within {SAME:.0%} up to {THREADS} threads",
        ),
        judged(
            "more than 128 threads in one multiprocessor interleave",
            "higher beyond",
            f"{min(stairs[1]):.2f} ms at 160, {max(stairs[-1]):.2f} ms at 1024 threads",
            _rises(stairs),
            "each further 128 threads take longer",
        ),
    ]


def fig5_claims(results: Results) -> list[Claim]:
    stairs = _stairs(_responses(results), MULTIPROCESSORS)
    return [
        judged(
            "a staircase: one stair for each block of every multiprocessor",
            f"{MULTIPROCESSORS} blocks wide",
            ", ".join(f"{stair[0]:.2f}" for stair in stairs) + " ms",
            all(map(_is_flat, stairs)) and _rises(stairs),
            f"flat within {SAME:.0%} up to each multiple of {MULTIPROCESSORS}, and higher beyond",
        )
    ]


def _staircase_plot(results: Results, label: str) -> Plot:
    responses = _responses(results)
    x = [float(number) for number in responses]
    return Plot("lines", label, "response, ms", [Curve("one kernel", [*responses.values()], x)])


def fig4_plot(results: Results) -> Plot:
    return _staircase_plot(results, "threads in one multiprocessor")


def fig5_plot(results: Results) -> Plot:
    return _staircase_plot(results, "blocks of 128 threads")


# -- partitions by hand ----------------------------------------------------------------------------


def manual_variants() -> dict[str, Scenario]:
    return {
        "alone": manual_alone(),
        "100/100": manual(100),
        "100/20": manual(20),
        "detector, 100/100": detection(100),
        "detector, 100/20": detection(20),
    }


def manual_alone() -> Scenario:
    scenario = manual(100)
    scenario["task"] = scenario["task"][:1]
    return scenario


def _missed(task: Series) -> str:
    return f"{task.misses} of {len(task.missed)}"


def manual_rows(results: Results) -> list[tuple[str, ...]]:
    return [
        (name, who, f"{len(task.missed)}", f"{task.typical_ms:.2f} ms", _missed(task))
        for name, result in results.items()
        for who, task in result.tasks.items()
    ]


def _close(text: str, paper_ms: float, task: Series) -> Claim:
    """A response in milliseconds. A fifth either way would tell none of them from the others."""
    ours_ms = task.typical_ms
    holds = abs(ours_ms - paper_ms) <= CLOSE * paper_ms
    return judged(text, f"{paper_ms:g} ms", f"{ours_ms:.2f} ms", holds, f"within {CLOSE:.0%}")


def manual_claims(results: Results) -> list[Claim]:
    both, capped = results["100/100"].tasks, results["100/20"].tasks
    missed = min(both[who].misses / len(both[who].missed) for who in (HIGH, LOW))
    return [
        _close("alone", 4.2, results["alone"].tasks[HIGH]),
        _close("beside its like, both with 100 %: the important one", 4.74, both[HIGH]),
        _close("the less important one", 4.74, both[LOW]),
        judged(
            f"both miss their deadline of {DEADLINE}",
            "both",
            f"{_missed(both[HIGH])} and {_missed(both[LOW])} jobs",
            missed > 0.5,
            "most jobs of both",
        ),
        _close("with 20 % for the less important one: that one", 5.64, capped[LOW]),
        _close("and the important one", 4.2, capped[HIGH]),
        judged(
            "which meets its deadline then",
            "meets it",
            f"missed {_missed(capped[HIGH])}",
            capped[HIGH].misses <= len(capped[HIGH].missed) // 100,
            "at most 1 % of its jobs miss",
        ),
        *_detector_claims(results),
    ]


def _detector_claims(results: Results) -> list[Claim]:
    """Only simulated: of the report's application nothing but its use of the GPU is known."""
    runs = [results.get(f"detector, {how}") for how in ("100/100", "100/20")]
    tasks = [run.tasks[HIGH] for run in runs if run is not None]
    texts = ("misses of 100 frames of a detector, both with 100 %", "and with a partition by hand")
    of_100 = [100 * task.misses / len(task.missed) for task in tasks]
    return [
        near(text, paper, ours, "")
        for text, paper, ours in zip(texts, (56, 32), of_100, strict=False)
    ]


def manual_plot(results: Results) -> Plot:
    names = [name for name in results if not name.startswith("detector")]
    curves = [Curve(who, [_typical(results[name], who) for name in names]) for who in (HIGH, LOW)]
    return Plot("bars", "", "response, ms", curves, names)


def _typical(result: Measured, who: str) -> float:
    return result.tasks[who].typical_ms if who in result.tasks else 0.0
