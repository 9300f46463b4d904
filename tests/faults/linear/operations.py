"""Requests of clients and their answers, with the times of both: the input of the checker."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

ABSENT = 0
"""The value of a key that is not there; every value written is a number of its own above it."""
NEVER = math.inf

Kind = Literal["get", "put", "cas", "delete", "list"]


class Op(msgspec.Struct, gc=False):
    """One request of one client."""

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
