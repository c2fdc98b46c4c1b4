"""Measures what OpenGL's commands cost on this machine's device (libETP, sections IV-C to IV-E, V).

    python -m headway.live.devices.gl_calibrating [FOLDER OF SHADERS]

Runs in a process and an EGL context of its own. Each line on stdout is a JSON object: `device`,
`progress` from 0 to 1, `warning`, and at the end `calibration`. Measured is what the gate measures:
from the submission of commands until the device is done with them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headway.engine.rendering import Calibration, Program
from headway.engine.rendering.calibration import to_json
from headway.engine.rendering.names import mask_name

WIDTH, HEIGHT = 1200, 1000
"""Of the render buffer (section V)."""
CLEARS, TRIANGLES, VERTICES = 100, 100, 1_000_000
"""Of one measurement (section V)."""
TIMES: Final = 20
"""Measurements of each (section V)."""
FLUSHES: Final = 200
FEWEST: Final = 4
PATIENCE_NS: Final = 1_000_000_000
"""Of one coefficient; on a GPU twenty measurements take a part of that."""
BUSY: Final = 2.0
"""A device is busy if a quarter of equal measurements takes so much longer than another quarter,"""
DISTURBED_NS: Final = 100_000
"""and at least so much: about what the waking of a thread may take."""

_MASKS = {1: 0x4000, 2: 0x100, 4: 0x400}
_SIMPLE = (
    "attribute vec4 position;\nvoid main(void) { gl_Position = position; }\n",
    "precision mediump float;\nvoid main(void) { gl_FragColor = vec4(0.2, 0.4, 0.6, 1.0); }\n",
)
_HALF = (-1, -1, 0, 1, 1, -1, 0, 1, -1, 1, 0, 1)
"""A triangle over half of the buffer."""


class Unusable(Exception):
    """There is nothing to calibrate; one line."""


class Busy(Exception):
    """Others use the device."""


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Device:
    """An OpenGL ES 2.0 context on a buffer that nobody sees."""

    def __init__(self) -> None:
        try:
            self._egl, self.gl = ctypes.CDLL("libEGL.so.1"), ctypes.CDLL("libGLESv2.so.2")
        except OSError as error:
            raise Unusable(f"OpenGL ES is not installed: {error}") from None
        egl = self._egl
        for name in ("eglGetDisplay", "eglGetPlatformDisplay", "eglCreateContext"):
            getattr(egl, name).restype = ctypes.c_void_p
        egl.eglCreatePbufferSurface.restype = self.gl.glGetString.restype = ctypes.c_void_p
        for display in self._displays():
            if display and egl.eglInitialize(ctypes.c_void_p(display), None, None):
                break
        else:
            raise Unusable("EGL has no display")
        self._make_context(ctypes.c_void_p(display))
        self.name = f"{self._text(0x1F01)}, {self._text(0x1F02)}"

    def _displays(self) -> list[int | None]:
        """The usual one, or one without any window system."""
        egl = self._egl
        return [
            egl.eglGetDisplay(None),
            egl.eglGetPlatformDisplay(0x313F, None, None),  # the first device
            egl.eglGetPlatformDisplay(0x31DD, None, None),  # surfaceless
        ]

    def _make_context(self, display: ctypes.c_void_p) -> None:
        egl, count = self._egl, ctypes.c_int()
        config = ctypes.c_void_p()
        wanted = (0x3033, 1, 0x3040, 4, 0x3025, 16, 0x3026, 8, 0x3021, 8, 0x3038)
        chosen = egl.eglChooseConfig(
            display, (ctypes.c_int * 11)(*wanted), ctypes.byref(config), 1, ctypes.byref(count)
        )
        if not chosen or not count.value:
            raise Unusable("EGL has no configuration with a pbuffer, depth and stencil")
        egl.eglBindAPI(0x30A0)
        size = (ctypes.c_int * 5)(0x3057, WIDTH, 0x3056, HEIGHT, 0x3038)
        surface = ctypes.c_void_p(egl.eglCreatePbufferSurface(display, config, size))
        version = (ctypes.c_int * 3)(0x3098, 2, 0x3038)
        context = ctypes.c_void_p(egl.eglCreateContext(display, config, None, version))
        if not egl.eglMakeCurrent(display, surface, surface, context):
            raise Unusable("EGL makes no context")

    def _text(self, what: int) -> str:
        found = self.gl.glGetString(what)
        return ctypes.string_at(found).decode(errors="replace") if found else "unknown"

    def time_ns(self, commands: Callable[[], None], *, flushes: bool = False) -> int:
        """What the device takes for commands, from their submission on: those that flush are
        submitted one by one."""
        start = time.perf_counter_ns()
        commands()
        if not flushes:
            start = time.perf_counter_ns()
        self.gl.glFinish()
        return time.perf_counter_ns() - start

    def measure(
        self, commands: Callable[[], None], times: int = TIMES, *, flushes: bool = False
    ) -> float:
        """The mean of the faster half: what disturbs makes a measurement longer, never shorter.
        A slow device is measured less often than the paper has it."""
        self.time_ns(commands)  # compiles, loads
        taken: list[int] = []
        while len(taken) < times and not (len(taken) >= FEWEST and sum(taken) > PATIENCE_NS):
            taken.append(self.time_ns(commands, flushes=flushes))
        taken.sort()
        quarter, half = len(taken) // 4, len(taken) // 2
        low, high = taken[quarter], taken[-1 - quarter]
        if high > BUSY * low and high - low > DISTURBED_NS:
            raise Busy
        return sum(taken[:half]) / half


class Calibrating:
    """One calibration, step by step."""

    def __init__(self, device: Device, shaders: Path | None) -> None:
        self._device, self._gl = device, device.gl
        self._programs = _read_programs(shaders) if shaders is not None else {}
        self._steps = 9 + len(self._programs)
        self._done = 0

    def run(self) -> Calibration:
        gl = self._gl
        gl.glEnable(0x0C11)  # scissor
        gl.glScissor(0, 0, 1, 1)
        flush_ns = self._device.measure(lambda: gl.glClear(0x4000), FLUSHES)
        gl.glDisable(0x0C11)
        self._step()
        clears = {}
        for mask in range(1, 8):
            clears[mask_name(mask)] = self._clear_ns(mask, flush_ns)
            self._step()
        usual = self._program_ns(*_SIMPLE, flush_ns)
        if usual is None:
            raise Unusable("the driver compiles no simple program")
        self._step()
        programs = {}
        for name, (vertex, fragment) in self._programs.items():
            found = self._program_ns(vertex, fragment, flush_ns)
            if found is None:
                say(warning=f"program {name} draws nothing here: it counts as a simple one")
            else:
                programs[name] = found
            self._step()
        return Calibration(self._device.name, flush_ns, clears, usual, programs)

    def _step(self) -> None:
        self._done += 1
        say(progress=self._done / self._steps)

    def _clear_ns(self, mask: int, flush_ns: float) -> float:
        gl, bits = self._gl, sum(bit for part, bit in _MASKS.items() if mask & part)

        def clear() -> None:
            for _ in range(CLEARS):  # each by itself: some drivers make one of clears in a row
                gl.glClear(bits)
                gl.glFlush()

        taken = self._device.measure(clear, flushes=True) - CLEARS * flush_ns
        return max(0.0, taken) / (CLEARS * WIDTH * HEIGHT)

    def _program_ns(self, vertex: str, fragment: str, flush_ns: float) -> Program | None:
        """None: it is not compiled, or draws nothing."""
        gl = self._gl
        program = _compile(gl, vertex, fragment)
        if not program:
            return None
        gl.glUseProgram(program)
        _set_up(gl, program)
        gl.glViewport(0, 0, WIDTH, HEIGHT)
        fragments = self._drawn_by(program)
        if not fragments:
            gl.glDeleteProgram(program)
            return None
        _feed(gl, program, _HALF * TRIANGLES)
        drawn = self._device.measure(lambda: gl.glDrawArrays(4, 0, 3 * TRIANGLES)) - flush_ns
        count = VERTICES // 3 * 3
        _feed(gl, program, (2.0, 2.0, 0.0, 1.0) * count)  # beside the buffer
        moved = self._device.measure(lambda: gl.glDrawArrays(4, 0, count), 5) - flush_ns
        gl.glDeleteProgram(program)
        return Program(max(0.0, moved) / count, max(0.0, drawn) / (TRIANGLES * fragments))

    def _drawn_by(self, program: int) -> int:
        """Pixels that one triangle changes."""
        gl = self._gl
        pixels = (ctypes.c_uint8 * (4 * WIDTH * HEIGHT))()
        gl.glClearColor(*(ctypes.c_float(x) for x in (1.0, 0.0, 1.0, 0.5)))
        gl.glClear(0x4000)
        gl.glReadPixels(0, 0, WIDTH, HEIGHT, 0x1908, 0x1401, pixels)
        before = bytes(pixels)
        _feed(gl, program, _HALF)
        gl.glDrawArrays(4, 0, 3)
        gl.glReadPixels(0, 0, WIDTH, HEIGHT, 0x1908, 0x1401, pixels)
        after = bytes(pixels)
        if before == after:
            return 0
        return sum(before[i : i + 4] != after[i : i + 4] for i in range(0, len(before), 64)) * 16


def _read_programs(folder: Path) -> dict[str, tuple[str, str]]:
    """What the interposer kept of a program's shaders (shim/gl/sources.c)."""
    found = {}
    for file in sorted(folder.glob("*.program")):
        try:
            vertex, fragment = file.read_text().split()
            sources = (folder / f"{vertex}.vert", folder / f"{fragment}.frag")
            name = f"{(int(file.stem, 16) & ~(1 << 63)) >> 8:014x}"
            found[name] = (sources[0].read_text(), sources[1].read_text())
        except (OSError, ValueError) as error:
            say(warning=f"{file.name}: {error}")
    return found


