"""The sections of benchmarks/gpu for frameworks, OpenGL ES, OpenCL and MPS, on software devices.

Do they see what they are there to see? Times mean nothing here: CPUs play three devices at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import (
    books,
    building,
    frameworks,
    graphics,
    inference,
    models,
    mps,
    opencl,
    overhead,
)
from benchmarks.gpu import stage as stages
from benchmarks.gpu.frameworks import PHASES, Program
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Start, Told, start_alike
from tests.integration import cuda

pytestmark = pytest.mark.timeout(120)

SHORT_S, LONG_S = 0.6, 2.0
"""Long enough for the frames whose pictures are compared."""
SOFTWARE = {"SIZE": "64", "LP_NUM_THREADS": "1", "POCL_MAX_PTHREAD_COUNT": "1"}


@pytest.fixture(scope="module")
def programs(cuda_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sections")
    for name in ("app", "checked"):
        (folder / name).symlink_to(cuda_programs / "cudaapp-linked")
    for name, (source, libraries) in building.OTHERS.items():
        strict = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(folder / name)]
        subprocess.run([*strict, str(source), *libraries], check=True)
    return folder


@pytest.fixture
def stage(gpu: cuda.Gpu, programs: Path) -> Stage:
    return Stage(programs, gpu.environment(SOFTWARE))


# -- frameworks ----------------------------------------------------------------------------------

COPIES = """
import ctypes
from rounds import serve

driver = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert not driver.cuInit(0)
assert not driver.cuDeviceGet(ctypes.byref(device), 0)
assert not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
assert not driver.cuCtxSetCurrent(context)
assert not driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4))


def work(number):
    there, back, size = ctypes.c_uint32(number * 3), ctypes.c_uint32(), ctypes.c_size_t(4)
    assert not driver.cuMemcpyHtoD_v2(memory, ctypes.byref(there), size)
    assert not driver.cuMemcpyDtoH_v2(ctypes.byref(back), memory, size)
    return bytes(back)


serve(work)
"""


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Program]:
    (tmp_path / "copies.py").write_text(COPIES)
    (tmp_path / "broken.py").write_text("raise SystemExit('no such driver')\n")
    (tmp_path / "rounds.py").symlink_to(frameworks.FOLDER / "rounds.py")
    made = {
        "copies": Program("copies.py", ("ctypes",)),
        "absent": Program("absent.py", ("ctypes", "no_such_framework", "no.such.package")),
        "broken": Program("broken.py", ("ctypes",)),
    }
    monkeypatch.setattr(frameworks, "FOLDER", tmp_path)
    monkeypatch.setattr(frameworks, "PROGRAMS", made)
    monkeypatch.setattr(frameworks, "BEGIN_S", 0.7)
    return made


def test_every_framework_is_played_or_named_with_what_it_lacks(
    stage: Stage, played: dict[str, Program]
) -> None:
    found = frameworks.play(stage, played, 10)
    copies = found["copies"]
    assert copies.problem == ""
    assert tuple(copies.rows) == PHASES
    assert len({row["hash"] for row in copies.rows.values()}) == 1
    assert copies.passed == 2 * (10 + 10 + 10), "warm-up, alone, beside the greedy one"
    assert copies.lookups.startswith("dlsym")
    assert found["absent"].problem == "not installed here: no_such_framework, no.such.package"
    assert "no such driver" in found["broken"].problem


def test_look_ups_are_told_in_short() -> None:
    lines = ["7 loaded - program", "7 hooked dlsym cuInit"]
    lines += ["7 hooked cuGetProcAddress cuLaunchKernel", "7 hooked cuGetProcAddress cuMemcpyAsync"]
    lines += ["7 passed cuGetProcAddress cuMemcpyBatchAsync 12080"]
    said = frameworks.summary("\n".join(lines))
    assert said == "dlsym 1, cuGetProcAddress 2; not hooked: cuMemcpyBatchAsync"


# -- programs that are told ------------------------------------------------------------------------

TOLD = (
    COPIES.split("serve(work)")[0].replace("from rounds import serve\n", "")
    + """
import json, os, sys, time

managed = "libheadway" in os.environ.get("LD_PRELOAD", "")
log = open(__file__ + ".log", "a+")
size = len(open("/proc/self/environ").read())
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    chosen = json.loads(line)
    time.sleep(max(0.0, chosen["at"] - time.time()))
    assert work(5) == bytes((15, 0, 0, 0))
    found = f"{chosen.get('requests', 'all')} requests"
    alike = os.environ.get("PYTHONHASHSEED"), size
    log.seek(0)
    again = found in log.read()
    print(json.dumps([os.getpid(), managed, alike, found]), file=log)
    log.flush()
    if {f"{found}, managed {managed}", f"{found}, again {again}"} & set(sys.argv):
        found = "something else"
    said = {"per_s": 40.0 if managed else 50.0, "hash": found}
    latencies_ms = [2.0] * 60 + [9.0] * (chosen.get("requests", 0) - 60)
    print(json.dumps({**said, "p99_ms": 2.0, "latencies_ms": latencies_ms}), flush=True)
