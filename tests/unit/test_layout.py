"""One description of messages and pages: C and Python agree, and no other place knows an offset."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.turns.jobs import TOLD
from headway.engine.turns.pauses import BINS
from headway.engine.turns.port import JobReport
from headway.live.wire import header, layout, protocol
from headway.live.wire.layout import CLIENT_PAGE, DAEMON_PAGE, PAGE
from headway.live.wire.records import FLAG, TEXT, U32, U64, Field, Record

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "shim" / "core"
ASK = """
#include "protocol.h"
#include <stdio.h>
int main(void) {{
{lines}
}}
"""


def compile_and_run(source: str, folder: Path) -> str:
    """With the header that is in the folder."""
    (folder / "asks.c").write_text(source)
    options = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"]
    command = ["gcc", *options, f"-I{CORE}", f"-I{folder}", "-o", str(folder / "asks")]
    subprocess.run([*command, str(folder / "asks.c")], check=True)
    return subprocess.run([folder / "asks"], check=True, capture_output=True, text=True).stdout


def test_a_compiler_puts_every_field_where_python_reads_it(tmp_path: Path) -> None:
    header.write(tmp_path)
    lines, expected = [], ""
    for record in layout.RECORDS:
        name = f"struct hw_{record.name}"
        for field in record.fields:
            lines.append(f'printf("%zu ", offsetof({name}, {field.name}));')
            lines.append(f'printf("%zu\\n", sizeof((({name} *)0)->{field.name}));')
            expected += f"{record.at(field.name)} {field.size}\n"
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected += f"{record.size}\n"
    assert compile_and_run(ASK.format(lines="\n".join(lines)), tmp_path) == expected


def test_numbers_and_the_version_are_the_same_in_c(tmp_path: Path) -> None:
    header.write(tmp_path)
    numbers = {number.name: int(number) for enum in layout.ENUMS for number in enum}
    numbers |= {name: value for name, (value, _) in layout.CONSTANTS.items()}
    numbers["VERSION"] = layout.VERSION
    lines = [f'printf("%lld\\n", (long long)HW_{name});' for name in numbers]
    said = compile_and_run(ASK.format(lines="\n".join(lines)), tmp_path)
    assert list(map(int, said.split())) == list(numbers.values())


def test_what_c_writes_is_what_python_reads(tmp_path: Path) -> None:
    header.write(tmp_path)
    lines = """
    static struct hw_client_page page;
    hw_store(&page.busy, 1);
    hw_store(&page.used_ns, 1ull << 40);
    hw_store(&page.opened[63], 7);
    hw_store(&page.job[31].pauses, 9);
    hw_store(&page.job[31].closed, 1);
    hw_store(&page.pauses[47], 11);
    fwrite(&page, sizeof page, 1, stdout);
    """
    source = ASK.format(lines=lines)
    (tmp_path / "raw.c").write_text(source)
    command = ["gcc", f"-I{CORE}", f"-I{tmp_path}", "-o", str(tmp_path / "raw")]
    subprocess.run([*command, str(tmp_path / "raw.c")], check=True)
    data = subprocess.run([tmp_path / "raw"], check=True, capture_output=True).stdout
    assert len(data) == CLIENT_PAGE.size
    page = protocol.parse_client_page(data)
    assert (page.busy, page.used_ns, page.trails) == (True, 1 << 40, True)
    assert CLIENT_PAGE.read(data, "opened", 63) == 7
    assert CLIENT_PAGE.read(data, "pauses", 47) == 11
    job = protocol.parse_job(data[CLIENT_PAGE.at("job", 31) :][: layout.JOB.size])
    assert job == JobReport(pauses=9, closed=True)


def test_a_header_whose_field_is_elsewhere_does_not_compile(tmp_path: Path) -> None:
    text = header.write(tmp_path).read_text()
    swapped = text.replace("hw_u32 lease;", "hw_u32 other;").replace(
        "hw_u32 server;", "hw_u32 lease;"
    )
    swapped = swapped.replace("hw_u32 other;", "hw_u32 server;")
    assert swapped != text
    (tmp_path / header.NAME).write_text(swapped)
    command = ["gcc", "-fsyntax-only", f"-I{CORE}", "-x", "c", str(tmp_path / header.NAME)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "hw_daemon_page" in done.stderr


def test_pages_have_room_for_what_the_engine_remembers() -> None:
    assert (layout.JOBS, layout.PAUSES) == (TOLD, BINS)


# -- versions ------------------------------------------------------------------------------------


OTHERS: dict[str, dict[str, Any]] = {
    U32: {"type": FLAG},
    FLAG: {"type": U32},
    U64: {"type": TEXT, "count": 8},
}
"""Types of the same size."""


def changed(record: Record, **what: Any) -> Record:
    """Its second field is another."""
    first, second, *rest = record.fields
    return replace(record, fields=(first, replace(second, **what), *rest))


@pytest.mark.parametrize("record", layout.RECORDS, ids=lambda record: record.name)
def test_another_description_has_another_version(record: Record) -> None:
    first, second, *rest = record.fields
    others = {
        "renamed": changed(record, name="another"),
        "swapped": replace(record, fields=(second, first, *rest)),
        "of another type": changed(record, **OTHERS[str(second.type)]),
        "longer": replace(record, fields=(*record.fields, Field("more", U64))),
    }
    if first.size != second.size:
        del others["swapped"]
    versions = {layout.VERSION}
    for other in others.values():
        versions.add(
            layout.version(tuple(other if part is record else part for part in layout.RECORDS))
        )
    assert len(versions) == 1 + len(others), sorted(others)


def test_other_words_about_a_field_are_the_same_version() -> None:
    other = changed(layout.MESSAGE, doc="something else")
    records = tuple(other if part is layout.MESSAGE else part for part in layout.RECORDS)
    assert layout.version(records) == layout.VERSION


def test_the_version_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Daemon and interposer are made of it at different times."""
    assert f"#define HW_VERSION {layout.version(layout.RECORDS):#x}u" in header.text()
    again = subprocess.check_output(
        ["python3", "-S", "-c", "from headway.live.wire import layout; print(layout.VERSION)"],
        cwd=ROOT / "src",
        text=True,
        env={"PYTHONHASHSEED": "1", "PATH": "/usr/bin:/bin"},
    )
    assert int(again) == layout.VERSION


