"""What `headway doctor` runs in a child: talk to X and to the driver, say who they are, and end.

python -m headway.view.doctor.probing x11|egl|glx
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_int, c_void_p

EGL_OPENGL_ES_API = 0x30A0
EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT = 0x3040, 4
EGL_CONTEXT_CLIENT_VERSION = 0x3098
EGL_NONE = 0x3038
GL_RENDERER, GL_VERSION = 0x1F01, 0x1F02


def load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise SystemExit(str(error)) from None


def open_display() -> tuple[ctypes.CDLL, int]:
    x11 = load("libX11.so.6")
    x11.XOpenDisplay.restype, x11.XOpenDisplay.argtypes = c_void_p, (c_char_p,)
    display = x11.XOpenDisplay(None)
    if not display:
        raise SystemExit("the X server does not answer")
    return x11, display


def x11() -> str:
    library, display = open_display()
    library.XServerVendor.restype, library.XServerVendor.argtypes = c_char_p, (c_void_p,)
    vendor: bytes = library.XServerVendor(display)
    return vendor.decode(errors="replace")


def glx() -> str:
    _, display = open_display()
    gl = load("libGL.so.1")
    gl.glXQueryVersion.argtypes = (c_void_p, c_void_p, c_void_p)
    major, minor = c_int(), c_int()
    if not gl.glXQueryVersion(display, ctypes.byref(major), ctypes.byref(minor)):
        raise SystemExit("the X server has no GLX")
    return f"GLX {major.value}.{minor.value}"


def egl() -> str:
    """A context without a surface, which every driver that matters can do."""
    library, gles = load("libEGL.so.1"), load("libGLESv2.so.2")
    for name in ("eglGetDisplay", "eglCreateContext", "eglGetProcAddress"):
        getattr(library, name).restype = c_void_p
    library.eglQueryString.restype = gles.glGetString.restype = c_char_p
    library.eglQueryString.argtypes = (c_void_p, c_int)
    library.eglCreateContext.argtypes = (c_void_p, c_void_p, c_void_p, c_void_p)
    library.eglMakeCurrent.argtypes = (c_void_p,) * 4
    library.eglInitialize.argtypes = (c_void_p, c_void_p, c_void_p)
    library.eglGetDisplay.argtypes = (c_void_p,)
    library.eglChooseConfig.argtypes = (c_void_p, c_void_p, c_void_p, c_int, c_void_p)
    display = library.eglGetDisplay(None)
    if not display or not library.eglInitialize(display, None, None):
        raise SystemExit("EGL does not start")
    library.eglBindAPI(EGL_OPENGL_ES_API)
    config, count = c_void_p(), c_int()
    wanted = (c_int * 3)(EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE)
    library.eglChooseConfig(display, wanted, ctypes.byref(config), 1, ctypes.byref(count))
    version = (c_int * 3)(EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE)
    context = library.eglCreateContext(display, config, None, version)
    if not context or not library.eglMakeCurrent(display, None, None, context):
        raise SystemExit("EGL makes no context")
    renderer, gl_version = gles.glGetString(GL_RENDERER), gles.glGetString(GL_VERSION)
    if not renderer or not gl_version:
        raise SystemExit("the driver does not say what it is")
    return f"{renderer.decode(errors='replace')}, {gl_version.decode(errors='replace')}"


if __name__ == "__main__":
    if not os.environ.get("DISPLAY"):
        os.environ["EGL_PLATFORM"] = "surfaceless"
    print({"x11": x11, "egl": egl, "glx": glx}[sys.argv[1]]())
