"""`headway doctor -- program`: what real programs are seen to find, to call and to pass by."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headway.live.identity import launcher
from headway.live.wire import header
from tests.bench.cuda_programs import SETS_AND_COPIES, WAYS
from tests.bench.softcuda import CHECKSUM, JOBS, KERNELS, WARM_UP
from tests.integration import cuda, gl, opencl
from tests.integration.command import HEADWAY, ROOT, headway
from tests.integration.daemon_client import running_daemon, wait_until

LAUNCHES = (WARM_UP + JOBS) * KERNELS
FIXED = ("fix", 50, KERNELS, 0, JOBS)
NEW_DRIVER = {"SOFTCUDA_VERSION": 14000}


@dataclass
class Seen:
    """What the doctor said, and the program's own words."""

    code: int
    checks: dict[str, dict[str, str]]
    run: dict[str, Any]
    output: str

    def api(self, name: str) -> dict[str, Any]:
        found = [api for api in self.run["survey"]["apis"] if api["name"] == name]
        assert len(found) == 1, self.run
        return dict(found[0])

    def passed(self, name: str) -> list[tuple[str, str, str, int | None]]:
        return [(p["name"], p["way"], p["why"], p["calls"]) for p in self.api(name)["passed"]]


def examined(
    *command: object, env: Mapping[str, str], folder: Path, options: tuple[str, ...] = ()
) -> Seen:
    words = ["doctor", "--json", *options, "--", *map(str, command)]
    result = headway(*words, env={**env, "HEADWAY_DIR": str(folder)})
    answer = json.loads(result.stdout)  # the program's output is not among it
    checks = {entry["check"]: entry for entry in answer["checks"]}
    return Seen(result.returncode, checks, answer["run"], result.stderr)


def looks_up(*names: str) -> tuple[str, ...]:
    """A Python program that finds functions of libcuda.so.1 by dlsym."""
    code = f"""
    import ctypes
    cuda = ctypes.CDLL("libcuda.so.1")
    for name in {names!r}:
        getattr(cuda, name)
    """
    return sys.executable, "-c", textwrap.dedent(code)


# -- CUDA ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_cuda_is_seen_and_every_call_is_counted(
    gpu: cuda.Gpu, tmp_path: Path, way: str
) -> None:
    suffix, env = WAYS[way]
    command = gpu.command(f"cudaapp{suffix}", *FIXED)
    seen = examined(*command, env=gpu.environment(env), folder=tmp_path)
    assert f'"checksum": {CHECKSUM}' in seen.output
    api = seen.api("CUDA")
    through = {"proc": "cuGetProcAddress", "proc2": "cuGetProcAddress_v2"}
    assert api["ways"] == (["dlsym", through[way]] if way in through else [way])
    calls = {name: count for name, count in api["hooked"].items() if "ProcAddress" not in name}
    work = {n: c for n, c in calls.items() if c and n.startswith(("cuLaunch", "cuMem"))}
    assert work == {"cuLaunchKernel": LAUNCHES, "cuMemsetD32_v2": 1, "cuMemcpyDtoH_v2": 1}
    assert sum(work.values()) == LAUNCHES + SETS_AND_COPIES
    assert calls["cuStreamSynchronize"] == WARM_UP + JOBS
    assert api["passed"] == []
    assert seen.run["survey"]["processes"] == 1
    assert seen.run["managed"] == "unmanaged (no daemon runs)"
    assert seen.checks["run"]["found"].startswith("the program ended with exit code 0, unmanaged")


def test_a_version_that_is_not_known_is_told_with_its_reason(gpu: cuda.Gpu, tmp_path: Path) -> None:
    env = gpu.environment({**NEW_DRIVER, "VIA": "proc2", "LAUNCH": "future"})
    command = gpu.command("cudaapp", *FIXED)
    seen = examined(*command, env=env, folder=tmp_path)
    assert f'"checksum": {CHECKSUM}' in seen.output
    why = "version 14.0 was asked for; up to 13.x is known"
    assert seen.passed("CUDA") == [("cuLaunchKernel", "cuGetProcAddress_v2", why, LAUNCHES)]
    assert seen.api("CUDA")["hooked"]["cuLaunchKernel"] == 0
    assert seen.checks["CUDA passed by"]["state"] == "warn"
    assert seen.code == 0
    text = headway("doctor", "--", *command, env={**env, "HEADWAY_DIR": str(tmp_path)})
    assert f'"checksum": {CHECKSUM}' in text.stdout
    found = f"cuLaunchKernel (by cuGetProcAddress_v2, called {LAUNCHES} times): {why}"
    assert found in text.stdout


