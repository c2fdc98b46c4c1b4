"""Predicting real programs' costs on llvmpipe and PoCL: what is followed, what is given up, and
that programs do what they did without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from headway.engine.events import Described, Event, Measured
from headway.live.wire.layout import Unfollowed
from headway.view.errors import INTERRUPTED
from tests.integration import cuda, gl, opencl
from tests.integration.command import HEADWAY, headway
from tests.integration.daemon_client import running_daemon

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

SQUARE, ALL = 128 * 128, 256 * 256
"""Pixels of the square that is drawn, and of the viewport."""
UNPROJECTED = 0x40
FOLLOWED = {
    "plain": SQUARE,
    "product": SQUARE,
    "placed": SQUARE,
    "block": SQUARE,
    "client": SQUARE,
    "vao": SQUARE,
    "shared": SQUARE,
    "garbage": SQUARE,
    "lost": SQUARE,
    "instanced": 8 * SQUARE,
    "overdraw": 5 * SQUARE,
}
"""Pixels that a frame's draws cover, of ways that are followed."""
MODES = (*FOLLOWED, "rewritten", "mapped", "no-matrix", "zero")
ON_THE_CPU = {"LIBGL_ALWAYS_SOFTWARE": "1", "EGL_PLATFORM": "surfaceless", "LP_NUM_THREADS": "1"}


