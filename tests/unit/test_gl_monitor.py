"""The context monitor's picture of draws: positions in shaders, boxes, projections, objects."""

from __future__ import annotations

import ctypes
import math
import random
import re
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.rendering.published import SCALE, Published, place_of
from headway.live.wire import header
from headway.live.wire.layout import COEFFICIENTS, DAEMON_PAGE, PAGE, ROW, ROWS

SHIM = Path(__file__).parents[2] / "shim"
FLOAT, SHORT, UNSIGNED_SHORT = 0x1406, 0x1402, 0x1403


class Matrix(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("block", ctypes.c_char * 64),
        ("offset", ctypes.c_uint32),
        ("location", ctypes.c_int),
    )


class Position(ctypes.Structure):
    _fields_ = (
        ("found", ctypes.c_bool),
        ("displaced", ctypes.c_bool),
        ("attribute", ctypes.c_char * 64),
        ("location", ctypes.c_int),
        ("matrices", ctypes.c_int),
        ("matrix", Matrix * 4),
    )


class Box(ctypes.Structure):
    _fields_ = (
        ("low", ctypes.c_float * 3),
        ("high", ctypes.c_float * 3),
        ("known", ctypes.c_bool),
    )


class Rectangle(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int) for name in ("x", "y", "width", "height"))


class Format(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_uint64),
        ("stride", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("components", ctypes.c_int),
        ("normalized", ctypes.c_bool),
    )


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The monitor's parts that know no OpenGL."""
    folder = tmp_path_factory.mktemp("monitor")
    generated = header.write(folder).parent
    built = folder / "monitor.so"
    sources = [str(SHIM / "gl" / f"{name}.c") for name in ("geometry", "shader", "rows", "objects")]
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu11"]
    folders = [f"-I{SHIM}/core", f"-I{SHIM}/gl", f"-I{generated}"]
    subprocess.run(["gcc", *options, *folders, "-o", str(built), *sources, "-lm"], check=True)
    library = ctypes.CDLL(str(built))
    library.hw_projected_area.restype = ctypes.c_uint64
    library.hw_projected_area.argtypes = (
        ctypes.POINTER(Box), ctypes.c_float * 16, Rectangle, Rectangle,
    )  # fmt: skip
    library.hw_box_of.restype = Box
    library.hw_index_range.restype = library.hw_features_cost.restype = ctypes.c_bool
    library.hw_box_of.argtypes = (
        ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(Format),
        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64,
    )  # fmt: skip
    library.hw_read_position.argtypes = (
        ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(Position),
    )  # fmt: skip
    return library


# -- positions -----------------------------------------------------------------------------------


def read(monitor: ctypes.CDLL, source: str) -> tuple[str, list[str]] | None:
    """The attribute and the matrices of gl_Position; None: not understood."""
    position = Position()
    text = source.encode()
    monitor.hw_read_position(text, len(text), ctypes.byref(position))
    if not position.found:
        return None
    names = []
    for matrix in position.matrix[: position.matrices]:
        block = matrix.block.decode()
        names.append(f"{block}+{matrix.offset}" if block else matrix.name.decode())
    return position.attribute.decode(), names


HEAD = (
    "attribute vec3 position;\nuniform mat4 bones[4];\nuniform mat4 M, unused;\n"
    "uniform mat4 MVP;\nuniform highp mat4 P;\n"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("gl_Position = MVP * vec4(position, 1.0);", ("position", ["MVP"])),
        ("gl_Position = P * MVP * vec4(position, 1.0);", ("position", ["P", "MVP"])),
        ("gl_Position = P * (MVP * vec4(position.xyz, 1.0));", ("position", ["P", "MVP"])),
        ("vec4 p = vec4(position, 1.0); gl_Position = MVP * p;", ("position", ["MVP"])),
        (
            "mat4 all = P * MVP; gl_Position = all * vec4(position, 1.0);",
            ("position", ["P", "MVP"]),
        ),
        ("gl_Position = vec4(position.xy, 0.0, 1.0);", ("position", [])),
        ("gl_Position = M * unused * vec4(position, 1.0);", ("position", ["M", "unused"])),
        ("gl_Position = bones * vec4(position, 1.0);", None),
        (
            "/* gl_Position = 0; */ gl_Position = MVP * vec4(position, 1.0); // MVP",
            ("position", ["MVP"]),
        ),
        ("vec4 p = vec4(position, 1.); p.y += 1.; gl_Position = MVP * p;", ("position", ["MVP"])),
        ("gl_Position = position * MVP;", None),
        ("gl_Position = MVP * vec4(other, 1.0);", None),
        ("gl_Position = MVP * vec4(position, 1.0); gl_Position.z = 0.0;", None),
        ("if (a) gl_Position = MVP * vec4(position, 1.0); else gl_Position = vec4(0.0);", None),
        ("", None),
        ("gl_Position =", None),
        ("gl_Position = MVP * (((((((((((((((((position", None),
    ],
)
def test_positions_of_the_usual_form_are_found(
    monitor: ctypes.CDLL, body: str, expected: tuple[str, list[str]] | None
) -> None:
    assert read(monitor, f"{HEAD}void main(void) {{ {body} }}") == expected