def _compile(gl: Any, vertex: str, fragment: str) -> int:
    program = int(gl.glCreateProgram())
    for kind, text in ((0x8B31, vertex), (0x8B30, fragment)):
        shader, data = gl.glCreateShader(kind), text.encode()
        source = ctypes.c_char_p(data)
        gl.glShaderSource(shader, 1, ctypes.byref(source), None)
        gl.glCompileShader(shader)
        gl.glAttachShader(program, shader)
        gl.glDeleteShader(shader)
    gl.glLinkProgram(program)
    linked = ctypes.c_int()
    gl.glGetProgramiv(program, 0x8B82, ctypes.byref(linked))
    if not linked.value:
        gl.glDeleteProgram(program)
        return 0
    return program


def _set_up(gl: Any, program: int) -> None:
    """Uniforms with which a program draws what it is given: matrices that change nothing, ones."""
    count, size, kind = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
    name = ctypes.create_string_buffer(256)
    gl.glGetProgramiv(program, 0x8B86, ctypes.byref(count))
    for index in range(min(count.value, 256)):
        gl.glGetActiveUniform(
            program, index, 256, None, ctypes.byref(size), ctypes.byref(kind), name
        )
        at, one = gl.glGetUniformLocation(program, name), ctypes.c_float(1.0)
        for width, setter in ((4, "4fv"), (3, "3fv"), (2, "2fv")):
            unit = [float(i % (width + 1) == 0) for i in range(width * width)]
            if kind.value == {4: 0x8B5C, 3: 0x8B5B, 2: 0x8B5A}[width]:
                matrix = (ctypes.c_float * len(unit))(*unit)
                getattr(gl, f"glUniformMatrix{setter}")(at, 1, 0, matrix)
        if kind.value == 0x1406:
            gl.glUniform1f(at, one)
        elif 0x8B50 <= kind.value <= 0x8B52:
            width = kind.value - 0x8B50 + 2
            getattr(gl, f"glUniform{width}f")(at, *[one] * width)
    texture = ctypes.c_uint()
    gl.glGenTextures(1, ctypes.byref(texture))
    gl.glBindTexture(0x0DE1, texture)
    gl.glTexParameteri(0x0DE1, 0x2801, 0x2600)
    gl.glTexImage2D(0x0DE1, 0, 0x1908, 1, 1, 0, 0x1908, 0x1401, b"\x80\x90\xa0\xff")


