"""The library that is put before a program's own, and whether programs take it."""

from __future__ import annotations

from pathlib import Path

from headway.view.doctor import Finding, bad, check, last_line, ok, run_python, warn
from headway.view.doctor.survey import known_apis, version_text

_IS_LOADED = """
with open("/proc/self/maps") as maps:
    raise SystemExit(not any("/libheadway.so" in line for line in maps))
"""


@check("interposer")
def interposer() -> Finding:
    """Found, whole, and let in by the loader: tried on a small program."""
    from headway.live.identity import launcher
    from headway.live.wire import paths
    from headway.live.wire.fence import fence

    try:
        path = launcher.library()
        preload = launcher.preloadable(paths.runtime_folder())
        fence()
    except OSError as error:
        return bad(str(error), "make setup, or install headway again, in a path without blanks")
    child = run_python(_IS_LOADED, {"LD_PRELOAD": str(preload)})
    if child.code == 0 and not child.err:
        return _built(path)
    if child.code == 1 and not child.err:
        fix = "start programs where LD_PRELOAD is honoured (no sandbox, no set-user-ID)"
        return bad("the loader ignores LD_PRELOAD here", fix)
    return bad(f"{path}: {last_line(child)}", "make setup, or install headway again")


def _built(path: Path) -> Finding:
    known = known_apis(path)
    hooks = f"hooks OpenGL and CUDA up to {version_text(known.get('CUDA', 0))}"
    if "OpenCL" in known:
        return ok(f"{path}, loaded by LD_PRELOAD; {hooks}, and OpenCL")
    fix = "install OpenCL's headers (opencl-headers) and build headway again, if you need it"
    return warn(f"{path}, loaded by LD_PRELOAD; {hooks}; it was built without OpenCL", fix)