def test_names_that_are_not_known_are_told_however_they_are_found(
    gpu: cuda.Gpu, tmp_path: Path
) -> None:
    """What only begins like work is not among them."""
    source = tmp_path / "linked.c"
    source.write_text(
        "extern int cuInit(unsigned), cuLaunchKernelBatch(void *, unsigned, void *, void *);\n"
        "int main(int n, char **a) { (void)a; return n > 9 ? cuLaunchKernelBatch(0, 0, 0, 0) : "
        "cuInit(0); }\n"
    )
    gl.compile_program(source, tmp_path / "linked", str(gpu.built / "libcuda.so.1"))
    new = "not known to this Headway"
    ours = gpu.environment(NEW_DRIVER)
    linked = examined(tmp_path / "linked", env=ours, folder=tmp_path)
    assert linked.passed("CUDA") == [("cuLaunchKernelBatch", "link", new, None)]
    assert linked.checks["CUDA"]["found"] == "nothing of it was hooked"
    names = ("cuLaunchKernelBatch", "cuLaunchKernel", "cuLaunchHostFunc", "cuLaunchKernel_v3_ptsz")
    found = examined(*looks_up(*names), env=ours, folder=tmp_path)
    other = "another version than those known (cuLaunchKernel, cuLaunchKernel_ptsz)"
    assert found.passed("CUDA") == [
        ("cuLaunchKernelBatch", "dlsym", new, 0),
        ("cuLaunchKernel_v3_ptsz", "dlsym", other, 0),
    ]
    assert found.checks["CUDA passed by"]["state"] == "ok"  # nobody called them
    assert found.api("CUDA")["hooked"] == {"cuLaunchKernel": 0}


@pytest.mark.parametrize("looked_at", [False, True])
def test_what_passes_by_takes_and_gives_what_it_would(tmp_path: Path, looked_at: bool) -> None:
    """Whatever it takes: in registers or not, numbers of every kind, structures, as many as come.
    More than can be counted pass as well."""
    source, said = cuda.SOURCES / "strange.c", "6.5 10.5 111 4.5 19900\n"
    gl.compile_program(source, tmp_path / "libcuda.so.1", "-shared", "-fPIC", "-DDRIVER")
    gl.compile_program(source, tmp_path / "strange", "-ldl")
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    if not looked_at:
        plain = subprocess.run([tmp_path / "strange"], env=env, capture_output=True, check=True)
        assert plain.stdout == said.encode()
        return
    seen = examined(tmp_path / "strange", env=env, folder=tmp_path)
    assert said in seen.output
    calls = [entry["calls"] for entry in seen.api("CUDA")["passed"]]
    assert calls == [1] * 128 + [None] * 74  # two strange ones and 200 plain ones


# -- OpenGL and OpenCL -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opencl.compile_all(tmp_path_factory.mktemp("opencl")) / "clapp"


@pytest.mark.parametrize("route", ["as a layer", "before the loader"])
def test_opencl_is_seen_once_whichever_way_it_goes(clapp: Path, tmp_path: Path, route: str) -> None:
    command = (*opencl.ROUTES[route], clapp, *FIXED)
    api = examined(*command, env=opencl.environment(), folder=tmp_path).api("OpenCL")
    assert ("OPENCL_LAYERS" in api["ways"]) == (route == "as a layer")
    assert "link" in api["ways"]
    assert api["hooked"]["clEnqueueNDRangeKernel"] == LAUNCHES
    assert api["passed"] == []


def test_functions_of_extensions_pass_by(tmp_path: Path) -> None:
    code = """
    import ctypes
    opencl, platform = ctypes.CDLL("libOpenCL.so.1"), ctypes.c_void_p()
    assert opencl.clGetPlatformIDs(1, ctypes.byref(platform), None) == 0
    ask = opencl.clGetExtensionFunctionAddressForPlatform
    ask.restype, ask.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    assert ask(platform, b"clEnqueueCommandBufferKHR")
    assert not ask(platform, b"clEnqueueNothing")
    """
    command = (sys.executable, "-c", textwrap.dedent(code))
    seen = examined(*command, env=opencl.environment(), folder=tmp_path)
    assert seen.run["ended"] == "ended with exit code 0", seen.output
    way = "clGetExtensionFunctionAddressForPlatform"
    why = "functions of extensions are the driver's own"
    assert seen.passed("OpenCL") == [("clEnqueueCommandBufferKHR", way, why, 0)]


