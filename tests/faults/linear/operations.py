"""What a client asked and what it was told, with the moments of both: the material of the checker."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

ABSENT = 0
"""The value of a key that is not there; every value written is a number of its own above it."""
NEVER = math.inf

Kind = Literal["get", "put", "cas", "delete", "list"]


class Op(msgspec.Struct, gc=False):
    """One question of one client.

    `expected` is what a compare-and-swap wanted to find, `value` what was written. `known` is False when the
    line broke: then it may have happened at any time after it began, or never. `found` is what a read or a
    failed compare saw. A list has `contents` instead, and `revision` is where it, or a write, happened.
    """

    client: int
    kind: Kind
    key: int = -1
    value: int = ABSENT
    expected: int = ABSENT
    begun: float = 0.0
    ended: float = NEVER
    known: bool = False
    done: bool = False
    found: int = ABSENT
    revision: int = 0
    contents: dict[int, int] = {}


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change of one key, as the store's own history has it."""

    revision: int
    key: int
    value: int