"""
)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "told.py").write_text(TOLD)
    command = [sys.executable, str(tmp_path / "told.py")]
    monkeypatch.setattr(models, "inference", lambda *_, **__: command)
    monkeypatch.setattr(models, "training", lambda *_, **__: command)
    return command


@pytest.mark.usefixtures("told")
def test_programs_that_are_told_take_turns_way_by_way(stage: Stage) -> None:
    outcome = inference.measure(stage, quick=True)
    rows = outcome.data["rounds"]["graph"]
    assert list(rows) == ["alone", "time-sliced", "Headway"]
    assert all(len(part) == 2 for row in rows.values() for part in row.values())
    assert [goal.met for goal in outcome.goals if "different" in goal.what] == [True, True]
    training = [goal for goal in outcome.goals if "of time-sliced" in goal.what]
    assert [goal.found for goal in training] == pytest.approx([40 / 50] * 2)
    assert not any(goal.met for goal in training)
    (p99,) = (goal for goal in outcome.goals if "p99" in goal.what)
    assert p99.found == 2.0, "without those that come while training has only its last work to do"


def test_other_results_beside_others_are_a_missed_goal(stage: Stage, told: list[str]) -> None:
    told.append("65 requests, managed True")
    outcome = inference.measure(stage, quick=True)
    found = [goal.found for goal in outcome.goals if "different" in goal.what]
    assert found == [1, 1], "one of the three ways"


GENERATIONS = 2


@pytest.fixture
def case(told: list[str]) -> overhead.Case:
    """PyTorch inference, played, with less than all rounds and generations."""
    inference = overhead.cases(quick=False)[2]
    assert inference.command(Stage(Path())) == [*told, models.TOLD]
    return replace(inference, rounds=3, generations=GENERATIONS)


def test_what_headway_costs_is_compared_round_by_round(stage: Stage, case: overhead.Case) -> None:
    cost = overhead.compare(stage, case)
    assert cost.found.rounds == pytest.approx([0.25] * 6), "20 ms without, 25 ms under Headway"
    assert cost.of_nothing.rounds == [0.0] * 6
    assert cost.found.medians == pytest.approx([0.25] * GENERATIONS)


def test_every_generation_is_of_three_new_processes_that_all_take_part_in_every_round(
    stage: Stage, case: overhead.Case, told: list[str]
) -> None:
    overhead.compare(stage, case)
    lines = [json.loads(line) for line in Path(f"{told[1]}.log").read_text().splitlines()]
    assert len({tuple(alike) for *_, alike, _ in lines}) == 1
    assert lines[0][2][0] == "0"
    generation = ["all requests"] * 3 + ["15 requests"] * 3 * case.rounds
    assert [said for *_, said in lines] == generation * GENERATIONS
    threes = [lines[at : at + 3] for at in range(0, len(lines), 3)]
    processes = [frozenset(pid for pid, *_ in three) for three in threes]
    assert len(set(processes)) == GENERATIONS, "the same three in every round"
    assert len(frozenset.union(*processes)) == 3 * GENERATIONS
    managed = [[managed for _, managed, *_ in three] for three in threes]
    assert all(three.count(True) == 1 for three in managed)
    rounds = managed[1 : 1 + case.rounds] + managed[-case.rounds :]
    assert Counter(three.index(True) for three in rounds) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize("which", ["all requests", "15 requests"])
@pytest.mark.parametrize("whose", ["managed True", "again True"])
def test_other_results_are_a_failure_however_short_the_round(
    stage: Stage, case: overhead.Case, told: list[str], which: str, whose: str
) -> None:
    told.append(f"{which}, {whose}")
    with pytest.raises(Failed, match=f"hash something else, and {which} before"):
        overhead.compare(stage, replace(case, command=lambda _: told))


@pytest.mark.usefixtures("told")
def test_what_the_measurement_resolves_is_shown_and_is_no_goal(
    stage: Stage, case: overhead.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overhead, "cases", lambda quick: [case])
    outcome = overhead.measure(stage, quick=False)
    assert not outcome.error
    (goal,) = outcome.goals
    assert goal.what == f"{case.title}: cost, one by one"
    assert goal.found == pytest.approx(0.25)
    ours, nothing = outcome.tables[0].rows
    assert ours[:5] == [case.title, "ms each", "20", "25", "+25.00%"]
    assert ours[-2:] == ["6", "+25.00%, +25.00%"]
    assert ours[6].endswith("(only 50 %)"), "of two generations, however many rounds they have"
    assert nothing[:5] == [overhead.TWICE, "ms each", "20", "20", "+0.00%"]
    assert json.loads(json.dumps(outcome.data))[case.title]["of_nothing"]["generations"] == [0, 0]


def test_a_program_with_a_window_has_somebody_more_important_beside_it(
    stage: Stage, case: overhead.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[list[str]] = []

    def start(stack: contextlib.ExitStack, starts: Sequence[Start]) -> list[Told]:
        for stage, before, _ in starts:
            if before:
                beside.append([channel["priority"] for channel in stage.status()["channels"]])
        return start_alike(stack, starts)

    monkeypatch.setattr(overhead, "start_alike", start)
    for window in (False, True):
        overhead.compare(stage, replace(case, window=window, rounds=1, generations=1))
    assert beside == [[], ["9"]]


# -- OpenGL ES and OpenCL ------------------------------------------------------------------------


def test_frames_beside_cuda_are_the_same_and_pass_the_gate(stage: Stage) -> None:
    at, renderer = graphics.calibrated(stage)
    assert "llvmpipe" in renderer
    alone, ours = (graphics.frames(at, way, LONG_S) for way in (None, stages.OVERLAP))
    assert ours["hash"] == alone["hash"] != "too few"
    assert ours["gl_error"] == 0
    assert ours["passed"] > ours["frames"] / 2, "as it was last seen"
    assert ours["share"] > 0


def test_one_set_of_books_covers_both_apis(stage: Stage) -> None:
    at, _ = graphics.calibrated(stage)
    found = graphics.reserves(at, 1.5)
    for shares in found.values():
        assert set(shares) == set(graphics.PARTS)
        assert all(share > 0 for share in shares.values())
    assert sum(found["charged"].values()) < 110


def test_opencl_computes_the_same_by_every_route(stage: Stage) -> None:
    at, device = opencl.calibrated(stage, words=64)
    assert device != "?"
    alone = opencl.alone(at, SHORT_S)
    runs = [opencl.alone(at, SHORT_S, route) for route in opencl.ROUTES]
    runs.append(opencl.beside(at, stages.OVERLAP, "CUDA", SHORT_S))
    assert {run["checksum"] for run in runs} == {alone["checksum"]}
    assert all(run["passed"] > 0 for run in runs)


def test_a_program_that_was_not_built_says_why(tmp_path: Path) -> None:
    stage = Stage(tmp_path, missing={"glapp": "EGL/egl.h: No such file or directory"})
    with pytest.raises(Failed, match=r"glapp was not built: EGL/egl\.h"):
        graphics.calibrated(stage)


def test_shares_are_of_the_time_when_all_were_there() -> None:
    kept = books.Books()
    times_s: list[dict[str, float]] = [{"a": 5}, {"a": 6, "b": 0}, {"a": 6.5, "b": 0.25}]
    for second, channels in enumerate(times_s):
        said = [{"task": f"{n}.1", "gpu_ns": s * 1e9, "passed": 3} for n, s in channels.items()]
        kept.note({"uptime_s": float(second), "channels": said})
    assert kept.shares("a", "b") == [0.5, 0.25]
    assert kept.shares("a", "c") == [0.0, 0.0]
    assert (kept.last("a", "passed"), kept.last("c", "passed")) == (3, 0)


# -- MPS -----------------------------------------------------------------------------------------

CONTROL = f"""#!{sys.executable}
import os, subprocess, sys
folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
file = os.path.join(folder, "server")
if "-d" in sys.argv:
    quiet = subprocess.DEVNULL
    command = ["nvidia-cuda-mps-server", "600"]
    one = subprocess.Popen(command, executable="/bin/sleep", stdin=quiet, stdout=quiet,
                           stderr=quiet, start_new_session=True)
    open(file, "w").write(str(one.pid))
    raise SystemExit