def test_an_interposer_without_opencl_says_so(clapp: Path, tmp_path: Path) -> None:
    library = tmp_path / "libheadway.so"
    flags = ("-std=gnu11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror")
    sources = sorted(map(str, (ROOT / "shim").glob("*/*.c")))
    places = [*(ROOT / "shim").iterdir(), header.write(tmp_path).parent]
    folders = [f"-I{path}" for path in places]
    command = [
        "gcc",
        *flags,
        *folders,
        "-DHEADWAY_WITHOUT_OPENCL",
        "-o",
        str(library),
        *sources,
        "-ldl",
    ]
    subprocess.run([*command, "-lpthread"], check=True)
    code = f"""
    import pathlib
    from headway.live.identity import launcher
    launcher.library = lambda: pathlib.Path({str(library)!r})
    from headway.view.cli import main
    main()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), "doctor", "--", clapp, *map(str, FIXED)],
        env={**opencl.environment(), "HEADWAY_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "it was built without OpenCL" in result.stdout
    why = "(by link, calls cannot be seen): this interposer was built without OpenCL"
    assert f"clEnqueueNDRangeKernel {why}" in result.stdout
    assert "and build headway again" in result.stdout


def test_gears_are_ended_and_what_they_drew_is_told(display: str, tmp_path: Path) -> None:
    env = {**os.environ, "DISPLAY": display}
    seen = examined("es2gears_x11", env=env, folder=tmp_path, options=("--for", "2s"))
    assert seen.run["ended"] == "was ended after 2 s"
    api = seen.api("OpenGL")
    assert (api["ways"], api["passed"]) == (["link"], [])
    frames = api["hooked"]["eglSwapBuffers"]
    assert frames > 1
    assert abs(api["hooked"]["glDrawArrays"] - 3 * frames) <= 3  # a gear each
    assert "glXSwapBuffers" not in api["hooked"]


def test_gl_that_is_looked_up_is_seen(display: str, built: Path, tmp_path: Path) -> None:
    env = {**os.environ, "DISPLAY": display}
    command = (built / "unlinked", "--route", "egl", "--frames", 5)
    seen = examined(*command, env=env, folder=tmp_path)
    api = seen.api("OpenGL")
    assert {"dlsym", "eglGetProcAddress"} <= set(api["ways"])
    assert "link" not in api["ways"]
    assert api["hooked"]["glClear"] >= 5


# -- however a program ends ------------------------------------------------------------------------


def test_a_program_without_a_gpu_is_told_in_one_line(tmp_path: Path) -> None:
    seen = examined("/bin/true", env=os.environ, folder=tmp_path)
    assert seen.checks["GPU"]["found"] == "it used none of OpenGL, CUDA, OpenCL, Vulkan"
    assert seen.run["survey"] == {"processes": 1, "apis": []}


def test_a_static_program_runs_and_nothing_is_seen(built: Path, tmp_path: Path) -> None:
    seen = examined(built / "static", env=os.environ, folder=tmp_path)
    assert seen.run["ended"] == "ended with exit code 3"
    assert "linked statically" in seen.checks["program"]["found"]
    assert "let into none of its processes" in seen.checks["run"]["found"]
    assert seen.code == 1
    assert "static\n" in seen.output


def test_a_crash_does_not_take_away_what_was_seen(gpu: cuda.Gpu, tmp_path: Path) -> None:
    python, option, code = looks_up("cuLaunchKernel", "cuLaunchKernelBatch")
    crash = "import ctypes; ctypes.CDLL('libcuda.so.1').cuStreamQuery(None); ctypes.string_at(0)"
    seen = examined(
        python, option, f"{code}\n{crash}", env=gpu.environment(NEW_DRIVER), folder=tmp_path
    )
    assert seen.run["ended"] == "was killed by SIGSEGV"
    assert seen.api("CUDA")["hooked"] == {"cuLaunchKernel": 0, "cuStreamQuery": 1}
    assert [name for name, *_ in seen.passed("CUDA")] == ["cuLaunchKernelBatch"]


def test_children_are_seen_too(gpu: cuda.Gpu, tmp_path: Path) -> None:
    app = " ".join(gpu.command("cudaapp", *FIXED))
    linked = " ".join(gpu.command("cudaapp-linked", *FIXED))
    script = f"VIA=dlsym {app} && {linked}; exit 7"
    seen = examined("sh", "-c", script, env=gpu.environment(), folder=tmp_path)
    assert seen.run["ended"] == "ended with exit code 7"
    api = seen.api("CUDA")
    assert set(api["ways"]) == {"dlsym", "link"}
    assert api["hooked"]["cuLaunchKernel"] == 2 * LAUNCHES
    assert sorted(api["processes"].values()) == ["cudaapp", "cudaapp-linked"]


def test_who_interrupts_the_doctor_gets_the_list_and_nothing_goes_on(
    gpu: cuda.Gpu, tmp_path: Path
) -> None:
    """Also of a program that does not want to end, and of what it left behind."""
    app = " ".join(gpu.command("cudaapp", "lp", 200, 4, 0, 600))
    mark = tmp_path / "pids"
    script = f"trap '' INT TERM; {app} & (VIA=dlsym {app} & echo $! >> {mark}); echo $$ >> {mark}"
    process = subprocess.Popen(
        [HEADWAY, "doctor", "--", "sh", "-c", f"{script}; wait"],
        env={**gpu.environment(), "HEADWAY_DIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_until(lambda: mark.exists() and mark.read_text().count("\n") == 2, "the program runs")
    pids = mark.read_text().split()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "the program was interrupted" in out
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: str) -> bool:
    """Nobody may be there to ask how it ended."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_cannot_be_started_is_bad_and_a_wrong_duration_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF\x02 and no more")
    broken.chmod(0o755)
    seen = examined(broken, env=os.environ, folder=tmp_path)
    assert seen.checks["run"]["found"].startswith("the program did not start: Exec format error")
    assert seen.code == 1
    result = headway("doctor", "--for", "1x", "--", "true")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "'1x'" in result.stderr


