"""X, the GL libraries and who renders. A broken driver may hang or crash: only children load it."""

from __future__ import annotations

import os

from headway.live.api import isolated
from headway.view.doctor import (
    Child,
    Finding,
    bad,
    check,
    last_line,
    ok,
    run_child,
    run_python,
    warn,
)

LIBRARIES = ("libEGL.so.1", "libGLESv2.so.2", "libGL.so.1")
INSTALL = "install libegl1 libgles2 libgl1 and libgl1-mesa-dri, or the vendor's driver"

_LOAD = """
import ctypes
for name in {names!r}:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        print(error)
"""


@check("X display")
def x_display() -> Finding:
    display = os.environ.get("DISPLAY")
    if not display:
        return warn("DISPLAY is not set", "start from a desktop, or Xvfb :7 & export DISPLAY=:7")
    child = _probe("x11")
    if child.code == 0:
        return ok(f"{display}: {child.out}")
    return warn(
        f"{display}: {last_line(child)}", "start the X server, or set DISPLAY and XAUTHORITY"
    )


@check("GL libraries")
def gl_libraries() -> Finding:
    child = run_python(_LOAD.format(names=LIBRARIES))
    missing = child.out.splitlines() if child.code == 0 else [last_line(child)]
    if not missing:
        return ok(", ".join(LIBRARIES))
    found = "; ".join(missing)
    return bad(found, INSTALL) if len(missing) == len(LIBRARIES) else warn(found, INSTALL)


@check("EGL renderer")
def egl_renderer() -> Finding:
    """On the display if there is one, else without any surface."""
    child = _probe("egl")
    if child.code != 0 and os.environ.get("DISPLAY"):
        child = _probe("egl", DISPLAY="")
    if child.code == 0:
        return ok(child.out)
    return bad(f"no GL context: {last_line(child)}", f"eglinfo may say more; {INSTALL}")


@check("GLX")
def glx() -> Finding:
    if not os.environ.get("DISPLAY"):
        return ok("not looked for without a display; EGL does without")
    child = _probe("glx")
    if child.code == 0:
        return ok(child.out)
    return warn(last_line(child), "glxinfo may say more; Xvfb needs +extension GLX")


def _probe(kind: str, **env: str) -> Child:
    return run_child(isolated.python("-m", "headway.view.doctor.probing", kind), env)