if not os.path.exists(file):
    raise SystemExit("no control daemon")
server = open(file).read()
for line in sys.stdin:
    if line.startswith("quit"):
        os.kill(int(server), 9)
        os.remove(file)
    elif line.startswith("get_server_list"):
        print(server)
    elif line.startswith("get_client_list"):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                seen = open(f"/proc/{{pid}}/environ", errors="replace").read()
            except OSError:
                continue
            ours = f"CUDA_MPS_PIPE_DIRECTORY={{folder}}" in seen
            if ours and pid not in (server, str(os.getpid())):
                print(pid)
"""


@pytest.fixture
def mps_stage(stage: Stage, tmp_path: Path) -> Stage:
    control = tmp_path / "bin" / mps.CONTROL
    control.parent.mkdir()
    control.write_text(CONTROL)
    control.chmod(0o755)
    return stage.with_env(PATH=f"{control.parent}{os.pathsep}{stage.env['PATH']}")


def test_who_is_a_client_of_the_daemons_server_and_what_is_left_of_it(
    mps_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", mps_stage.env["PATH"])
    found = mps.pair(mps_stage, LONG_S)
    assert found["clients"] == 2
    assert len(found["processes"]) == 1
    assert found["gone_after_s"] is not None


def test_a_killed_daemon_leaves_its_server_and_the_next_one_ends_it(
    mps_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", mps_stage.env["PATH"])
    monkeypatch.setattr(mps, "CHECKED", ("lp", 200, 5, 0))
    found = mps.death(mps_stage, 4.0)
    assert len(found["left"]) == 1
    assert found["runs_on"] is True
    assert found["later"] == "runs"
    assert found["gone_after_s"] is not None