@pytest.mark.parametrize("version", [3, layout.VERSION ^ 1, 0, 2**32 - 1])
def test_a_hello_of_another_version_is_refused(version: int) -> None:
    data = bytearray(protocol.build_hello("game"))
    layout.HELLO.write(data, "version", version)
    with pytest.raises(protocol.ProtocolError, match="version"):
        protocol.parse_hello(bytes(data))


# -- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ((Field("a", U32), Field("b", U64)), "b would stand at 4, unaligned"),
        ((Field("a", U64), Field("b", U32)), "ends at 12, unaligned"),
        ((Field("a", U32), Field("a", U32)), "two fields of one name"),
    ],
)
def test_a_record_that_compilers_might_pad_is_refused(fields: tuple[Field, ...], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Record("bad", "", fields)


WORDS = [
    (record, field, index)
    for record in (DAEMON_PAGE, CLIENT_PAGE)
    for field in record.fields
    if isinstance(field.type, str) and field.type != TEXT
    for index in {0, max(field.count, 1) - 1}
]


@given(st.sampled_from(WORDS), st.integers(0, 2**32 - 1), st.binary(min_size=1, max_size=9))
def test_a_word_that_is_written_is_read_and_touches_no_other(
    word: tuple[Record, Field, int], value: int, rest: bytes
) -> None:
    record, field, index = word
    before = (rest * PAGE)[:PAGE]
    memory = bytearray(before)
    record.write(memory, field.name, value, index)
    wanted = bool(value) if field.type == FLAG else value
    assert record.read(memory, field.name, index) == wanted
    at, size = record.at(field.name, index), field.size // max(field.count, 1)
    assert memory[:at] == before[:at]
    assert memory[at + size :] == before[at + size :]


# -- nobody else ---------------------------------------------------------------------------------

ALLOWED = {"src/headway/live/wire/layout.py", "src/headway/live/wire/records.py"}
OFFSETS = re.compile(
    r"\b(?!LOOKED)[A-Z_]*_AT\b *[:=][^=].*\d"  # a constant that is a place
    r"|p(?:read|write)\([^)]*client_fd[^)]*, *[1-9]\d*\)"
    r"|p(?:read|write)\([^)]*daemon_fd[^)]*, *[1-9]\d*\)"
    r"|(?:un)?pack(?:_into|_from)\([^)]*_(?:page|daemon)\b"
)


def test_no_other_place_reads_pages_by_numbers() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("src/headway/live", "src/headway/engine/turns", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in ALLOWED and path != Path(__file__)
        for line in path.read_text().splitlines()
        if OFFSETS.search(line)
    }
    assert not found