def test_a_matrix_in_a_uniform_block_is_found_where_std140_puts_it(monitor: ctypes.CDLL) -> None:
    source = """#version 300 es
    layout(location = 3) in vec4 place;
    layout(std140) uniform Camera { vec3 eye; float far; vec2 jitter; mat4 view; mat4 all; } camera;
    void main() { gl_Position = camera.all * place; }"""
    # vec3 0-12, float 12-16, vec2 16-24, mat4 at the next multiple of 16.
    assert read(monitor, source) == ("place", ["Camera+96"])
    position = Position()
    monitor.hw_read_position(source.encode(), len(source), ctypes.byref(position))
    assert position.location == 3
    assert position.matrix[0].location == -1
    assert read(monitor, source.replace("layout(std140) ", "layout(packed) ")) is None


def test_places_that_a_source_says_itself_need_not_be_asked_for(monitor: ctypes.CDLL) -> None:
    head = "#version 310 es\nlayout(location = 1) in vec4 place;\n"
    body = "void main() { gl_Position = all * place; }"
    for said, place in (
        ("layout(location = 7) uniform mat4 all;", 7),
        ("layout(std140, binding = 3) uniform Camera { mat4 all; };", 3),
        ("layout(binding = 2, std140) uniform Camera { mat4 all; };", 2),
        ("uniform mat4 all;", -1),
    ):
        position, source = Position(), f"{head}{said}\n{body}".encode()
        monitor.hw_read_position(source, len(source), ctypes.byref(position))
        assert position.found
        assert position.matrix[0].location == place


@given(st.binary(max_size=400))
def test_no_source_is_too_strange(monitor: ctypes.CDLL, noise: bytes) -> None:
    position = Position()
    for text in (noise, HEAD.encode() + b"void main(){gl_Position=" + noise):
        monitor.hw_read_position(text, len(text), ctypes.byref(position))
        assert 0 <= position.matrices <= 4


# -- boxes and projections ------------------------------------------------------------------------

