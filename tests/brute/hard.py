"""A problem whose search takes longer than anybody waits: three-dimensional matching.

Every device has three attributes, and the claim wants many devices of which no two agree in any of them. No
way is known to decide such a question fast, so it stays hard however clever the search becomes.
"""

from __future__ import annotations

import random
from typing import Any

VALUES, WANTED, DEVICES = 28, 26, 128
AXES = "abc"


def hard_devices(**more: Any) -> list[dict[str, Any]]:
    """The devices as a slice has them; `more` are further attributes."""
    chance = random.Random(1)
    return [
        {
            "name": f"gpu-{number}",
            "attributes": {**more, **{axis: {"int": chance.randrange(VALUES)} for axis in AXES}},
        }
        for number in range(DEVICES)
    ]


def hard_constraints(driver: str) -> list[dict[str, Any]]:
    """What makes it hard to choose among them."""
    return [{"distinctAttribute": f"{driver}/{axis}"} for axis in AXES]
