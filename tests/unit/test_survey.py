"""The interposer's notes, read back: whole ones, broken ones, and the reasons made from them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from headway.live.identity import launcher
from headway.view.doctor import running
from headway.view.doctor.running import Run, findings
from headway.view.doctor.survey import (
    Api,
    Passed,
    Survey,
    api_of,
    known_apis,
    read_survey,
    version_text,
    why_passed,
)

SHIM = Path(__file__).parents[2] / "shim"
KNOWN = {"CUDA": 13099, "OpenCL": 300}
HOOKS = {"cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds", "cuLaunchKernel", "glDrawArrays"}


def notes(folder: Path, *lines: str, calls: dict[str, int] | None = None) -> Path:
    file = folder / "lookups"
    file.write_text("".join(f"{line}\n" for line in lines))
    rows = [struct.pack("<56sQ", name.encode(), count) for name, count in (calls or {}).items()]
    (folder / "lookups.calls").write_bytes(b"".join(rows))
    return file


def test_notes_are_sorted_by_api(tmp_path: Path) -> None:
    file = notes(
        tmp_path,
        "10 loaded - sh",
        "11 loaded - my game",
        "11 hooked dlsym cuGetProcAddress_v2",
        "11 hooked cuGetProcAddress_v2 cuLaunchKernel",
        "11 passed cuGetProcAddress_v2 cuLaunchNew 12000",
        "11 hooked link XOpenDisplay",
        "11 hooked link glClear",
        "12 passed link cuLaunchNew 0",
        calls={
            "+cuLaunchNew": 5,
            "cuLaunchKernel": 7,
            "glClear": 0,
            "glFlush": 2,
            "XOpenDisplay": 1,
            "cuInit": 0,
        },
    )
    survey = read_survey(file, KNOWN)
    assert survey.processes == 2
    opengl, cuda = survey.apis
    assert (opengl.name, opengl.ways, opengl.called) == ("OpenGL", ["link"], {"glFlush": 2})
    assert cuda.hooked == {"cuGetProcAddress_v2": 0, "cuLaunchKernel": 7}
    assert cuda.passed == [
        Passed("cuLaunchNew", "cuGetProcAddress_v2", "not known to this Headway", 5),
        Passed("cuLaunchNew", "link", "not known to this Headway", None),
    ]
    assert cuda.processes == {11: "my game", 12: ""}


@pytest.mark.parametrize(
    "line",
    ["", "nonsense", "1 hooked", "x hooked dlsym cuInit", "1 hooked dlsym", "1 other dlsym cuInit",
     "1 hooked dlsym cu\x1b[2J", "-1 passed dlsym cuLaunchNew 0", "\x00\x01\x02 \x03 \x04 \x05"],
)  # fmt: skip
def test_lines_that_are_none_are_passed_over(tmp_path: Path, line: str) -> None:
    assert read_survey(notes(tmp_path, line), KNOWN) == Survey()


def test_a_table_that_is_cut_off_or_absent_says_what_it_can(tmp_path: Path) -> None:
    file = notes(tmp_path, "1 hooked link cuInit", calls={"cuInit": 3, "cuLaunchKernel": 4})
    table = tmp_path / "lookups.calls"
    table.write_bytes(table.read_bytes()[:-1])
    assert read_survey(file, KNOWN).apis[0].hooked == {"cuInit": 3}
    table.unlink()
    assert read_survey(file, KNOWN).apis[0].hooked == {"cuInit": 0}
    file.unlink()
    assert read_survey(file, KNOWN) == Survey()


@pytest.mark.parametrize(
    ("name", "way", "asked", "why"),
    [
        ("cuLaunchFoo", "dlsym", 0, "not known to this Headway"),
        ("cuLaunchFoo", "cuGetProcAddress", 14000, "not known to this Headway"),
        ("cuLaunchKernel", "cuGetProcAddress", 14020, "version 14.2 was asked for; up to 13.x"),
        ("cuMemcpyHtoD", "dlsym", 0, "another version than those known (cuMemcpyHtoD_v2, cuM"),
        ("cuMemcpyHtoD_v9_ptds", "dlsym", 0, "another version than those known (cuMemcpyHtoD_v2"),
        ("glDrawArraysNEW", "eglGetProcAddress", 0, "not known to this Headway"),
        ("clEnqueueFoo", "clGetExtensionFunctionAddressForPlatform", 0, "functions of extensions"),
    ],
)
def test_reasons(name: str, way: str, asked: int, why: str) -> None:
    assert why_passed(name, way, asked, HOOKS, KNOWN).startswith(why)


def test_what_was_not_built_in_is_the_reason_for_all_of_it() -> None:
    why = why_passed("clEnqueueNDRangeKernel", "link", 0, HOOKS, {"CUDA": 13099})
    assert why == "this interposer was built without OpenCL"


def test_versions_in_words() -> None:
    assert [version_text(n) for n in (13099, 14000, 12080, 11030)] == [
        "13.x",
        "14.0",
        "12.8",
        "11.3",
    ]


def test_functions_belong_to_an_api_by_their_names() -> None:
    names = (
        "glDrawArrays",
        "eglSwapBuffers",
        "glXSwapBuffers",
        "cuInit",
        "clFinish",
        "XOpenDisplay",
    )
    assert [api_of(name) for name in names] == ["OpenGL"] * 3 + ["CUDA", "OpenCL", None]


def test_what_the_interposer_knows_is_in_its_file() -> None:
    declared = re.search(r"#define KNOWN_VERSION (\d+)", (SHIM / "cuda" / "cuda.c").read_text())
    assert declared is not None
    assert known_apis(launcher.library()) == {"CUDA": int(declared[1]), "OpenCL": 300}


def test_a_row_of_the_table_is_the_same_in_both_languages() -> None:
    text = (SHIM / "core" / "survey.h").read_text()
    assert re.search(r"char name\[56\];\s+hw_u64 count;", text)


def test_long_lists_are_broken_between_functions() -> None:
    calls = {f"cuFunctionWithSomeName{i}": 1000 + i for i in range(20)}
    api = Api("CUDA", ["dlsym", "link"], calls)
    told = findings(Run("ended with exit code 0", "managed", Survey(1, [api])))["CUDA"]
    first, *lines = told.found.splitlines()
    assert first == "reached by link, dlsym: 20 functions hooked, 20 called"
    assert all(len(line) <= running.WIDTH for line in lines)
    assert sum(line.count("cuFunction") for line in lines) == 20
    assert all(re.fullmatch(r"(cuFunctionWithSomeName\d+ \d+,? ?)+", line) for line in lines)
