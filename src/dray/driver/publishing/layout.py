"""Which page of a pool each device stands on, so that little moves when little changes.

Theory of operation: devices are offered in the order of the pages and, on a page, in the order of the list;
that order is the driver's and is kept. Pages have numbers with gaps between them. Devices that stood in the
right order before stay on their pages (the longest rising line through the old numbers); new ones join the
page of their neighbour while it has room, or get a page of their own in a gap. Only where a page overflows in
its middle, or no gap is left, devices move. When pages have become twice as many as needed, all are packed
anew.

Rules for this file: pure, and it knows neither slices nor generations; what fits on a page is an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

PAGE_NUMBER_STEP: Final = 100
"""The distance between the numbers of fresh pages: room for others between them."""


class NamedItem(Protocol):
    """What stands on pages."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedItem)

Fits = Callable[[Sequence[Any]], bool]
"""Whether things can stand on one page; what fits, fits with less on it."""


@dataclass(frozen=True, slots=True)
class LayoutPage(Generic[T]):
    """One page: its number, the group its things belong to, and the things."""

    number: int
    group: int
    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class PreviousPage:
    """How a page was: its number and the names on it."""

    number: int
    names: tuple[str, ...]


@dataclass(slots=True)
class _Run(Generic[T]):
    """Things that come one after the other; with a number when some of them stood on that page."""

    group: int
    number: int | None = None
    items: list[T] = field(default_factory=list)
    in_place: list[bool] = field(default_factory=list)
    """Which of them stood on this page before."""


def lay_out_pages(
    groups: Sequence[Sequence[T]], previous: Sequence[PreviousPage], fits: Fits
) -> tuple[LayoutPage[T], ...]:
    """Groups of things on pages, none of which holds things of two groups."""
    runs = _split_into_runs(groups, {name: page.number for page in previous for name in page.names})
    pieces = [piece for run in runs for piece in _split_run(run, fits)]
    fresh = [_Run(at, None, chunk) for at, group in enumerate(groups) for chunk in _pack_chunks(group, fits)]
    numbers = _assign_numbers([piece.number for piece in pieces])
    if numbers is None or len(pieces) > 2 * len(fresh):
        pieces, numbers = fresh, [PAGE_NUMBER_STEP * (at + 1) for at in range(len(fresh))]
    return tuple(
        LayoutPage(number, piece.group, tuple(piece.items))
        for number, piece in zip(numbers, pieces, strict=True)
    )


def _split_into_runs(groups: Sequence[Sequence[T]], old: dict[str, int]) -> list[_Run[T]]:
    stays = _find_longest_nondecreasing([old.get(item.name) for group in groups for item in group])
    runs: list[_Run[T]] = []
    used, at = 0, 0
    for group, items in enumerate(groups):
        run: _Run[T] = _Run(group)
        for item in items:
            number = old[item.name] if at in stays else None
            at += 1
            settled = number is not None and (number == run.number or number > used)
            if settled and number != run.number:
                if run.number is not None:
                    runs.append(run)
                    run = _Run(group)
                run.number = used = number or 0
            run.items.append(item)
            run.in_place.append(settled)
        if run.items:
            runs.append(run)
    return runs


def _find_longest_nondecreasing(numbers: Sequence[int | None]) -> frozenset[int]:
    """Positions of a longest line of numbers that never falls."""
    ends: list[int] = []
    last: list[int] = []
    came_from: dict[int, int | None] = {}
    for at, number in enumerate(numbers):
        if number is None:
            continue
        length = bisect_right(ends, number)
        came_from[at] = last[length - 1] if length else None
        ends[length : length + 1] = [number]
        last[length : length + 1] = [at]
    line: set[int] = set()
    step = last[-1] if last else None
    while step is not None:
        line.add(step)
        step = came_from[step]
    return frozenset(line)


def _split_run(run: _Run[T], fits: Fits) -> list[_Run[T]]:
    """A run as pages that are not too full; whoever stood on the page stays there if that is possible."""
    items = run.items
    if fits(items):
        return [run]
    if run.number is not None:
        low, high = run.in_place.index(True), len(items) - run.in_place[::-1].index(True)
        if fits(items[low:high]):
            while high < len(items) and fits(items[low : high + 1]):
                high += 1
            while low > 0 and fits(items[low - 1 : high]):
                low -= 1
            before, after = _pack_chunks(items[:low], fits), _pack_chunks(items[high:], fits)
            kept = _Run(run.group, run.number, items[low:high])
            return [
                *(_Run(run.group, None, chunk) for chunk in before),
                kept,
                *(_Run(run.group, None, chunk) for chunk in after),
            ]
    pieces = [_Run(run.group, None, chunk) for chunk in _pack_chunks(items, fits)]
    pieces[0].number = run.number
    return pieces


def _pack_chunks(items: Sequence[T], fits: Fits) -> list[list[T]]:
    """As much on each page as fits, in order."""
    chunks: list[list[T]] = []
    for item in items:
        if chunks and fits([*chunks[-1], item]):
            chunks[-1].append(item)
        else:
            chunks.append([item])
    return chunks


def _assign_numbers(known: Sequence[int | None]) -> list[int] | None:
    """Numbers for pages that have none, between those of their neighbours; None when there is no room."""
    numbers: list[int] = []
    at = 0
    while at < len(known):
        number = known[at]
        if number is not None:
            numbers.append(number)
            at += 1
            continue
        end = at
        while end < len(known) and known[end] is None:
            end += 1
        low, count = (numbers[-1] if numbers else 0), end - at
        high = known[end] if end < len(known) else None
        if high is None:
            numbers += [(low // PAGE_NUMBER_STEP + each + 1) * PAGE_NUMBER_STEP for each in range(count)]
        elif high - low - 1 < count:
            return None
        else:
            numbers += [low + (high - low) * (each + 1) // (count + 1) for each in range(count)]
        at = end
    return numbers
