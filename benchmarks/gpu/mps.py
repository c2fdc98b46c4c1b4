"""`headway daemon --mps`: programs become clients of a server that the daemon starts and ends.

The pair W4 (pairs.py) with a server of the daemon's, beside one that was started by hand and none.
NVIDIA's control program says who its clients are. Then the daemon is killed: what is left, what
becomes of a program that runs, and what a new daemon makes of it.
"""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import pairs
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Daemon, Failed, Stage

CONTROL = "nvidia-cuda-mps-control"
WORK = "W4"
OURS, DEATH = "headway daemon --mps", "kill -9 of the daemon"
CHECKED = (200, 5)
"""Kernels of 0.2 ms, five to a job."""
GONE_S = 10.0
SETTLE_S = 1.0


def folder_of(daemon: Daemon) -> Path:
    return Path(daemon.stage.env["HEADWAY_DIR"]) / "mps"


def ask(folder: Path, stage: Stage, question: str) -> list[str]:
    """What the control program answers, in words."""
    try:
        done = subprocess.run(
            [CONTROL],
            input=f"{question}\n",
            text=True,
            env=stage.environment(CUDA_MPS_PIPE_DIRECTORY=str(folder)),
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split()


def clients(folder: Path, stage: Stage) -> set[int]:
    """The processes that are connected to the servers of this folder."""
    servers = [word for word in ask(folder, stage, "get_server_list") if word.isdigit()]
    said = [word for server in servers for word in ask(folder, stage, f"get_client_list {server}")]
    return {int(word) for word in said if word.isdigit()}


def processes(folder: Path) -> list[str]:
    """MPS processes of this folder: name and pid."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={folder}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name = (place / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            if "nvidia-cuda-mps" in name and wanted in (place / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(f"{Path(name).name} {place.name}")
        except OSError:
            continue  # it has ended
    return found


def gone_after_s(folder: Path) -> float | None:
    """Until no MPS process of the folder is left; None: some stay."""
    since = time.monotonic()
    while time.monotonic() < since + GONE_S:
        if not processes(folder):
            return time.monotonic() - since
        time.sleep(0.05)
    return None


def pair(stage: Stage, seconds: float) -> dict[str, Any]:
    """W4 under a daemon with --mps: latencies, who was a client, and what its end leaves."""
    hp, lp = pairs.WORK[WORK]
    with stages.run_daemon(stage, "--mps", *stages.SPINS) as daemon:
        at, folder = daemon.stage, folder_of(daemon)
        env = {"START_AT": str(time.time() + stages.START_S)}
        started = [
            at.start([*stages.OVERLAP.important(), *stage.app("hp", *hp, seconds)], env),
            at.start([*stages.OVERLAP.greedy(), *stage.app("lp", *lp, seconds)], env),
        ]
        time.sleep(stages.START_S)
        connected, wanted = set[int](), {process.pid for process in started}
        while not wanted <= connected and all(process.poll() is None for process in started):
            connected |= clients(folder, at)
        shown = [line for line in _said("nvidia-smi").splitlines() if "M+C" in line]
        alive = processes(folder)
        h, g = stages.finish(started, seconds + stages.LATE_S)
    return {
        "p50_us": h["p50_us"],
        "p99_us": h["p99_us"],
        "share": g["busy"],
        "clients": len(wanted & connected),
        "nvidia_smi": shown,
        "processes": alive,
        "gone_after_s": gone_after_s(folder),
    }


def _said(command: str) -> str:
    try:
        return subprocess.run([command], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def death(stage: Stage, seconds: float) -> dict[str, Any]:
    """The daemon is killed under a running program, and another one comes."""
    found: dict[str, Any] = {}
    with stages.run_daemon(stage, "--mps") as daemon:
        at, folder = daemon.stage, folder_of(daemon)
        env = {"START_AT": str(time.time() + stages.START_S)}
        command = [*stages.run_as("survivor"), *stage.program("checked", *CHECKED, seconds)]
        program = at.start(command, env)
        try:
            time.sleep(stages.START_S + SETTLE_S)
            daemon.kill()
            killed_s = time.monotonic()
            time.sleep(SETTLE_S)
            found["left"] = processes(folder)
            found["runs_on"] = program.poll() is None
            again_s = time.monotonic()
            daemon.start()
            restarted_s = time.monotonic()
            found["restart_s"] = restarted_s - again_s
            said = _outcome(program, seconds)
        finally:
            if program.poll() is None:
                program.kill()
                program.communicate()
        done = [us / 1e6 for us in said.get("done_us", ())]
        found["jobs_unmanaged"] = sum(killed_s < at_s < again_s for at_s in done)
        found["jobs_after_restart"] = sum(restarted_s <= at_s for at_s in done)
        found["wrong"] = said.get("wrong")
        found["program"] = said.get("error", "ended as it should")
        later = [*stages.run_as("later"), *stage.app("lp", 20, 50, 0, 0.5)]
        found["later"] = _outcome(at.start(later), 1.0).get("error", "runs")
    found["gone_after_s"] = gone_after_s(folder)
    return found


def _outcome(program: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    try:
        return stages.finish([program], seconds + stages.LATE_S)[0]
    except Failed as error:
        return {"error": " ".join(str(error).split())[:300]}


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = 1.5 if quick else 3.0
    outcome = Outcome()
    parts = {
        stages.OVERLAP.title: partial(by_hand, stage, stages.OVERLAP, seconds),
        "Headway + MPS started by hand": partial(by_hand, stage, stages.OVERLAP_MPS, seconds),
        OURS: partial(pair, stage, seconds),
        DEATH: partial(death, stage, 6 * seconds),
    }
    found = {title: outcome.tried(title, part) for title, part in parts.items()}
    outcome.data = {title: row for title, row in found.items() if row}
    outcome.tables = _tables(outcome.data)
    outcome.goals = _goals(outcome.data)
    return outcome


def by_hand(stage: Stage, way: stages.Way, seconds: float) -> dict[str, Any]:
    with way.on(stage) as at:
        result = pairs.pair(at, WORK, way, seconds)
    return {"p50_us": result.p50_us, "p99_us": result.p99_us, "share": result.share}


def _tables(data: dict[str, Any]) -> list[Table]:
    lines = [
        [title, f"{row['p50_us']:.0f}", f"{row['p99_us']:.0f}", f"{row['share']:.2f}"]
        for title, row in data.items()
        if "p99_us" in row
    ]
    meaning = next(part for part in pairs.MEANING.split("; ") if part.startswith(WORK))
    tables = [Table(meaning, ["", "p50 us", "p99 us", "LP's share"], lines)]
    for title in (OURS, DEATH):
        facts = {key: value for key, value in data.get(title, {}).items() if key[-3:] != "_us"}
        rows = [[key.replace("_", " "), _cell(value)] for key, value in facts.items()]
        tables += [Table(title, ["", ""], rows)] if rows else []
    return tables


def _cell(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value)).replace("|", " ") or "none"
    if value is None:
        return "never"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _goals(data: dict[str, Any]) -> list[Goal]:
    goals = []
    if ours := data.get(OURS):
        goals.append(Goal("programs that are MPS clients", ours["clients"], 2, at_least=True))
    for title in (OURS, DEATH):
        if row := data.get(title):
            left_s = row["gone_after_s"]
            what = f"{title}: MPS is gone after the daemon's end, s"
            goals.append(Goal(what, GONE_S * 2 if left_s is None else left_s, GONE_S))
    if row := data.get(DEATH):
        goals.append(Goal("killed daemon: wrong results", row["wrong"] or 0, 0))
        what = "killed daemon: results before a new one came"
        goals.append(Goal(what, row["jobs_unmanaged"], 1, at_least=True))
        what = "killed daemon: results after a new one came"
        goals.append(Goal(what, row["jobs_after_restart"], 1, at_least=True))
    return goals
