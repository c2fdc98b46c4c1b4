"""Programs nobody changed run under `headway run`: managed, and otherwise as without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.live.identity.launcher import library
from tests.integration import gl
from tests.integration.gl import Stage, wait_until

pytestmark = pytest.mark.live

GLMARK = ("glmark2-es2", "-s", "200x150")


@pytest.fixture
def count(stage: Stage) -> str:
    return str(stage.built / "count.so")


def program(stage: Stage, name: str, *arguments: str) -> list[str]:
    if name == "frames.py":
        return [sys.executable, str(gl.PROGRAMS / name), *arguments]
    return [str(stage.built / name), *arguments]


# -- the hooks fire ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["es2gears_x11"],
        ["glxgears"],
        [*GLMARK, "-b", "build:duration=20"],
        [*GLMARK, "-b", "shading:duration=20"],
        ["bomb", "20", "256"],
        ["frames", "--endless"],
        ["frames.py", "1000000"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}" if len(command) > 1 else command[0],
)
def test_a_program_is_managed(stage: Stage, command: list[str]) -> None:
    ours = (gl.PROGRAMS / f"{Path(command[0]).stem}.c").exists()
    line = program(stage, command[0], *command[1:]) if ours else command
    started = stage.start(*line, options=["--name", "it", "--priority", "5"])
    wait_until(lambda: stage.is_managed("it") or started.ended(), "a group at the gate")
    channels = stage.channels("it")
    assert not started.ended(), started.process.returncode
    assert channels, (stage.complaint, stage.status())
    assert channels[0]["pid"] == started.process.pid
    assert channels[0]["effective"] == 5

    def goes_on() -> bool:
        return bool(sum(c["groups"] + c["passed"] for c in stage.channels("it")) > 5)

    wait_until(lambda: goes_on() or started.ended(), "more groups")
    assert not started.ended(), started.process.returncode


@pytest.mark.parametrize(("deadline", "missed"), [("1ns", True), ("100s", False)])
def test_frames_are_jobs(stage: Stage, deadline: str, missed: bool) -> None:
    """As many as the program showed, each with the time from its first group to its last."""
    stage.start("es2gears_x11", options=["--name", "it", "--deadline", deadline])

    def jobs() -> int:
        return sum(c["jobs"] for c in stage.channels("it"))

    wait_until(lambda: jobs() > 100, "frames")
    (entry,) = stage.channels("it")
    assert abs(entry["frames"] - entry["jobs"]) <= 2  # the first and the last
    assert 0 < entry["job_p50_ns"] <= entry["job_p99_ns"]
    assert (entry["misses"] > 0) == missed
    assert entry["slowdown"] is None
    assert entry["gpu_in_jobs"] is None


# -- the same pixels -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["frames", "--route", "link"],
        ["frames", "--route", "dlsym"],
        ["frames", "--route", "deepbind"],
        ["frames", "--route", "egl"],
        ["unlinked", "--route", "dlsym", "--reload"],
        ["frames", "--threads", "3"],
        ["frames", "--contexts", "3"],
        ["frames", "--threads", "2", "--contexts", "2", "--recreate"],
        ["frames", "--fork"],
        ["frames", "--fork", "--exec"],
        ["frames", "--signal"],
        ["glx", "link"],
        ["glx", "look-up"],
        ["frames.py"],
    ],
    ids=" ".join,
)
def test_frames_errors_and_errno_are_those_of_the_program_alone(
    stage: Stage, command: list[str]
) -> None:
    line = program(stage, *command)
    alone = stage.run(*line, headway=False)
    managed = stage.run(*line, options=["--require", "--priority", "3"])
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout.count("frame") >= 5
    assert (managed.stdout, managed.stderr) == (alone.stdout, alone.stderr)
    assert managed.returncode == 0


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("frames", {"MESA_GLES_VERSION_OVERRIDE": "2.0"}),
        ("glx", {"MESA_GL_VERSION_OVERRIDE": "2.1"}),
        ("frames", {"MESA_GLES_VERSION_OVERRIDE": "3.0"}),
    ],
    ids=["ES 2.0", "GL 2.1", "ES 3.0"],
)
def test_contexts_without_fences_see_no_errors(
    stage: Stage, name: str, override: dict[str, str]
) -> None:
    alone = stage.run(*program(stage, name), headway=False, env=override)
    managed = stage.run(*program(stage, name), options=["--require"], env=override)
    assert alone.stdout.count("error 0") >= 5
    assert managed.stdout == alone.stdout


def test_pixels_are_the_same_while_others_compete(stage: Stage) -> None:
    line = program(stage, "frames", "--frames", "6", "--contexts", "2")
    alone = stage.run(*line, headway=False)
    stage.start(*program(stage, "bomb", "60"), options=["--name", "bomb", "--priority", "1"])
    wait_until(lambda: stage.is_managed("bomb"), "the bomb at the gate")
    managed = stage.run(*line, options=["--priority", "9"])
    assert managed.stdout == alone.stdout


@pytest.mark.parametrize("options", [[], ["--no-leases"]], ids=["leases", "no leases"])
def test_a_fence_stays_until_the_driver_is_done_with_it(
    bare_stage: Stage, options: list[str]
) -> None:
    """llvmpipe's thread writes to a scene's fence after it has said that it is reached, and the
    driver has let go of it by then. Without Headway the program ends with 66 here."""
    bare_stage.daemon(*options)
    line = program(bare_stage, "frames.py", "40")
    alone = bare_stage.run(*line, headway=False)
    env = {"LD_PRELOAD": str(bare_stage.built / "late.so"), "MALLOC_PERTURB_": "165"}
    env["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0"
    managed = bare_stage.run(*line, options=["--require"], env=env)
    assert (managed.returncode, managed.stdout) == (0, alone.stdout), managed.stderr


def test_glmark2_validates_its_scenes(stage: Stage) -> None:
    scenes = [
        "build:use-vbo=false",
        "texture:texture-filter=nearest",
        "shading:shading=gouraud",
        "effect2d:kernel=0,1,0;1,-4,1;0,1,0;",
    ]
    options = [part for scene in scenes for part in ("-b", scene)]
    result = stage.run(*GLMARK[:1], "--validate", *options, options=["--require"])
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("Validation: Success") >= 3, result.stdout
    assert "Failure" not in result.stdout


# -- the process is the program's own ------------------------------------------------------------


def test_arguments_stdin_and_exit_code_pass_through(stage: Stage) -> None:
    script = 'printf "%s|" "$@"; cat; exit 42'
    result = stage.run("sh", "-c", script, "sh", "a b", "--name", "*", input="from stdin")
    assert result.stdout == "a b|--name|*|from stdin"
    assert result.returncode == 42


def test_a_signal_ends_the_program_itself(stage: Stage) -> None:
    started = stage.start("es2gears_x11", options=["--name", "gears"])
    wait_until(lambda: stage.is_managed("gears"), "gears at the gate")
    assert started.stop(signal.SIGTERM) == -signal.SIGTERM  # 143 as a shell shows it
    wait_until(lambda: not stage.channels("gears"), "an end that the daemon has seen")


def test_a_program_may_exit_in_the_middle_of_a_frame(stage: Stage) -> None:
    assert stage.run(*program(stage, "frames", "--exit-in-frame", "5")).returncode == 5


def test_a_killed_program_leaves_the_gpu_to_the_others(stage: Stage) -> None:
    first = stage.start("es2gears_x11", options=["--name", "first", "--priority", "9"])
    second = stage.start("es2gears_x11", options=["--name", "second", "--priority", "1"])
    wait_until(lambda: stage.is_managed("first") and stage.is_managed("second"), "both")
    first.stop(signal.SIGKILL)
    before = second.frames()
    wait_until(lambda: second.frames() > before + 20, "frames of the other", seconds=5)


def test_a_preloaded_library_is_kept_and_finds_the_real_functions(stage: Stage, count: str) -> None:
    counter = stage.folder / "counted"
    result = stage.run(
        *program(stage, "frames", "--frames", "7"),
        options=["--require"],
        env={"LD_PRELOAD": count, "FRAME_COUNT": str(counter)},
    )
    assert result.returncode == 0
    assert gl.Program(None, counter).frames() == 7  # type: ignore[arg-type]


def test_a_program_without_gl_does_not_see_gl_functions(stage: Stage) -> None:
    ask = "import ctypes; print(hasattr(ctypes.CDLL(None), 'glClear'))"
    command = [sys.executable, "-c", ask]
    assert stage.run(*command, headway=False).stdout == "False\n"
    assert stage.run(*command, options=["--require"]).stdout == "False\n"


def test_a_library_is_found_on_the_path_of_whoever_loads_it(stage: Stage) -> None:
    """The loader looks at who called dlopen, and that must not become the interposer."""
    place = stage.folder / "own"
    place.mkdir()
    (place / "own.c").write_text("int answer(void) { return 42; }")
    (place / "main.c").write_text(
        "#include <dlfcn.h>\n"
        'int main(void) { void *own = dlopen("libown.so", RTLD_NOW);'
        ' return own ? ((int (*)(void))dlsym(own, "answer"))() : 1; }'
    )
    build = ["gcc", "own.c", "-shared", "-fPIC", "-o", "libown.so"]
    subprocess.run(build, cwd=place, check=True)
    link = ["gcc", "main.c", "-o", "main", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
    subprocess.run(link, cwd=place, check=True)
    assert stage.run(str(place / "main"), headway=False).returncode == 42
    assert stage.run(str(place / "main"), options=["--require"]).returncode == 42


def test_a_program_may_lock_its_memory_within_the_default_limit(stage: Stage) -> None:
    """8 MiB, of which the program alone needs some 2.5; root may lock more, unless it gives that
    right away."""
    limits = ["prlimit", "--memlock=8388608", "setpriv", "--bounding-set=-ipc_lock"]
    for headway in (False, True):
        prefix = [gl.HEADWAY, "run", "-q", "--require", "--"] if headway else []
        command = [*limits, *prefix, *program(stage, "locked")]
        result = stage.run(*command, headway=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_a_program_with_gccs_address_sanitizer_is_managed_and_looked_after(
    stage: Stage, tmp_path: Path
) -> None:
    """The sanitizer refuses to be the second library, and would end the program."""
    checked, wrong = tmp_path / "checked", tmp_path / "wrong"
    options = ("-fsanitize=address", "-g", *gl.LIBRARIES["frames"])
    gl.compile_program(gl.PROGRAMS / "frames.c", checked, *options)
    env = {"ASAN_OPTIONS": "detect_leaks=0"}
    alone = stage.run(str(checked), headway=False, env=env)
    managed = stage.run(str(checked), options=["--require"], env=env)
    assert alone.stdout.count("frame") >= 5
    assert (managed.returncode, managed.stdout, managed.stderr) == (0, alone.stdout, "")
    wrong.with_suffix(".c").write_text(
        "#include <stdlib.h>\n"
        "int main(void) { volatile char *p = calloc(8, 1); p[8] = 1; return 0; }"
    )
    gl.compile_program(wrong.with_suffix(".c"), wrong, "-fsanitize=address")
    found = stage.run(str(wrong), options=["--require"])
    assert "heap-buffer-overflow" in found.stderr
    assert found.returncode != 0


def test_a_program_that_closes_every_descriptor_goes_on(stage: Stage) -> None:
    """Its numbers are taken by other files then, and nothing may be written into those."""
    script = (
        "import os, sys, runpy\n"
        f"sys.argv = ['frames.py', '3']\n"
        f"names = runpy.run_path({str(gl.PROGRAMS / 'frames.py')!r})\n"
        "ours = [n for n in map(int, os.listdir('/proc/self/fd')) if n >= 200]\n"
        "for n in ours:\n    os.close(n)\n    os.open('victim', os.O_RDWR | os.O_CREAT)\n"
        "for n in ours:\n"
        "    fd = os.open('victim', os.O_RDWR)\n    os.dup2(fd, n)\n    os.close(fd)\n"
        "print(len(ours), [names['frame'](n) for n in range(3)])\n"
    )
    result = stage.run(sys.executable, "-c", script, cwd=stage.folder)
    lines = result.stdout.splitlines()
    assert result.returncode == 0, result.stderr
    assert lines[-1].startswith("1 [")
    for number in range(3):
        assert lines[number].split()[2] in lines[-1]
    assert (stage.folder / "victim").read_bytes() == b""


# -- the daemon comes and goes -------------------------------------------------------------------


def test_a_private_daemon_is_started_and_ends_with_its_last_program(bare_stage: Stage) -> None:
    gears = bare_stage.start("es2gears_x11", options=["--name", "gears"])
    wait_until(lambda: bare_stage.is_managed("gears"), "gears at the gate")
    gears.stop()
    wait_until(lambda: bare_stage.status() is None, "the end of the private daemon")


def test_a_program_survives_the_daemon_and_is_taken_up_by_the_next(bare_stage: Stage) -> None:
    daemon = bare_stage.daemon()
    gears = bare_stage.start("es2gears_x11", options=["--name", "gears", "--priority", "7"])
    wait_until(lambda: bare_stage.is_managed("gears"), "gears at the gate")
    daemon.kill()
    daemon.wait()
    before = gears.frames()
    wait_until(lambda: gears.frames() > before + 50, "frames without a daemon", seconds=5)
    assert not gears.ended()
    bare_stage.daemon()
    wait_until(lambda: bool(bare_stage.channels()), "a connection to the new daemon", seconds=5)
    assert bare_stage.channels()[0]["pid"] == gears.process.pid


def test_a_stopped_daemon_stops_nobody(bare_stage: Stage) -> None:
    daemon = bare_stage.daemon()
    first = bare_stage.start("es2gears_x11", options=["--name", "first"])
    second = bare_stage.start("es2gears_x11", options=["--name", "second"])
    wait_until(lambda: bare_stage.is_managed("first") and bare_stage.is_managed("second"), "both")
    daemon.send_signal(signal.SIGSTOP)
    try:
        for gears in (first, second):
            before = gears.frames()
            wait_until(lambda: gears.frames() > before + 100, "frames", seconds=5)  # noqa: B023
    finally:
        daemon.send_signal(signal.SIGCONT)
    before = sum(c["groups"] for c in bare_stage.channels())
    wait_until(
        lambda: sum(c["groups"] for c in bare_stage.channels()) > before, "groups at the gate"
    )


def test_without_a_daemon_a_program_runs_unmanaged_and_says_so_in_one_line(
    bare_stage: Stage,
) -> None:
    result = bare_stage.run("sh", "-c", "exit 5", options=["--no-daemon"])
    assert result.returncode == 5
    assert result.stderr.count("\n") == 1
    assert "unmanaged" in result.stderr


def test_require_fails_rather_than_run_unmanaged(bare_stage: Stage) -> None:
    result = bare_stage.run(
        "touch", "ran", options=["--no-daemon", "--require"], cwd=bare_stage.folder
    )
    assert result.returncode not in (0, -signal.SIGSEGV)
    assert result.stderr.count("\n") == 1
    assert not (bare_stage.folder / "ran").exists()


def test_a_static_program_is_named_as_one_that_cannot_be_managed(stage: Stage) -> None:
    result = stage.run(*program(stage, "static"))
    assert result.stdout == "static\n"
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
    assert "statically" in result.stderr


def test_nothing_is_printed_by_the_interposer(stage: Stage) -> None:
    env = stage.environment(LD_PRELOAD=str(library()), HEADWAY_SOCKET="/nowhere")
    result = subprocess.run(
        program(stage, "frames", "--frames", "2"), env=env, capture_output=True, check=True
    )
    assert result.stderr == b""
    env["HEADWAY_VERBOSE"] = "1"
    told = subprocess.run(
        program(stage, "frames", "--frames", "2"), env=env, capture_output=True, check=True
    )
    assert told.stderr.count(b"\n") == 1
    assert told.stdout == result.stdout


def test_the_software_gpu_is_one_cpu(stage: Stage) -> None:
    assert gl.runs_as_one_device(), "needs two CPUs: one of them plays the GPU"
    gears = stage.start("es2gears_x11", options=["--name", "gears"])
    wait_until(lambda: stage.is_managed("gears"), "gears at the gate")
    places: dict[bool, list[set[int]]] = {}
    for task in Path(f"/proc/{gears.process.pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        places.setdefault(name.startswith("llvmpipe-"), []).append(
            os.sched_getaffinity(int(task.name))
        )
    assert places[True] == [{gl.GPU_CPU}]
    assert all(gl.GPU_CPU not in place for place in places[False])


@pytest.mark.parametrize("command", [gl.GEARS, "glxgears"])
def test_the_gears_first_frame_is_the_same(stage: Stage, command: str, tmp_path: Path) -> None:
    # Later frames turn with the clock; the first one is always at angle 0.
    def first_frame(name: str, *, managed: bool) -> list[str]:
        seen = tmp_path / name
        env = stage.environment(LD_PRELOAD=str(stage.built / "count.so"), FIRST_FRAME=str(seen))
        prefix = [str(gl.HEADWAY), "run", "-q", "--name", "it", "--"] if managed else []
        started = stage.start(*prefix, command, env=env)
        wait_until(lambda: seen.exists() and seen.read_text().endswith("\n"), "a first frame")
        if managed:
            wait_until(lambda: stage.is_managed("it"), "a group at the gate")
        started.stop(signal.SIGKILL)
        return seen.read_text().split()

    without, with_headway = (first_frame(str(m), managed=m) for m in (False, True))
    assert int(without[2]) > 1000, "the frame is blank"
    assert with_headway == without


def test_the_bomb_draws_the_same(stage: Stage) -> None:
    command = [str(stage.built / "bomb"), "0", "128", "10", "510"]
    without = stage.run(*command, headway=False)
    managed = stage.run(*command, options=["-q"])
    assert without.stdout.startswith("510 clears, hash ")
    assert managed.stdout == without.stdout
    other = stage.run(*command[:-1], "520", headway=False)
    assert other.stdout.split()[3] != without.stdout.split()[3], "the hash says nothing"
