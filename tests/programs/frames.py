"""A Python GL program, as PyOpenGL or pyglet reach GL: ctypes on libEGL and libGLESv2.

Prints a hash of each frame's pixels.
"""

import ctypes
import hashlib
import sys

SIZE = 64
EGL = ctypes.CDLL("libEGL.so.1")
GL = ctypes.CDLL("libGLESv2.so.2")
for name in ("eglGetDisplay", "eglCreateContext", "eglCreatePbufferSurface"):
    getattr(EGL, name).restype = ctypes.c_void_p
GL.glClearColor.argtypes = [ctypes.c_float] * 4

PBUFFER, ES2 = 0x0001, 0x0004
COLOR_BUFFER, SCISSOR_TEST, RGBA, UNSIGNED_BYTE = 0x4000, 0x0C11, 0x1908, 0x1401


def make_current() -> None:
    display = ctypes.c_void_p(EGL.eglGetDisplay(None))
    assert EGL.eglInitialize(display, None, None)
    EGL.eglBindAPI(0x30A0)
    want = (ctypes.c_int * 7)(0x3033, PBUFFER, 0x3040, ES2, 0x3024, 8, 0x3038)
    config, count = ctypes.c_void_p(), ctypes.c_int()
    assert EGL.eglChooseConfig(display, want, ctypes.byref(config), 1, ctypes.byref(count))
    size = (ctypes.c_int * 5)(0x3057, SIZE, 0x3056, SIZE, 0x3038)
    surface = ctypes.c_void_p(EGL.eglCreatePbufferSurface(display, config, size))
    version = (ctypes.c_int * 3)(0x3098, 2, 0x3038)
    context = ctypes.c_void_p(EGL.eglCreateContext(display, config, None, version))
    assert EGL.eglMakeCurrent(display, surface, surface, context)


def frame(number: int) -> str:
    GL.glViewport(0, 0, SIZE, SIZE)
    GL.glDisable(SCISSOR_TEST)
    GL.glClearColor(0.0, 0.1 * number, 1.0, 1.0)
    GL.glClear(COLOR_BUFFER)
    GL.glEnable(SCISSOR_TEST)
    for step in range(20):
        GL.glScissor(step, 2 * step, SIZE - 2 * step, 8)
        GL.glClearColor(0.05 * step, 0.1 * number, 0.0, 1.0)
        GL.glClear(COLOR_BUFFER)
        GL.glFlush()
    pixels = ctypes.create_string_buffer(SIZE * SIZE * 4)
    GL.glReadPixels(0, 0, SIZE, SIZE, RGBA, UNSIGNED_BYTE, pixels)
    return hashlib.sha256(pixels.raw).hexdigest()[:16]


make_current()
for index in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
    print(f"frame {index}: {frame(index)} error {GL.glGetError():x}")