def _feed(gl: Any, program: int, vertices: tuple[float, ...]) -> None:
    """The vertices as positions, and ones as what else the program wants."""
    count, size, kind = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
    buffer, name = ctypes.c_uint(), ctypes.create_string_buffer(256)
    data = (ctypes.c_float * len(vertices))(*vertices)
    gl.glGenBuffers(1, ctypes.byref(buffer))
    gl.glBindBuffer(0x8892, buffer)
    gl.glBufferData(0x8892, ctypes.c_ssize_t(4 * len(vertices)), data, 0x88E4)
    gl.glGetProgramiv(program, 0x8B89, ctypes.byref(count))
    names = {}
    for index in range(min(count.value, 16)):
        gl.glGetActiveAttrib(
            program, index, 256, None, ctypes.byref(size), ctypes.byref(kind), name
        )
        names[name.value] = gl.glGetAttribLocation(program, name)
    first = next((n for n in names if b"pos" in n.lower() or b"vert" in n.lower()), None)
    for each, at in names.items():
        if each == (first or next(iter(names))):
            gl.glEnableVertexAttribArray(at)
            gl.glVertexAttribPointer(at, 4, 0x1406, 0, 16, None)
        else:
            gl.glDisableVertexAttribArray(at)
            gl.glVertexAttrib4f(at, *[ctypes.c_float(0.5)] * 4)


def main() -> int:
    try:
        device = Device()
        say(device=device.name)
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
        say(calibration=to_json(Calibrating(device, folder).run()))
    except (Unusable, AttributeError) as error:
        say(problem=str(error))
        return 1
    except Busy:
        say(busy=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
