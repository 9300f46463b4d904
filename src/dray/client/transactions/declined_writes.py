"""Declined writes: what a server did not want in a transaction a moment ago, remembered for a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.client.write_requests import ObjectWrite
from dray.clock import Clock
from dray.values.cache_bounds import CacheBound

REMEMBERED_SECONDS: Final = 60.0
"""So long a "no" of the server is remembered."""

_DECLINED_BOUND: Final = CacheBound("declined transactions", 64, "the client of one server")


class DeclinedWrites:
    """The kinds of writes that the server declined to carry out in one transaction."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[frozenset[str], float] = {}

    def remember(self, writes: Iterable[ObjectWrite]) -> None:
        """Remember that the server declined such writes."""
        _DECLINED_BOUND.put(self._until, _name_kinds(writes), self._clock.monotonic() + REMEMBERED_SECONDS)

    def includes(self, writes: Iterable[ObjectWrite]) -> bool:
        """Whether the server declined such writes a moment ago."""
        return bool(self._until) and self._clock.monotonic() < self._until.get(_name_kinds(writes), 0.0)


def _name_kinds(writes: Iterable[ObjectWrite]) -> frozenset[str]:
    return frozenset(f"{write.request.method} {write.kind.qualified_name}" for write in writes)