@dataclass
class Watched:
    """Programs that ran one after the other under `--predict`, and what was recorded of them."""

    program: Path
    said: list[str]
    events: list[Event]

    @cached_property
    def described(self) -> dict[str, list[dict[str, int]]]:
        """The features of each mode's groups that draw, or clear, in order."""
        tasks: dict[str, list[dict[str, int]]] = {}
        for event in self.events:
            if isinstance(event, Described):
                tasks.setdefault(event.task, []).append(dict(event.features))
        assert len(tasks) == len(MODES)
        return dict(zip(MODES, tasks.values(), strict=True))

    def fragments(self, mode: str) -> list[int]:
        """Of each group that draws something."""
        return [
            sum(value for name, value in features.items() if name.endswith(".fragments"))
            for features in self.described[mode]
            if any(name.startswith("draw.") for name in features)
        ]

    def is_projected(self, mode: str) -> bool:
        """By the states of all its draws; they are the same or the test would say nothing."""
        names = {n for f in self.described[mode] for n in f if n.startswith("draw.")}
        states = {bool(int(name.split(".")[2], 16) & UNPROJECTED) for name in names}
        assert len(states) == 1
        return not states.pop()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("watched")
    program = folder / "varied"
    gl.compile_program(gl.PROGRAMS / "varied.c", program, *gl.LIBRARIES["varied"])
    trace = folder / "run.pftrace"
    words = ("--software-gpu", "--no-leases", "--trace", str(trace))
    with gl.machine_alone(), running_daemon(folder / "run", *words) as daemon:
        script = f"for mode in {' '.join(MODES)}; do {program} $mode; done"
        environment = {**os.environ, **ON_THE_CPU, "HEADWAY_DIR": str(daemon.folder)}
        run = ("run", "-q", "--software-gpu", "--name", "varied", "--predict", "adaptive", "--")
        done = headway(*run, "sh", "-c", script, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        events = daemon.recorded(trace)
    return Watched(program, done.stdout.splitlines(), events)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_pixels_and_errors_as_without_it(watched: Watched, mode: str) -> None:
    bare = subprocess.run(
        [watched.program, mode],
        env={**os.environ, **ON_THE_CPU},
        capture_output=True,
        text=True,
        check=True,
    )
    assert watched.said[MODES.index(mode)] == bare.stdout.strip()


@pytest.mark.parametrize("mode", FOLLOWED)
def test_the_pixels_that_a_frame_covers_are_known_before_it_runs(
    watched: Watched, mode: str
) -> None:
    found = watched.fragments(mode)
    assert len(found) >= 20
    assert watched.is_projected(mode)
    assert {round(pixels / FOLLOWED[mode], 2) for pixels in found} == {1.0}


@pytest.mark.parametrize("mode", ["rewritten", "mapped"])
def test_a_mesh_that_is_written_anew_each_frame_is_followed(watched: Watched, mode: str) -> None:
    found = watched.fragments(mode)[:20]
    assert watched.is_projected(mode)
    expected = [SQUARE * ((frame + 1) / 20) ** 2 for frame in range(20)]
    assert found == pytest.approx(expected, rel=0.02, abs=2)


def test_a_shader_without_a_matrix_counts_as_drawing_on_everything(watched: Watched) -> None:
    assert not watched.is_projected("no-matrix")
    assert set(watched.fragments("no-matrix")) == {ALL}


def test_in_a_viewport_of_no_size_nothing_is_drawn(watched: Watched) -> None:
    assert set(watched.fragments("zero")) == {0}


def test_explain_says_what_is_not_followed(watched: Watched, tmp_path: Path) -> None:
    with (
        gl.machine_alone(),
        running_daemon(tmp_path / "run", "--software-gpu", "--no-leases") as daemon,
    ):
        environment = {**os.environ, **ON_THE_CPU, "HEADWAY_DIR": str(daemon.folder)}
        run = [str(HEADWAY), "run", "-q", "--software-gpu", "--predict", "adaptive", "--"]
        process = subprocess.Popen(
            [*run, str(watched.program), "no-matrix", "stay"], env=environment
        )
        try:
            gl.wait_until(
                lambda: any(c["groups"] >= 20 for c in daemon.status()["channels"]), "20 groups"
            )
            task = daemon.status()["channels"][0]["task"]
            said = headway("explain", task, env=environment).stdout
        finally:
            process.terminate()
            process.wait()
    assert Unfollowed.NO_POSITION.doc in said


# -- calibrations ----------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """An environment with something that was calibrated before."""
    file = tmp_path / "headway" / "gl-calibration.json"
    file.parent.mkdir()
    zero = {"vertex_ns": 1.0, "fragment_ns": 2.0}
    before = {"device": "x", "flush_ns": 5.0, "clear_ns": {}, "usual": zero, "programs": {}}
    file.write_text(json.dumps({"devices": {"x": before}}))
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HEADWAY_DIR": str(tmp_path / "run")}


def kept(environment: dict[str, str]) -> str:
    return (Path(environment["XDG_STATE_HOME"]) / "headway" / "gl-calibration.json").read_text()


def test_an_interrupted_calibration_leaves_what_was_there_and_says_so(
    state: dict[str, str],
) -> None:
    before = kept(state)
    process = subprocess.Popen(
        [HEADWAY, "calibrate", "gl", "--software-gpu"],
        env=state,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    measuring = f"/proc/{process.pid}/task/{process.pid}/children"
    gl.wait_until(lambda: bool(Path(measuring).read_text().strip()), "a measurement")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=60)[1]
    assert process.returncode == INTERRUPTED
    assert said == "headway calibrate: interrupted; what was known before is kept\n"
    assert kept(state) == before


def test_on_a_device_that_others_use_nothing_is_calibrated(
    state: dict[str, str], tmp_path: Path
) -> None:
    before = kept(state)
    scenes = tmp_path / "scenes"
    source = gl.PROGRAMS.parents[1] / "examples" / "libetp" / "scenes.c"
    gl.compile_program(source, scenes, "-lEGL", "-lGLESv2", "-lm")
    with gl.machine_alone(), running_daemon(Path(state["HEADWAY_DIR"]), "--software-gpu") as daemon:
        command = [str(HEADWAY), "run", "-q", "--software-gpu", "--", str(scenes), "gears", "60"]
        other = subprocess.Popen(command, env={**state, **ON_THE_CPU})
        try:
            gl.wait_until(
                lambda: any((c["share"] or 0) > 0.05 for c in daemon.status()["channels"]),
                "a program that uses the device",
            )
            done = headway("calibrate", "gl", "--software-gpu", env=state)
        finally:
            other.terminate()
            other.wait()
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert "the device is busy" in done.stderr
    assert kept(state) == before


# -- launches --------------------------------------------------------------------------------------


def test_launches_of_opencl_are_measured_and_explained(tmp_path: Path) -> None:
    """clapp's kernel loops as often as it is told: its shape is the same, so it is one kind."""
    programs = opencl.compile_all(tmp_path)
    trace = tmp_path / "run.pftrace"
    words = ("--software-gpu", "--trace", str(trace))
    with gl.machine_alone(), running_daemon(tmp_path / "run", *words) as daemon:
        made = opencl.Programs(programs, daemon)
        options = ("--predict", "launches", "--reserve", "95ms/100ms")
        process = made.start("clapp", "hp", 2000, 4, 0, 6, options=options)

        def predictions() -> bool:
            return any(c["predictions"] for c in daemon.status()["channels"])

        gl.wait_until(predictions, "predictions of launches")
        channel = next(c for c in daemon.status()["channels"] if c["predictions"])
        said = headway(
            "explain", channel["task"], env={**os.environ, "HEADWAY_DIR": str(daemon.folder)}
        )
        opencl.finish(process)
        events = daemon.recorded(trace)
    assert "half of its last" in said.stdout
    assert "launches" in said.stdout
    measured = [event for event in events if isinstance(event, Measured)]
    kernels = {name for event in measured for name, _ in event.features if "items" in name}
    assert len(kernels) == 1
    costs = sorted(e.took_ns for e in measured if any("items" in name for name, _ in e.features))
    judged = json.loads(
        headway(
            "predict", "compare", str(trace), "--model", "launches", "--json"
        ).stdout.splitlines()[-1]
    )
    assert judged["task"].endswith(", launches")
    assert judged["groups"] > 20
    assert costs[len(costs) // 2] > 0


def test_launches_of_cuda_are_measured_and_results_are_the_same(
    gpu: cuda.Gpu, tmp_path: Path
) -> None:
    trace = tmp_path / "run.pftrace"
    costs: dict[str, list[int]] = {"short": [], "long": []}
    with running_daemon(tmp_path / "run", "--trace", str(trace)) as daemon:
        environment = gpu.environment({"HEADWAY_DIR": daemon.folder})
        options = ("--predict", "launches", "--reserve", "95ms/100ms")
        for name, us in (("short", 1000), ("long", 4000)):
            words = gpu.command("cudaapp", "fix", us, 4, 5, 40)
            run = [str(HEADWAY), "run", "-q", "--name", name, *options, "--", *words]
            managed = subprocess.run(run, env=environment, capture_output=True, text=True)
            bare = subprocess.run(words, env=gpu.environment(), capture_output=True, text=True)
            assert managed.returncode == 0, managed.stderr
            assert json.loads(managed.stdout)["checksum"] == json.loads(bare.stdout)["checksum"]
        events = daemon.recorded(trace)
    for event in events:
        if isinstance(event, Measured) and any("items" in name for name, _ in event.features):
            costs[event.task.partition(".")[0]].append(event.took_ns)
    short, long = (min(taken) for taken in costs.values())
    assert 2 < long / short < 8, "the kernels of one take four times as long as the other's"


# -- the paper's figures ---------------------------------------------------------------------------


def test_a_figure_of_the_paper_is_run_and_judged(tmp_path: Path) -> None:
    with gl.machine_alone():
        environment = {**os.environ, **ON_THE_CPU, "COLUMNS": "200"}
        words = ("papers", "run", "libetp/fig9", "--live", "--software-gpu", "--seconds", "2")
        done = headway(*words, "--json", "--plot", str(tmp_path / "f.png"), env=environment)
    if "device is busy" in done.stderr:
        pytest.fail(f"the machine is too busy to be calibrated: {done.stderr}")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [row[1] for row in said["rows"]] == ["history", "libetp", "adaptive"]
    assert all(int(row[2]) >= 10 for row in said["rows"])
    unknown = {row[1]: int(row[9]) for row in said["rows"]}
    assert unknown["libetp"] == 0, "its program was calibrated before it ran"
    assert unknown["adaptive"] <= 1, "one kind of frames"
    assert len(said["claims"]) == 5
    assert (tmp_path / "f.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["libetp/fig7"], "libetp/fig7 is measured, not simulated; run it with --live"),
        (["libetp/fig7", "--seconds", "3"], "--seconds: expected --live as well"),
        (["cudamon/fig4", "--live", "--software-gpu"], "--software-gpu: found cudamon/fig4"),
        (["libetp/fig7", "--live", "--prng", "true"], "--prng: found libetp/fig7"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(words: list[str], why: str) -> None:
    done = headway("papers", "run", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert why in done.stderr


def test_without_a_compiler_the_scenes_are_not_built(tmp_path: Path) -> None:
    done = headway(
        "papers", "run", "libetp/fig7", "--live", env={**os.environ, "PATH": str(tmp_path)}
    )
    assert done.returncode != 0
    assert "no C compiler" in done.stderr
