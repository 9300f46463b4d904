"""Minimisation of a failing input: removes whatever does not change the failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.fuzz.mutations import places, put, removed

TRIES = 2000
_SIMPLE: tuple[Any, ...] = (None, "", 0, [], {})


class _Budget:
    def __init__(self) -> None:
        self.left = TRIES

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


def small_document(document: Any, fails: Callable[[Any], bool]) -> Any:
    """The document without everything the failure does not need."""
    budget = _Budget()
    while True:
        smaller = _first(_less_of(document), fails, budget)
        if smaller is None:
            return document
        document = smaller[0]


def _less_of(document: Any) -> list[Callable[[], Any]]:
    found = sorted(places(document), key=len)
    fewer: list[Callable[[], Any]] = [lambda place=place: removed(document, place) for place in found]  # type: ignore[misc]
    for place in found:
        fewer += (lambda place=place, simple=simple: put(document, place, simple) for simple in _SIMPLE)  # type: ignore[misc]
    return fewer


def _first(
    candidates: list[Callable[[], Any]], fails: Callable[[Any], bool], budget: _Budget
) -> tuple[Any] | None:
    for make in candidates:
        if not budget.spend():
            return None
        candidate = make()
        if _size(candidate) and fails(candidate):
            return (candidate,)
    return None


def _size(document: Any) -> bool:
    return isinstance(document, dict)


def small_bytes(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """The bytes without every piece the failure does not need, in ever smaller pieces."""
    budget, piece = _Budget(), max(1, len(data) // 2)
    while piece and budget.left > 0:
        start, shrunk = 0, False
        while start < len(data) and budget.spend():
            candidate = data[:start] + data[start + piece :]
            if fails(candidate):
                data, shrunk = candidate, True
            else:
                start += piece
        if not shrunk or piece > len(data):
            piece //= 2
    return data
