"""The interposer's C header `protocol.h`, made of the description in layout.py.

    python -m headway.live.wire.header FOLDER

The build calls this before Headway is installed, so nothing is imported but Python's own library.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from headway.live.wire import layout
from headway.live.wire.records import FLAG, TEXT, U32, U64, Field, Record

NAME = "protocol.h"
WIDTH = 120
_ABOUT = (
    "What a program and the daemon say to each other. Made of src/headway/live/wire/layout.py, "
    "which says the same to Python; a change there is a change here.",
    "One Unix SOCK_SEQPACKET connection per channel. All numbers are little-endian and naturally "
    "aligned; every message has a fixed size, and one of another size ends the connection. Times "
    "are CLOCK_MONOTONIC nanoseconds, which all processes of a machine share.",
)
_TYPES = {
    False: {U32: "uint32_t", U64: "uint64_t", FLAG: "uint32_t", TEXT: "char"},
    True: {U32: "hw_u32", U64: "hw_u64", FLAG: "hw_u32", TEXT: "hw_char"},
}


def text() -> str:
    """The whole header."""
    parts = [
        _comment(*_ABOUT),
        '#ifndef HEADWAY_PROTOCOL_H\n#define HEADWAY_PROTOCOL_H\n\n#include "atomics.h"\n'
        "#include <stddef.h>\n\n",
        f"#define HW_VERSION {layout.VERSION:#x}u\n",
    ]
    for name, (value, doc) in layout.CONSTANTS.items():
        shown = f"{value:#x}u" if name == "MAGIC" else str(value)
        parts.append(f"#define HW_{name} {shown} {_comment(doc)}")
    parts += [_enum(enum) for enum in layout.ENUMS]
    parts += [_struct(record) for record in layout.RECORDS]
    return "".join(parts) + "\n#endif\n"


def write(folder: Path) -> Path:
    """Into a folder, unless the same is there: what includes it is compiled again otherwise."""
    path, new = folder / NAME, text()
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != new:
        path.write_text(new)
    return path


def _comment(*paragraphs: str, indent: str = "") -> str:
    lines = [
        line
        for paragraph in paragraphs
        for line in [*textwrap.wrap(paragraph, WIDTH - len(indent) - 6), ""]
    ]
    rest = "".join(f"\n{indent} * {line}".rstrip(" ") for line in lines[1:-1])
    return f"{indent}/* {lines[0]}{rest} */\n"


def _enum(enum: type[layout.Numbers]) -> str:
    members = "".join(
        f"{_comment(number.doc, indent='    ')}    HW_{number.name} = {int(number)},\n"
        for number in enum
    )
    about = (enum.__doc__ or "").strip()
    return f"\n{_comment(about)}enum hw_{enum.__name__.lower()} {{\n{members}}};\n"


def _struct(record: Record) -> str:
    fields = "".join(_field(field, record.shared) for field in record.fields)
    name = f"struct hw_{record.name}"
    checks = "".join(
        f'_Static_assert(offsetof({name}, {field.name}) == {record.at(field.name)}, "{name}");\n'
        for field in record.fields
    )
    checks += f'_Static_assert(sizeof({name}) == {record.size}, "{name}");\n'
    return f"\n{_comment(record.doc)}{name} {{\n{fields}}};\n{checks}"


def _field(field: Field, shared: bool) -> str:
    kind = field.type
    shown = f"struct hw_{kind.name}" if isinstance(kind, Record) else _TYPES[shared][kind]
    count = f"[{field.count}]" if field.count else ""
    about = _comment(field.doc, indent="    ") if field.doc else ""
    return f"{about}    {shown} {field.name}{count};\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("header: expected one folder (run: python -m headway.live.wire.header FOLDER)")
    write(Path(sys.argv[1]))
