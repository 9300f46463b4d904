"""Size ranges and saturating arithmetic: sizes and costs that may be unknown saturate at 2^64-1."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNBOUNDED: Final = 2**64 - 1


class SizeRange(NamedTuple):
    """The least and the most a size can be."""

    low: int
    high: int


UNKNOWN: Final = SizeRange(0, UNBOUNDED)


def make_exact_size(count: int) -> SizeRange:
    """A known size."""
    return SizeRange(count, count)


def add_saturating(*counts: int) -> int:
    """The sum, at most unbounded."""
    return min(sum(counts), UNBOUNDED)


def multiply_saturating(one: int, other: int) -> int:
    """The product, at most unbounded."""
    return min(one * other, UNBOUNDED)


def scale_saturating(count: int, factor: float) -> int:
    """The count times a factor, rounded up; a float on purpose, as it is in Kubernetes."""
    product = float(count) * factor
    return UNBOUNDED if product >= 2.0**64 else math.ceil(product)


def add_sizes(one: SizeRange, other: SizeRange) -> SizeRange:
    """The size of two things together."""
    return SizeRange(add_saturating(one.low, other.low), add_saturating(one.high, other.high))


def multiply_sizes(one: SizeRange, other: SizeRange) -> SizeRange:
    """The size of a number of equal things."""
    return SizeRange(multiply_saturating(one.low, other.low), multiply_saturating(one.high, other.high))
