"""A helper that draws on its clients' behalf, and a client that lets it inherit its priority.

    headway run --name compositor --priority 1 -- python examples/compositor.py serve /tmp/c.sock
    headway run --name client --priority 9 -- python examples/compositor.py ask /tmp/c.sock 100

While the client waits for its answer the helper has the client's priority, so that nobody of a
priority between the two gets in the way; `headway.enter_server` and `headway.leave_server` around
the request are all it takes. Without Headway the same two calls do nothing.
"""

from __future__ import annotations

import ctypes
import socket
import sys
import time

import headway

SIZE = 512
EGL_NONE, EGL_HEIGHT, EGL_WIDTH, EGL_RENDERABLE_TYPE = 0x3038, 0x3056, 0x3057, 0x3040
EGL_OPENGL_ES2_BIT, EGL_CONTEXT_CLIENT_VERSION, EGL_OPENGL_ES_API = 4, 0x3098, 0x30A0
GL_COLOR_BUFFER_BIT, GL_SCISSOR_TEST = 0x4000, 0x0C11


def open_gpu() -> ctypes.CDLL:
    """A small picture on the GPU to draw into; nothing is shown."""
    egl, gl = ctypes.CDLL("libEGL.so.1"), ctypes.CDLL("libGLESv2.so.2")
    for name in ("eglGetDisplay", "eglCreatePbufferSurface", "eglCreateContext"):
        getattr(egl, name).restype = ctypes.c_void_p

    def numbers(*values: int) -> ctypes.Array[ctypes.c_int]:
        return (ctypes.c_int * len(values))(*values)

    display = ctypes.c_void_p(egl.eglGetDisplay(None))
    config, count = ctypes.c_void_p(), ctypes.c_int()
    wanted = numbers(EGL_RENDERABLE_TYPE, EGL_OPENGL_ES2_BIT, EGL_NONE)
    egl.eglBindAPI(EGL_OPENGL_ES_API)
    if not egl.eglInitialize(display, None, None):
        sys.exit("compositor: no EGL")
    egl.eglChooseConfig(display, wanted, ctypes.byref(config), 1, ctypes.byref(count))
    size = numbers(EGL_WIDTH, SIZE, EGL_HEIGHT, SIZE, EGL_NONE)
    version = numbers(EGL_CONTEXT_CLIENT_VERSION, 2, EGL_NONE)
    surface = ctypes.c_void_p(egl.eglCreatePbufferSurface(display, config, size))
    context = ctypes.c_void_p(egl.eglCreateContext(display, config, None, version))
    if not egl.eglMakeCurrent(display, surface, surface, context):
        sys.exit("compositor: no context")
    gl.glClearColor.argtypes = [ctypes.c_float] * 4
    gl.glEnable(GL_SCISSOR_TEST)
    return gl


def draw(gl: ctypes.CDLL, number: int) -> None:
    """One request's worth of GPU work."""
    for part in range(20):
        gl.glScissor(part, part, SIZE - part, SIZE - part)
        gl.glClearColor(number % 8 / 8, part / 20, 0.0, 1.0)
        gl.glClear(GL_COLOR_BUFFER_BIT)
    gl.glFinish()


def serve(path: str) -> None:
    """Draw whenever somebody asks; one request after the other, in the order they come."""
    gl = open_gpu()
    draw(gl, 0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind(path)
        print("ready", flush=True)
        number = 0
        while True:
            _, client = requests.recvfrom(16)
            number += 1
            draw(gl, number)
            requests.sendto(b"drawn", client)


def ask(path: str, count: int) -> None:
    """Have it draw so often, and say how long that took."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind("")  # any name that is free: the answer comes there
        since = time.monotonic()
        for _ in range(count):
            headway.enter_server("compositor")
            requests.sendto(b"draw", path)
            requests.recv(16)
            headway.leave_server()
        print(f"{(time.monotonic() - since) / count * 1000:.2f} ms per request", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"] and len(sys.argv) == 3:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["ask"] and len(sys.argv) in (3, 4):
        ask(sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 100)
    else:
        sys.exit("expected: compositor.py serve SOCKET, or compositor.py ask SOCKET [COUNT]")