# -- with a daemon ---------------------------------------------------------------------------------


def test_under_a_daemon_the_program_is_managed(gpu: cuda.Gpu, tmp_path: Path) -> None:
    with running_daemon(tmp_path / "run") as daemon:
        command = gpu.command("cudaapp", *FIXED)
        seen = examined(*command, env=gpu.environment(), folder=daemon.folder)
        assert seen.run["managed"] == "managed"
        assert seen.api("CUDA")["hooked"]["cuLaunchKernel"] == LAUNCHES
        assert daemon.status()["grants"] + daemon.status()["leases"] > 0


def test_gl_functions_that_pass_by_are_counted_and_shown_by_every_view(
    stage: gl.Stage, tmp_path: Path
) -> None:
    """Each once, however often it is found; what only begins like work is not among them."""
    source, library = tmp_path / "curious.c", tmp_path / "curious.so"
    source.write_text(
        "extern void *eglGetProcAddress(const char *);\n"
        "__attribute__((constructor)) static void look(void) {\n"
        '    eglGetProcAddress("glDrawMeshTasksNew"), eglGetProcAddress("glDrawBuffers");\n'
        '    eglGetProcAddress("glDrawMeshTasksNew"), eglGetProcAddress("glMultiDrawNew");\n'
        "}\n"
    )
    gl.compile_program(source, library, "-shared", "-fPIC", "-lEGL")
    script = f"LD_PRELOAD=$LD_PRELOAD:{library} exec {stage.built}/frames --endless"
    program = stage.start("sh", "-c", script)
    folder = {**os.environ, "HEADWAY_DIR": str(stage.folder)}
    wait_until(lambda: any(c["frames"] for c in stage.channels()), "it draws")
    assert [c["unknown"] for c in stage.channels()] == [2]
    assert "GPU functions that pass by: 2" in headway("status", env=folder).stdout
    checks = json.loads(headway("doctor", "--json", env=folder).stdout)["checks"]
    told = next(entry for entry in checks if entry["check"] == "daemon")
    assert told["state"] == "warn"
    assert "(2)" in told["found"]
    assert not program.ended()


def test_nothing_is_told_where_nobody_asks(gpu: cuda.Gpu, tmp_path: Path) -> None:
    """Only the doctor pays for the doctor."""
    env = gpu.environment({"LD_PRELOAD": launcher.library()})
    result = subprocess.run(
        gpu.command("cudaapp", *FIXED), env=env, cwd=tmp_path, capture_output=True, check=True
    )
    assert (result.stderr, [file.name for file in tmp_path.iterdir()]) == (b"", ["gpu"])
