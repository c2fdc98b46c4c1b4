"""The programs that are measured, and the interposer, built for this machine.

Programs that need headers or libraries which are not everywhere are left out where those are
missing, and it is said why; CPATH and LIBRARY_PATH lead the compiler to others.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from headway.live.wire import header

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
OTHERS: dict[str, tuple[Path, tuple[str, ...]]] = {
    "glapp": (HERE / "glapp.c", ("-ldl",)),
    "clapp": (ROOT / "tests/programs/opencl/clapp.c", ("-l:libOpenCL.so.1", "-lpthread")),
}
FENCE = ROOT / "shim" / "core" / "fence.c"
MONITOR = ("context", "resources", "draws", "objects", "sources", "geometry", "shader", "rows")
"""Of shim/gl: only the interposer that predicts has these."""
"""The daemon's memory barrier: a library of its own."""
OPENCL = "OpenCL in the interposer"


class Failed(RuntimeError):
    """A program did not do what it was started for."""


def build(folder: Path) -> dict[str, str]:
    """All of them into a folder; what was left out, and why. Nothing works without nvcc's."""
    commands = {
        source.stem: ["nvcc", "-O2", "-arch=native", "-o", str(folder / source.stem), str(source)]
        for source in sorted(HERE.glob("*.cu"))
    }
    for name, (source, libraries) in OTHERS.items():
        commands[name] = ["gcc", "-O2", "-o", str(folder / name), str(source), *libraries]
    compilers = {name: _compiler(command) for name, command in commands.items()}
    missing = build_interposer()
    for name, compiler in compilers.items():
        said = compiler.communicate()[1]
        if compiler.returncode and name not in OTHERS:
            raise Failed(f"exit {compiler.returncode}: {' '.join(commands[name])}\n{said}")
        if compiler.returncode:
            missing[name] = _first_error(said)
    return missing


def build_interposer() -> dict[str, str]:
    """With OpenCL if its headers are there and agree with ours."""
    library = ROOT / "src" / "headway" / "live" / "libheadway.so"
    sources = {str(path) for path in (ROOT / "shim").glob("*/*.c") if path != FENCE}
    monitor = [str(ROOT / "shim" / "gl" / f"{name}.c") for name in MONITOR]
    shim = sorted(sources.difference(monitor))
    options = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]
    options += ["-ftls-model=initial-exec"]
    generated = header.write(ROOT / "build" / "generated").parent
    options += [f"-I{folder}" for folder in (*sorted((ROOT / "shim").iterdir()), generated)]
    command = ["gcc", *options, "-o", str(library), *shim, "-ldl", "-lpthread"]
    fence = ["gcc", "-O2", "-fPIC", "-shared", "-o", str(library.with_name("libheadway_fence.so"))]
    subprocess.run([*fence, str(FENCE)], check=True)
    predicts = str(library.with_name("libheadway_predict.so"))
    other = ["gcc", *options, "-DHW_PREDICT", "-DHEADWAY_WITHOUT_OPENCL", "-o", predicts, *shim]
    subprocess.run([*other, *monitor, "-ldl", "-lpthread", "-lm"], check=True)
    compiler = _compiler(command)
    said = compiler.communicate()[1]
    if not compiler.returncode:
        has_opencl = b"clInitLayer" in library.read_bytes()
        return {} if has_opencl else {OPENCL: "there is no CL/cl_layer.h here"}
    without = _compiler([*command, "-DHEADWAY_WITHOUT_OPENCL"])
    worse = without.communicate()[1]
    if without.returncode:
        raise Failed(f"exit {without.returncode}: {' '.join(command)}\n{worse}")
    return {OPENCL: _first_error(said)}


def _compiler(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _first_error(said: str) -> str:
    lines = said.strip().splitlines() or ["the compiler says nothing"]
    return next((line for line in lines if "error" in line), lines[-1])
