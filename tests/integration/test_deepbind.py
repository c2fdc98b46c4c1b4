"""Libraries that a program loads with RTLD_DEEPBIND find their own functions first, as without
Headway; but those that use a GPU find the gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bench.softcuda import KERNELS, expected_checksum
from tests.integration import cuda, gl
from tests.integration.daemon_client import wait_until

pytestmark = pytest.mark.timeout(120)

SHARED = ("gcc", "-std=gnu11", "-O1", "-shared", "-fPIC")
OWN = """
#include <dlfcn.h>
int answer(void) { return 2; }
int ask(void) { return answer(); }
int load(void) { return dlopen("libnone.so", RTLD_LAZY) != 0; }
"""
"""It can look functions up, but knows of no GPU."""
FORWARD = "int run(int n, char **v); int forward(int n, char **v) { return run(n, v); }"


def build(target: Path, source: Path | str, *options: str) -> Path:
    if isinstance(source, str):
        text, source = source, target.with_suffix(".c")
        source.write_text(text)
    subprocess.run([*SHARED, "-o", str(target), str(source), *options], check=True)
    return target


@pytest.fixture
def loader(managed: cuda.Managed) -> cuda.Managed:
    """A daemon, and the program that loads libraries so."""
    source, target = gl.PROGRAMS / "deepbind.c", managed.gpu.built / "deepbind"
    gl.compile_program(source, target, "-rdynamic", "-ldl")
    return managed


def test_a_library_that_uses_no_gpu_finds_its_own_functions_first(
    loader: cuda.Managed, tmp_path: Path
) -> None:
    own = str(build(tmp_path / "libown.so", OWN))
    assert loader.gpu.run("deepbind", own, "ask").returncode == 2
    assert loader.run("deepbind", own, "ask", options=["--require"]).returncode == 2


@pytest.mark.parametrize("way", ["linked", "looked up", "by another", "by its name"])
def test_a_library_that_uses_a_gpu_finds_the_gate(
    loader: cuda.Managed, tmp_path: Path, way: str
) -> None:
    app, driver = cuda.SOURCES / "cudaapp.c", str(loader.gpu.built / "libcuda.so.1")
    linked = ["-DLINKED", driver] if way == "linked" else []
    inner = build(tmp_path / "libapp.so", app, "-Dmain=run", *linked, "-ldl", "-lm")
    library, function = str(inner), "run"
    env: dict[str, object] = {"LINGER": 1}
    if way == "by another":
        here = ("-Wl,--enable-new-dtags,-rpath,$ORIGIN", f"-L{tmp_path}", "-lapp")
        library = str(build(tmp_path / "libouter.so", FORWARD, *here))
        function = "forward"
    if way == "by its name":
        library = "libapp.so"
        env["LD_LIBRARY_PATH"] = f"{tmp_path}:{loader.gpu.built}"
    work = ("fix", 100, KERNELS, 0, 5)
    program = loader.start("deepbind", library, function, *work, env=env)
    assert f'"checksum": {expected_checksum(8, KERNELS)}' in program.heard()
    wait_until(lambda: loader.passed(program) > 0, "its work passed the gate")
