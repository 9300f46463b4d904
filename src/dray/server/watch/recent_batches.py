"""The recent changes, for watches that start at a past revision.

Theory of operation: batches are kept up to a number of events and bytes. Their events are indexed by kind,
and for fields with an index (`field_index`) by the values that the object has and had, so that the agent of
a node that resumes its watch reads the changes of its own pods only. An index by value is built when a watch
first asks for it. Every index has the events in the order of their revisions, so that the oldest event is the
first in each.

Rules for this file: a watch gets all changes of a revision in one batch, as if it had been there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, takewhile
from typing import Final, NamedTuple

from dray.server.watch.field_index import INDEXED_FIELDS
from dray.store import EventBatch, StoreEntry, StoreEvent
from dray.store.watch_broadcaster import RequiredField, filter_batch
from dray.store.watch_buffer import count_bytes

MAX_HISTORY_EVENTS: Final = 20_000
MAX_HISTORY_BYTES: Final = 64 * 1024 * 1024
"""How many events, and how many bytes of them, are kept for watches that start at a past revision."""

ValueLister = Callable[[str, StoreEntry], Sequence[str]]
"""The values of a field of an object."""


class _RecentEvent(NamedTuple):
    """An event, and the revision of the batch it came in."""

    revision: int
    event: StoreEvent


class _EventsByValue:
    """The recent events of one kind by the values of a field before and after."""

    def __init__(self, field: str, list_values: ValueLister, events: Iterable[_RecentEvent]) -> None:
        self._field = field
        self._list_values = list_values
        self._by_value: dict[str, deque[_RecentEvent]] = {}
        self._values: deque[Sequence[str]] = deque()
        for recent in events:
            self.add(recent)

    def add(self, recent: _RecentEvent) -> None:
        values = list_changed_values(self._field, recent.event, self._list_values)
        self._values.append(values)
        for value in values:
            self._by_value.setdefault(value, deque()).append(recent)

    def drop_oldest(self) -> None:
        for value in self._values.popleft():
            events = self._by_value[value]
            events.popleft()
            if not events:
                del self._by_value[value]

    def get_events(self, value: str) -> Sequence[_RecentEvent]:
        return self._by_value.get(value, ())


class _KindEvents:
    """The recent events of one kind."""

    def __init__(self) -> None:
        self.events: deque[_RecentEvent] = deque()
        self._by_field: dict[str, _EventsByValue] = {}

    def add(self, recent: _RecentEvent) -> None:
        self.events.append(recent)
        for index in self._by_field.values():
            index.add(recent)

    def drop_oldest(self) -> None:
        self.events.popleft()
        for index in self._by_field.values():
            index.drop_oldest()

    def select(self, required: RequiredField | None, list_values: ValueLister) -> Sequence[_RecentEvent]:
        """The events that may concern a watch; all of them for a field without an index."""
        if required is None or required.field not in INDEXED_FIELDS:
            return self.events
        index = self._by_field.get(required.field)
        if index is None:
            index = self._by_field[required.field] = _EventsByValue(required.field, list_values, self.events)
        return index.get_events(required.value)


class RecentBatches:
    """The most recent batches, up to a number of events and bytes."""

    def __init__(
        self,
        list_values: ValueLister,
        get_kind_prefix: Callable[[bytes], bytes],
        max_events: int = MAX_HISTORY_EVENTS,
    ) -> None:
        """`get_kind_prefix` returns the prefix of the kind of an object, and of its prefixes; empty for
        other keys.
        """
        self._list_values = list_values
        self._get_kind_prefix = get_kind_prefix
        self._max_events = max_events
        self._batches: deque[EventBatch] = deque()
        self._kinds: dict[bytes, _KindEvents] = {}
        self._events = self._bytes = 0
        self.start_revision = 0
        """Every change after this revision is in memory."""

    def clear(self, revision: int) -> None:
        """Drop all batches; the changes before `revision` are not known one by one."""
        self._batches.clear()
        self._kinds.clear()
        self._events = self._bytes = 0
        self.start_revision = revision

    def add(self, batch: EventBatch) -> None:
        """Add the newest batch, and drop the oldest ones beyond the bounds."""
        self._batches.append(batch)
        self._events += len(batch.events)
        self._bytes += count_bytes(batch)
        for event in batch.events:
            kind = self._get_kind_prefix(event.key)
            if kind:
                self._kinds.setdefault(kind, _KindEvents()).add(_RecentEvent(batch.revision, event))
        while self._events > self._max_events or self._bytes > MAX_HISTORY_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._batches.popleft()
        self._events -= len(oldest.events)
        self._bytes -= count_bytes(oldest)
        self.start_revision = oldest.revision
        for event in oldest.events:
            kind = self._get_kind_prefix(event.key)
            if kind:
                self._kinds[kind].drop_oldest()
                if not self._kinds[kind].events:
                    del self._kinds[kind]

    def list_after(
        self, revision: int, prefix: bytes, required: RequiredField | None = None
    ) -> list[EventBatch]:
        """The changes of objects under a prefix after a revision, without most of those that do not concern
        a watch with this requirement.
        """
        kind_prefix = self._get_kind_prefix(prefix)
        if not kind_prefix:
            return [filter_batch(batch, prefix) for batch in self._batches if batch.revision > revision]
        kind = self._kinds.get(kind_prefix)
        if kind is None:
            return []
        events = kind.select(required, self._list_values)
        # Most watches resume shortly before the end.
        newer = list(takewhile(lambda recent: recent.revision > revision, reversed(events)))
        newer.reverse()
        return [
            EventBatch(batch_revision, selected)
            for batch_revision, several in groupby(newer, key=lambda recent: recent.revision)
            if (selected := tuple(each.event for each in several if each.event.key.startswith(prefix)))
        ]

    def __len__(self) -> int:
        """The number of events."""
        return self._events


def list_changed_values(field: str, event: StoreEvent, list_values: ValueLister) -> Sequence[str]:
    """The values that the object of an event has and had, each once."""
    if event.previous is None:
        return () if event.entry is None else list_values(field, event.entry)
    if event.entry is None:
        return list_values(field, event.previous)
    return tuple(dict.fromkeys((*list_values(field, event.entry), *list_values(field, event.previous))))
