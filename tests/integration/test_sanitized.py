"""The interposer under sanitizers, in programs that launch from several threads, copy, fork, end
threads and lose their daemon: no bad access, nothing undefined, no race."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headway.live.identity import launcher
from headway.live.wire import header
from tests.integration import cuda
from tests.integration.daemon_client import wait_until

pytestmark = [pytest.mark.live]
SHIM = Path(__file__).resolve().parents[2] / "shim"
PARTS = ("core", "gl", "stream", "cuda", "opencl")
PREDICTS = ("context", "resources", "draws", "objects", "sources", "geometry", "shader", "rows")
"""What only the interposer of `headway run --predict` has."""
WATCHED = {
    *(f"core/{name}" for name in ("gate", "channels", "connection")),
    *(f"{path.parent.name}/{path.stem}" for path in SHIM.glob("stream/*.c")),
    *(f"{path.parent.name}/{path.stem}" for path in SHIM.glob("cuda/*.c")),
}
"""What finds functions for programs runs before a sanitizer has begun, and cannot be watched."""
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
SAID = 86
"""A sanitizer that has found something ends the program so."""
OPTIONS = {
    "ASAN_OPTIONS": f"exitcode={SAID}:detect_leaks=0:verify_asan_link_order=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={SAID}:halt_on_error=0",
}


def compile_interposer(folder: Path, sanitizer: str) -> Path:
    header.write(folder)
    named = [path for part in PARTS for path in sorted((SHIM / part).glob("*.c"))]
    sources = [path for path in named if path.stem not in (*PREDICTS, "fence")]
    places = [f"-I{place}" for place in (folder, *(SHIM / part for part in PARTS))]
    flags = ["gcc", "-std=gnu11", "-g", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec"]
    checks = [f"-fsanitize={SANITIZERS[sanitizer]}", "-fno-sanitize-recover=undefined"]
    objects = []
    for source in sources:
        objects.append(folder / f"{source.parent.name}-{source.stem}.o")
        watches = checks if f"{source.parent.name}/{source.stem}" in WATCHED else []
        command = [*flags, *watches, *places, "-c", str(source), "-o", str(objects[-1])]
        subprocess.run(command, check=True)
    library = folder / "libheadway.so"
    subprocess.run(["gcc", "-shared", checks[0], "-o", library, *objects, "-ldl"], check=True)
    return library


def compile_program(folder: Path, sanitizer: str, name: str) -> None:
    """The sanitizer's own library has to be there before all others."""
    source, target = cuda.SOURCES / f"{name}.c", folder / name
    check = f"-fsanitize={SANITIZERS[sanitizer]}"
    libraries = ("-ldl", "-lm", "-lpthread")
    subprocess.run(
        ["gcc", "-std=gnu11", "-O1", "-g", check, "-o", target, source, *libraries], check=True
    )


@pytest.fixture(scope="module", params=SANITIZERS)
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver as always, and programs and an interposer that are watched."""
    folder = tmp_path_factory.mktemp(request.param)
    cuda.compile_driver(folder)
    for name in ("cudaapp", "fates"):
        compile_program(folder, request.param, name)
    compile_interposer(folder, request.param)
    return folder


@pytest.fixture
def gpu(sanitized: Path, tmp_path: Path) -> cuda.Gpu:
    return cuda.Gpu(sanitized, tmp_path / "gpu")


@pytest.fixture
def watched(
    managed: cuda.Managed, sanitized: Path, monkeypatch: pytest.MonkeyPatch
) -> cuda.Managed:
    monkeypatch.setattr(launcher, "library", lambda: sanitized / "libheadway.so")
    return managed


def start(watched: cuda.Managed, *arguments: object, **wishes: str) -> cuda.Program:
    return watched.start_directly(*arguments, env=OPTIONS, **wishes)  # type: ignore[arg-type]


def test_programs_that_share_the_gpu_are_clean(watched: cuda.Managed) -> None:
    greedy = start(watched, "cudaapp", "lp", 200, 10, 0, 4, prio="1")
    other = start(watched, "cudaapp", "hp", 200, 10, 5, 4, prio="9")
    wait_until(lambda: all(watched.passed(p) for p in (greedy, other)), "both are managed")
    for program in (greedy, other):
        done = program.finish()
        assert done.returncode == 0, done.stderr[-4000:]


def test_threads_forks_and_the_end_of_the_daemon_are_clean(watched: cuda.Managed) -> None:
    program = start(watched, "fates", prio="1")
    assert program.heard() == f"ready {program.pid}"
    for words in (
        ("launches 50 9", "sync"),
        ("threads",),
        ("launch 50", "fork"),
        ("pingpong 20 50",),
    ):
        program.do(*words)
    watched.daemon.kill()
    program.do("launches 50 9", "sync")
    program.tell("exit")
    done = program.finish()
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_sanitizer_that_finds_something_ends_the_program(sanitized: Path, tmp_path: Path) -> None:
    """The tests above can fail."""
    source = tmp_path / "wrong.c"
    source.write_text(
        "#include <pthread.h>\n#include <stdlib.h>\nint word;\n"
        "static void *add(void *n) { for (int i = 0; i < 1000; i++) word++; return n; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, add, 0); add(0); pthread_join(t, 0);"
        "char *p = malloc(8); free(p); return *(volatile char *)p & 0; }\n"
    )
    for check in SANITIZERS.values():
        program = tmp_path / "wrong"
        subprocess.run(
            ["gcc", "-g", "-w", f"-fsanitize={check}", "-o", program, source], check=True
        )
        done = subprocess.run([program], env=OPTIONS, capture_output=True, check=False)
        assert done.returncode == SAID
