"""Figures 6 and 7 and Table 2: 62 synthetic tasks, some of them aberrant (observations 1 to 9)."""

from __future__ import annotations

from collections.abc import Mapping

from headway.sim.gpusync.paper.workloads import SCHEDULERS, Scenario, synthetic
from headway.sim.gpusync.results import GpuSyncResult, TaskResult
from headway.sim.papers.claims import TOLERANCE, Claim, judged, near
from headway.sim.papers.figure import Curve, Plot

Results = Mapping[str, GpuSyncResult]
IDEAL = {"T1": 0.25 * 0.9 * 0.75, "T2": 0.1 * 0.9 * 0.75}
"""Kernel time by period."""
MODES = {
    "well-behaved": {"aberrant": False, "budget": False},
    "aberrant": {"aberrant": True, "budget": False},
    "aberrant, budgets": {"aberrant": True, "budget": True},
}
PAPER_MIGRATIONS = {
    "C-EDF, aberrant": {"T1": "11887 110 0", "T2": "2382 11 4"},
    "C-EDF, aberrant, budgets": {"T1": "8866 130 0", "T2": "2374 8 13"},
    "C-RM, aberrant": {"T1": "11255 374 368", "T2": "1826 245 326"},
    "C-RM, aberrant, budgets": {"T1": "8586 386 173", "T2": "1915 142 340"},
}
RANDOM_MOVES = 0.75
"""The fraction of jobs that a random choice among four GPUs would move."""
FEW = 20
"""With fewer predictions a share says nothing."""


def all_variants() -> dict[str, Scenario]:
    return {
        f"{label}, {mode}": synthetic(scheduler, **flags)
        for label, scheduler in SCHEDULERS.items()
        for mode, flags in MODES.items()
    }


def unpoliced_variants() -> dict[str, Scenario]:
    return {k: v for k, v in all_variants().items() if k.endswith("aberrant")}


def aberrant_variants() -> dict[str, Scenario]:
    return {k: v for k, v in all_variants().items() if "aberrant" in k}


# -- Figure 6 --------------------------------------------------------------------------------


def slope(result: GpuSyncResult, task: str) -> float:
    """The part of the time for which the task held execution engines."""
    held = result.tasks[task].unit_held_ns
    return held[-1] / result.duration_ns if held else 0.0


def supply_rows(results: Results) -> list[tuple[str, ...]]:
    return [
        (name, task, f"{slope(result, task):.3f}", f"{ideal:.3f}", str(len(result.tasks[task])))
        for name, result in results.items()
        for task, ideal in IDEAL.items()
    ]


