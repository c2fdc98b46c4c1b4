"""Random lock files, small enough that queues fill, donors are displaced and tokens are stolen."""

from __future__ import annotations

import random
from typing import Any


def random_lock_file(seed: int, *, events: bool = True) -> dict[str, Any]:
    """A lock file with a few requests that overlap."""
    rng = random.Random(seed)
    devices = rng.choice([1, 1, 2, 3])
    tokens = devices * rng.choice([1, 2, 3])
    order = rng.choice(["donation"] * 4 + ["priority"])
    length: int | None = rng.choice([None, 1, 2, 3])
    cap: int | None
    if order == "priority":
        length, cap = 1, tokens
    elif length is None:
        cap = rng.choice([None, None, rng.randint(1, 8)])
    else:
        cap = rng.choice([tokens * length, rng.randint(1, tokens * length)])
    count, span = rng.randint(3, 16), rng.choice([5, 20, 60])
    longest, highest = rng.choice([3, 12]), rng.choice([2, 10, 100])
    requests = [
        {
            "id": f"r{number}",
            "at": rng.randint(0, span),
            "hold": rng.randint(1, longest),
            "priority": rng.randint(0, highest),
        }
        for number in range(count)
    ]
    happens = []
    for _ in range(rng.choice([0, 0, 3, 10]) if events else 0):
        event = {
            "at": rng.randint(0, span + 20),
            "do": rng.choice(["cancel", "priority", "vunlock"]),
            "id": f"r{rng.randrange(count)}",
        }
        if event["do"] == "priority":
            event["to"] = rng.randint(0, highest)
        happens.append(event)
    return {
        "k": tokens, "g": devices, "m": rng.randint(1, 8), "f": length, "cap": cap, "order": order,
        "requests": requests, "events": happens,
    }  # fmt: skip
