"""The nine guarantees of a watch, each a function that compares what was delivered with the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dray.store import EventBatch, StoreEvent
from tests.faults.watch.truth import Truth


@dataclass
class Span:
    """What one watch delivered, bookmarks included, from its beginning to its end or interruption."""

    prefix: bytes
    after: int
    batches: list[EventBatch] = field(default_factory=list)

    @property
    def reached(self) -> int:
        """Where it may be taken up again."""
        return self.batches[-1].revision if self.batches else self.after

    def events(self) -> Iterator[StoreEvent]:
        for batch in self.batches:
            yield from batch.events


def filtered(span: Span, truth: Truth) -> bool:
    """Nothing but what was asked for."""
    return all(event.key.startswith(span.prefix) for event in span.events())


def ordered(span: Span, truth: Truth) -> bool:
    """Revisions never go back, and every event stands in the batch of its revision."""
    revisions = [span.after, *(batch.revision for batch in span.batches)]
    rising = all(earlier <= later for earlier, later in pairwise(revisions))
    return rising and all(
        event.revision == batch.revision for batch in span.batches for event in batch.events
    )


def unique(span: Span, truth: Truth) -> bool:
    """No change is delivered twice."""
    told = [(event.revision, event.key) for event in span.events()]
    return len(told) == len(set(told))


def atomic(span: Span, truth: Truth) -> bool:
    """What changed at one revision comes in one batch, all of it, in the order written."""
    return all(
        [event.key for event in batch.events]
        == [event.key for event in truth.at(batch.revision, span.prefix)]
        for batch in span.batches
        if batch.events
    )


def reliable(span: Span, truth: Truth) -> bool:
    """Between the first and the last event nothing is missing."""
    told = sorted({batch.revision for batch in span.batches if batch.events})
    return not told or told == truth.between(told[0] - 1, told[-1], span.prefix)


def resumable(span: Span, truth: Truth) -> bool:
    """It begins with the first change after the revision it was asked for."""
    told = next((batch.revision for batch in span.batches if batch.events), None)
    return told is None or truth.between(span.after, told, span.prefix)[:1] == [told]


def bookmarkable(span: Span, truth: Truth) -> bool:
    """A bookmark is true: everything up to it was delivered before, and nothing up to it comes later."""
    told: set[int] = set()
    marked = span.after
    for batch in span.batches:
        if batch.events:
            if batch.revision <= marked:
                return False
            told.add(batch.revision)
        else:
            if not told.issuperset(truth.between(marked, batch.revision, span.prefix)):
                return False
            marked = max(marked, batch.revision)
    return True


def with_previous(span: Span, truth: Truth) -> bool:
    """Each event has the previous state."""
    return all(
        event.previous == true.previous for event, true in _paired(span, truth) if event.key == true.key
    )


def with_kind(span: Span, truth: Truth) -> bool:
    """Created, changed or deleted, with the value and the count of versions: as it was."""
    return all(event.entry == true.entry for event, true in _paired(span, truth) if event.key == true.key)


def _paired(span: Span, truth: Truth) -> Iterator[tuple[StoreEvent, StoreEvent]]:
    for batch in span.batches:
        true = {event.key: event for event in truth.at(batch.revision, span.prefix)}
        for event in batch.events:
            if event.key in true:
                yield event, true[event.key]


GUARANTEES: dict[str, Callable[[Span, Truth], bool]] = {
    "filter": filtered,
    "ordered": ordered,
    "unique": unique,
    "atomic": atomic,
    "reliable": reliable,
    "resumable": resumable,
    "bookmarkable": bookmarkable,
    "previous value": with_previous,
    "created or changed": with_kind,
}


def broken(spans: Sequence[Span], truth: Truth) -> list[str]:
    """List the broken guarantees, with the span."""
    return [
        f"{name}: {span.prefix!r} after {span.after}, {len(span.batches)} batches"
        for span in spans
        for name, holds in GUARANTEES.items()
        if not holds(span, truth)
    ]
