"""The two descriptions of the protocol, in C and in Python, say the same."""

from __future__ import annotations

import re
from pathlib import Path

from headway.live.wire import protocol

HEADER = Path(__file__).parents[2] / "shim" / "core" / "protocol.h"


def test_message_types_and_server_flags_have_the_same_numbers() -> None:
    enums = re.findall(r"enum \w+ \{(.*?)\};", HEADER.read_text(), re.DOTALL)
    numbers = dict(re.findall(r"HW_(\w+) = (\d+)", "".join(enums)))
    assert {"ENTER", "LEAVE", "GRANT", "AWAIT", "TELL", "YIELD"} <= set(numbers)
    assert {name: getattr(protocol, name) for name in numbers} == {
        name: int(number) for name, number in numbers.items()
    }
