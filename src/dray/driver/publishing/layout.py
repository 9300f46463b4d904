"""Page layout: assigns the devices of a pool to pages so that small changes move few devices.

Theory of operation: devices are offered in the order of the pages and, on a page, in the order of the list;
that is the driver's order. Pages have numbers with gaps between them. Devices that were in the right order
before stay on their pages (the longest nondecreasing subsequence of the old numbers); new devices join the
page of their neighbour while they fit, or get a page of their own in a gap. Devices move only where a page
overflows in its middle, or where no gap is left. When there are more than twice as many pages as needed, all
devices are packed again.

Rules for this file: pure, without slices or generations; what fits on a page is an argument.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

PAGE_NUMBER_STEP: Final = 100
"""The distance between the numbers of new pages, so that others fit between them."""


class NamedItem(Protocol):
    """An item that is laid out on pages."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=NamedItem)

Fits = Callable[[Sequence[Any]], bool]
"""Whether items fit on one page; fewer of them then fit too."""


@dataclass(frozen=True, slots=True)
class LayoutPage(Generic[T]):
    """One page: its number, the group that its items belong to, and the items."""

    number: int
    group: int
    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class PreviousPage:
    """An earlier page: its number and the names on it."""

    number: int
    names: tuple[str, ...]


@dataclass(slots=True)
class _Run(Generic[T]):
    """Consecutive items; with the number of a page when some of them were on it."""

    group: int
    number: int | None = None
    items: list[T] = field(default_factory=list)
    in_place: list[bool] = field(default_factory=list)
    """Which of them were on this page before."""


def lay_out_pages(
    groups: Sequence[Sequence[T]], previous: Sequence[PreviousPage], fits: Fits
) -> tuple[LayoutPage[T], ...]:
    """Lay out groups of items on pages; no page holds items of two groups."""
    runs = _split_into_runs(groups, {name: page.number for page in previous for name in page.names})
    pieces = [piece for run in runs for piece in _split_run(run, fits)]
    fresh = [
        _Run(position, None, chunk)
        for position, group in enumerate(groups)
        for chunk in _pack_chunks(group, fits)
    ]
    numbers = _assign_numbers([piece.number for piece in pieces])
    if numbers is None or len(pieces) > 2 * len(fresh):
        pieces, numbers = fresh, [PAGE_NUMBER_STEP * (position + 1) for position in range(len(fresh))]
    return tuple(
        LayoutPage(number, piece.group, tuple(piece.items))
        for number, piece in zip(numbers, pieces, strict=True)
    )


def _split_into_runs(groups: Sequence[Sequence[T]], old: dict[str, int]) -> list[_Run[T]]:
    stays = _find_longest_nondecreasing([old.get(item.name) for group in groups for item in group])
    runs: list[_Run[T]] = []
    used, position = 0, 0
    for group, items in enumerate(groups):
        run: _Run[T] = _Run(group)
        for item in items:
            number = old[item.name] if position in stays else None
            position += 1
            in_place = number is not None and (number == run.number or number > used)
            if in_place and number != run.number:
                if run.number is not None:
                    runs.append(run)
                    run = _Run(group)
                run.number = used = number or 0
            run.items.append(item)
            run.in_place.append(in_place)
        if run.items:
            runs.append(run)
    return runs


def _find_longest_nondecreasing(numbers: Sequence[int | None]) -> frozenset[int]:
    """Return the positions of a longest nondecreasing subsequence."""
    ends: list[int] = []
    last_positions: list[int] = []
    predecessors: dict[int, int | None] = {}
    for position, number in enumerate(numbers):
        if number is None:
            continue
        length = bisect_right(ends, number)
        predecessors[position] = last_positions[length - 1] if length else None
        ends[length : length + 1] = [number]
        last_positions[length : length + 1] = [position]
    subsequence: set[int] = set()
    step = last_positions[-1] if last_positions else None
    while step is not None:
        subsequence.add(step)
        step = predecessors[step]
    return frozenset(subsequence)


def _split_run(run: _Run[T], fits: Fits) -> list[_Run[T]]:
    """Split a run into pages that fit; items that were on the page stay on it if possible."""
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
    """Fill each page with as many items as fit, in order."""
    chunks: list[list[T]] = []
    for item in items:
        if chunks and fits([*chunks[-1], item]):
            chunks[-1].append(item)
        else:
            chunks.append([item])
    return chunks


def _assign_numbers(known: Sequence[int | None]) -> list[int] | None:
    """Number pages that have no number between their neighbours; None when a gap is too small."""
    numbers: list[int] = []
    position = 0
    while position < len(known):
        number = known[position]
        if number is not None:
            numbers.append(number)
            position += 1
            continue
        end = position
        while end < len(known) and known[end] is None:
            end += 1
        low, count = (numbers[-1] if numbers else 0), end - position
        high = known[end] if end < len(known) else None
        if high is None:
            numbers += [(low // PAGE_NUMBER_STEP + each + 1) * PAGE_NUMBER_STEP for each in range(count)]
        elif high - low - 1 < count:
            return None
        else:
            numbers += [low + (high - low) * (each + 1) // (count + 1) for each in range(count)]
        position = end
    return numbers
