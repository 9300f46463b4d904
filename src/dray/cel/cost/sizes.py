"""Sizes and costs that may be unknown: numbers that saturate at 2^64-1."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNBOUNDED: Final = 2**64 - 1


class Size(NamedTuple):
    """The least and the most a size can be."""

    low: int
    high: int


UNKNOWN: Final = Size(0, UNBOUNDED)


def fixed(count: int) -> Size:
    """A size that is known."""
    return Size(count, count)


def plus(*counts: int) -> int:
    """The sum, at most unbounded."""
    return min(sum(counts), UNBOUNDED)


def times(one: int, other: int) -> int:
    """The product, at most unbounded."""
    return min(one * other, UNBOUNDED)


def scaled(count: int, factor: float) -> int:
    """The count times a factor, rounded up; a float on purpose, as it is in Kubernetes."""
    product = float(count) * factor
    return UNBOUNDED if product >= 2.0**64 else math.ceil(product)


def added(one: Size, other: Size) -> Size:
    """The size of two things together."""
    return Size(plus(one.low, other.low), plus(one.high, other.high))


def multiplied(one: Size, other: Size) -> Size:
    """The size of so many things."""
    return Size(times(one.low, other.low), times(one.high, other.high))