IDENTITY = (1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
NUMBER = st.floats(-100, 100, width=32)


def area(
    monitor: ctypes.CDLL,
    box: Box,
    matrix: tuple[float, ...] = IDENTITY,
    clip: tuple[int, int, int, int] = (0, 0, 100, 100),
) -> int:
    viewport = Rectangle(0, 0, 100, 100)
    return int(
        monitor.hw_projected_area(
            ctypes.byref(box), (ctypes.c_float * 16)(*matrix), viewport, Rectangle(*clip)
        )
    )


def box_from(low: tuple[float, ...], high: tuple[float, ...]) -> Box:
    return Box((ctypes.c_float * 3)(*low), (ctypes.c_float * 3)(*high), True)


def test_a_square_covers_its_part_of_the_viewport_and_of_the_scissor(monitor: ctypes.CDLL) -> None:
    half = box_from((-0.5, -0.5, 0), (0.5, 0.5, 0))
    assert area(monitor, half) == 2500
    assert area(monitor, half, clip=(50, 50, 100, 100)) == 625
    assert area(monitor, half, clip=(90, 90, 10, 10)) == 0
    assert area(monitor, half, clip=(0, 0, 0, 10)) == 0
    assert area(monitor, box_from((-9, -9, 0), (9, 9, 0))) == 10_000
    turned = 45 / 180 * math.pi
    c, s = math.cos(turned), math.sin(turned)
    around = (c, s, 0, 0, -s, c, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
    assert area(monitor, half, around) == pytest.approx(2500, abs=2)


def test_a_cube_in_perspective_covers_the_hull_of_its_corners(monitor: ctypes.CDLL) -> None:
    # w = -z: from z = -4 to z = -2, the near face is +-0.5, and hides the far one.
    perspective = (1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, -1, 0, 0, -1, 0)
    assert area(monitor, box_from((-1, -1, -4), (1, 1, -2)), perspective) == 2500


def test_what_is_around_the_eye_or_no_number_covers_all(monitor: ctypes.CDLL) -> None:
    perspective = (1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, -1, 0, 0, -1, 0)
    assert area(monitor, box_from((-1, -1, -4), (1, 1, 4)), perspective) == 10_000
    assert area(monitor, box_from((-1, -1, 2), (1, 1, 4)), perspective) == 0, "behind the eye"
    assert area(monitor, box_from((0, 0, 0), (1, 1, 1)), (math.nan, *IDENTITY[1:])) == 10_000
    assert area(monitor, Box()) == 10_000


@given(st.tuples(*[NUMBER] * 16), st.tuples(*[NUMBER] * 3), st.tuples(*[NUMBER] * 3))
def test_no_projection_covers_more_than_there_is(
    monitor: ctypes.CDLL,
    matrix: tuple[float, ...],
    one: tuple[float, ...],
    other: tuple[float, ...],
) -> None:
    low, high = tuple(map(min, one, other)), tuple(map(max, one, other))
    assert 0 <= area(monitor, box_from(low, high), matrix, (10, 20, 30, 40)) <= 1200


@given(st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=40))
def test_a_box_is_around_all_of_its_vertices(
    monitor: ctypes.CDLL, points: list[tuple[float, float, float]]
) -> None:
    data = b"".join(struct.pack("<4x3f", *point) for point in points)
    layout = Format(4, 16, FLOAT, 3, False)
    box = monitor.hw_box_of(data, len(data), ctypes.byref(layout), 0, len(points), 1)
    assert box.known
    assert tuple(box.low) == tuple(map(min, *points)) if len(points) > 1 else points[0]
    assert tuple(box.high) == tuple(map(max, *points)) if len(points) > 1 else points[0]


def test_vertices_that_do_not_stand_in_the_buffer_are_not_read(monitor: ctypes.CDLL) -> None:
    data = struct.pack("<6h", 1, 2, 3, 4, 5, 6)
    layout = Format(0, 4, SHORT, 2, False)
    box = monitor.hw_box_of(data, len(data), ctypes.byref(layout), 0, 1 << 40, 1)
    assert (list(box.low), list(box.high)) == ([1, 2, 0], [5, 6, 0])
    beyond = monitor.hw_box_of(data, len(data), ctypes.byref(layout), 1 << 33, 4, 1)
    assert not beyond.known
    low, high = ctypes.c_uint32(), ctypes.c_uint32()
    indices = struct.pack("<4H", 7, 3, 0xFFFF, 9)
    arguments = (UNSIGNED_SHORT, ctypes.c_uint64(0))
    found = (ctypes.byref(low), ctypes.byref(high))
    size = ctypes.c_uint64(8)
    assert monitor.hw_index_range(indices, size, *arguments, ctypes.c_uint64(4), *found)
    assert (low.value, high.value) == (3, 9), "a restart is no vertex"
    assert not monitor.hw_index_range(indices, size, *arguments, ctypes.c_uint64(5), *found)


# -- rows ----------------------------------------------------------------------------------------


class Features(ctypes.Structure):
    _fields_ = (
        ("rows", ctypes.c_uint32),
        ("unfollowed", ctypes.c_uint32),
        ("last", ctypes.c_uint32),
        ("unknown", ctypes.c_bool),
        ("cost", ctypes.c_uint64),
        ("row", ctypes.c_uint64 * 8 * ROWS),
    )


def test_rows_add_up_and_their_product_with_the_coefficients_runs_along(
    monitor: ctypes.CDLL,
) -> None:
    generator = random.Random(7)
    page = (ctypes.c_char * PAGE)()
    kinds = [(generator.getrandbits(64) | 1 << 63, generator.getrandbits(40)) for _ in range(20)]
    known: dict[tuple[int, int], Published] = {}
    address = ctypes.addressof(page)
    taken = set()
    for kind, mesh in kinds:
        place = place_of(kind, mesh, COEFFICIENTS)
        while place in taken:
            place = (place + 1) % COEFFICIENTS
        if (place - place_of(kind, mesh, COEFFICIENTS)) % COEFFICIENTS >= 4:
            continue
        taken.add(place)
        entry = known[kind, mesh] = Published(
            kind, mesh, *(generator.randrange(9000) for _ in "abc")
        )
        struct.pack_into("<5Q", page, DAEMON_PAGE.at("coefficient", place), *entry)
    DAEMON_PAGE.word(address, "group_cost").value = 5 * SCALE
    features, total = Features(), 5 * SCALE
    monitor.hw_features_begin(ctypes.byref(features), page)
    for _ in range(200):
        key = generator.choice(list(known))
        vertices, fragments = generator.randrange(1000), generator.randrange(100_000)
        words = [ctypes.c_uint64(word) for word in (*key, vertices, fragments)]
        monitor.hw_features_add(ctypes.byref(features), page, *words)
        _, _, each, vertex, fragment = known[key]
        total += each + vertices * vertex + fragments * fragment
    cost_ns = ctypes.c_uint64()
    assert monitor.hw_features_cost(ctypes.byref(features), ctypes.byref(cost_ns))
    assert cost_ns.value == total // SCALE
    assert features.rows == len(known)
    unheard = [ctypes.c_uint64(word) for word in (1 << 63, 0, 1, 1)]
    monitor.hw_features_add(ctypes.byref(features), page, *unheard)
    assert not monitor.hw_features_cost(ctypes.byref(features), ctypes.byref(cost_ns))


def test_more_kinds_than_rows_are_told_together(monitor: ctypes.CDLL) -> None:
    page, features = (ctypes.c_char * PAGE)(), Features()
    monitor.hw_features_begin(ctypes.byref(features), page)
    for mesh in range(3 * ROWS):
        words = [ctypes.c_uint64(word) for word in (1 << 63, mesh, 10, 100)]
        monitor.hw_features_add(ctypes.byref(features), page, *words)
    rows = [list(row) for row in features.row[: features.rows]]
    assert features.rows == ROWS
    assert sum(row[3] for row in rows) == 30 * ROWS
    assert sum(row[2] for row in rows) == 3 * ROWS
    assert features.unfollowed & 256


def test_the_page_has_what_the_rows_have() -> None:
    """The interposer's row begins with the fields of the page's."""
    text = (SHIM / "gl" / "rows.h").read_text()
    fields = re.search(r"struct \{\s*uint64_t ([\w, ]+);", text)
    assert fields is not None
    assert tuple(fields[1].split(", ")) == ROW.names


# -- objects -------------------------------------------------------------------------------------


def test_names_are_found_whatever_was_made_and_dropped(monitor: ctypes.CDLL) -> None:
    table = (ctypes.c_uint64 * 4)()
    monitor.hw_names_find.restype = monitor.hw_names_make.restype = ctypes.c_void_p
    generator = random.Random(3)
    model: dict[int, int] = {}
    for _ in range(4000):
        name = generator.choice((generator.randrange(300), generator.getrandbits(32)))
        if generator.random() < 0.6:
            made = monitor.hw_names_make(table, ctypes.c_uint32(name), ctypes.c_size_t(8))
            assert model.setdefault(name, made) == made
        else:
            monitor.hw_names_drop(table, ctypes.c_uint32(name), None)
            model.pop(name, None)
        probe = generator.randrange(300)
        assert monitor.hw_names_find(table, ctypes.c_uint32(probe)) == model.get(probe)


def test_memory_that_cannot_be_read_is_no_box_and_no_fault(monitor: ctypes.CDLL) -> None:
    monitor.hw_client_box.restype = Box
    layout = Format(0, 12, FLOAT, 3, False)
    for address in (0, 16, 2**47 - 4096):
        box = monitor.hw_client_box(
            ctypes.c_void_p(address), ctypes.byref(layout), ctypes.c_uint64(0), ctypes.c_uint64(100)
        )
        assert not box.known
    data = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    keep = ctypes.create_string_buffer(data)
    box = monitor.hw_client_box(keep, ctypes.byref(layout), ctypes.c_uint64(0), ctypes.c_uint64(2))
    assert (list(box.low), list(box.high)) == ([1, 2, 3], [4, 5, 6])