def supply_plot(results: Results) -> Plot:
    curves = []
    for name, result in results.items():
        for task in IDEAL:
            done = result.tasks[task]
            step = max(1, len(done) // 200)
            x = [finish / 1e9 for finish in done.finishes[::step]]
            y = [held / 1e9 for held in done.unit_held_ns[::step]]
            curves.append(Curve(f"{task}, {name}", y, x))
    return Plot("lines", "seconds", "seconds with an execution engine", curves)


def supply_claims(results: Results) -> list[Claim]:
    claims = []
    close = {
        f"{task}, {name}": slope(result, task) / ideal
        for name, result in results.items()
        for task, ideal in IDEAL.items()
        if "budgets" not in name
    }
    worst = max(close, key=lambda line: abs(close[line] - 1))
    claims.append(
        judged(
            "1: the locks supply tasks with the execution time they were provisioned",
            "slopes very close to 0.169 and 0.068",
            f"farthest: {worst} at {close[worst]:.2f} of it",
            all(abs(part - 1) <= 0.1 for part in close.values()),
            "every slope without budgets within 10 % of the provisioned one",
        )
    )
    claims.append(
        _near_slope(
            "T2, well-behaved, C-EDF: slope", 0.065, slope(results["C-EDF, well-behaved"], "T2")
        )
    )
    for label, paper in (("C-RM", 0.12), ("C-EDF", 0.153)):
        without = slope(results[f"{label}, aberrant"], "T1")
        policed = slope(results[f"{label}, aberrant, budgets"], "T1")
        claims.append(
            judged(
                f"2: budgets give the aberrant T1 less, {label}",
                f"{paper} of 0.169",
                f"{policed:.3f} of {IDEAL['T1']:.3f}, {without:.3f} without",
                policed < without,
                "a smaller slope than without budgets",
            )
        )
        claims.append(
            _near_slope(
                f"T1 with budgets, {label}: slope",
                paper,
                policed,
                otherwise="a tenfold job costs the nine jobs after it, so what a task uses stays "
                "what it was provisioned; the paper loses 3000 jobs more than its tenfold jobs "
                "explain, and does not say why",
            )
        )
    pairs = [
        abs(slope(results[f"C-EDF, {mode}"], task) / slope(results[f"C-RM, {mode}"], task) - 1)
        for mode in MODES
        for task in IDEAL
    ]
    claims.append(
        judged(
            "3: C-RM and C-EDF can both perform well",
            "both supply the needed time",
            f"slopes differ by at most {100 * max(pairs):.1f} %",
            max(pairs) <= 0.05,
            "every pair of slopes within 5 % of each other",
        )
    )
    return claims


def _near_slope(text: str, paper: float, ours: float, otherwise: str = "") -> Claim:
    allowed = paper * TOLERANCE
    rule = f"within {allowed:.3f} of the paper's number"
    near_it = abs(ours - paper) <= allowed
    return judged(text, f"{paper:g}", f"{ours:.3f}", near_it, rule, otherwise)


# -- Figure 7 --------------------------------------------------------------------------------


def within(task: TaskResult, distance: int | None, limit: float) -> tuple[float, int]:
    """The part of the predictions that were off by at most `limit`, and their number. None: all."""
    chosen = task.errors if distance is None else [task.errors[distance]]
    count = sum(len(errors) for errors in chosen)
    good = sum(error <= limit for errors in chosen for error in errors)
    return (good / count if count else 0.0), count


def prediction_rows(results: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, result in results.items():
        for task in IDEAL:
            for distance in range(3):
                near_5, count = within(result.tasks[task], distance, 0.05)
                near_20, _ = within(result.tasks[task], distance, 0.20)
                shares = (f"{100 * near_5:.1f} %", f"{100 * near_20:.1f} %")
                rows.append(
                    (name, task, str(distance), str(count), *(shares if count else ("-", "-")))
                )
    return rows


def prediction_plot(results: Results) -> Plot:
    curves = []
    for name, result in results.items():
        for task in IDEAL:
            for distance in range(3):
                errors = sorted(result.tasks[task].errors[distance])
                if errors:
                    y = [100 * (place + 1) / len(errors) for place in range(len(errors))]
                    x = [100 * error for error in errors]
                    curves.append(Curve(f"{task}, d = {distance}, {name}", y, x))
    return Plot("lines", "error, %", "% of predictions", curves)


def prediction_claims(results: Results) -> list[Claim]:
    edf, rm = results["C-EDF, aberrant"].tasks, results["C-RM, aberrant"].tasks
    t1 = 100 * within(edf["T1"], None, 0.05)[0]
    claims = [
        near("4: T1's predictions within 5 %, C-EDF", 95.0, t1, "%"),
        judged(
            "5: the predictor is less accurate for long periods (T2) than for short ones (T1)",
            "T2 less accurate in both",
            " / ".join(
                f"{100 * within(tasks['T2'], None, 0.05)[0]:.1f} against "
                f"{100 * within(tasks['T1'], None, 0.05)[0]:.1f} %"
                for tasks in (edf, rm)
            ),
            all(
                within(tasks["T2"], None, 0.05)[0] < within(tasks["T1"], None, 0.05)[0]
                for tasks in (edf, rm)
            ),
            "fewer of T2's predictions within 5 %, under both schedulers",
            "T2 is well-behaved and T1 aberrant; with the engines half used an aberrant job of "
            "another task seldom meets T2's copies",
        ),
    ]
    for paper, tasks, label in ((90.0, edf, "C-EDF"), (80.0, rm, "C-RM")):
        share, count = within(tasks["T2"], 1, 0.20)
        claims.append(
            near(
                f"T2's predictions at d = 1 within 20 %, {label} ({count})", paper, 100 * share, "%"
            )
        )
    both = [within(tasks[task], None, 0.05)[0] for task in IDEAL for tasks in (edf, rm)]
    claims.append(
        judged(
            "6: the predictor is moderately less accurate under C-RM than under C-EDF",
            "80 against 90 % of T2's at d = 1",
            f"T1 {100 * both[1]:.1f} against {100 * both[0]:.1f} %, "
            f"T2 {100 * both[3]:.1f} against {100 * both[2]:.1f} %",
            both[1] + both[3] < both[0] + both[2],
            "fewer within 5 % under C-RM, T1 and T2 together",
            "the CPUs are half idle in our model, so the CPU scheduler makes little difference",
        )
    )
    steps = [
        (within(tasks[task], near_, 0.05), within(tasks[task], near_ + 1, 0.05))
        for tasks in (edf, rm)
        for task in IDEAL
        for near_ in (0, 1)
    ]
    told = [(a[0], b[0]) for a, b in steps if min(a[1], b[1]) >= FEW]
    worse = sum(b <= a for a, b in told)
    claims.append(
        judged(
            "7: the predictor is generally less accurate for longer distances",
            "each curve above the next",
            f"{worse} of {len(told)} pairs of neighbouring distances",
            bool(told) and 2 * worse > len(told),
            f"most pairs that have {FEW} predictions each, within 5 %",
        )
    )
    return claims


# -- Table 2 ---------------------------------------------------------------------------------


def moved(task: TaskResult) -> float:
    """The part of the tokens that were not at home."""
    total = sum(task.distances)
    return 1 - task.distances[0] / total if total else 0.0


def migration_rows(results: Results) -> list[tuple[str, ...]]:
    return [
        (
            name,
            task,
            *(str(count) for count in result.tasks[task].distances[:3]),
            PAPER_MIGRATIONS[name][task],
        )
        for name, result in results.items()
        for task in IDEAL
    ]


def migration_plot(results: Results) -> Plot:
    groups = [f"{task}, {name}" for name in results for task in IDEAL]
    curves = []
    for distance in (1, 2):
        shares = []
        for result in results.values():
            for task in IDEAL:
                counts = result.tasks[task].distances
                shares.append(100 * counts[distance] / max(1, sum(counts)))
        curves.append(Curve(f"d = {distance}", shares))
    return Plot("bars", "", "% of the jobs", curves, groups)


def migration_claims(results: Results) -> list[Claim]:
    shares = [moved(result.tasks[task]) for result in results.values() for task in IDEAL]
    edf = sum(moved(results["C-EDF, aberrant"].tasks[task]) for task in IDEAL)
    rm = sum(moved(results["C-RM, aberrant"].tasks[task]) for task in IDEAL)
    distant = [
        sum(results[name].tasks[task].distances[2] for task in IDEAL)
        for name in ("C-EDF, aberrant", "C-RM, aberrant")
    ]
    return [
        judged(
            "8: affinity-aware assignment keeps jobs at home",
            "1 to 24 % moved, 75 % at random",
            f"{100 * min(shares):.1f}-{100 * max(shares):.1f} % moved",
            max(shares) < RANDOM_MOVES / 2,
            "less than half of what a random choice moves, in every run",
        ),
        judged(
            "9: affinity is kept more under C-EDF than under C-RM",
            "T1 1 against 6 %, T2 1 against 24 %",
            f"T1 and T2 together {50 * edf:.1f} against {50 * rm:.1f} %; "
            f"distant: {distant[0]} against {distant[1]}",
            edf < rm,
            "fewer moves under C-EDF",
            "with half of the CPUs idle the schedulers differ in the token's order alone",
        ),
    ]
