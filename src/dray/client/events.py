"""The event recorder: writes events about objects, with repetitions counted and rates limited.

Theory of operation: `record` only queues; `run` writes. Events come in bursts, so it waits a moment for more,
and writes many at a time as transactions of one write, which the client sends together. Each succeeds or
fails by itself. When `run` is cancelled, it writes what is left, if that does not take long. A repetition of
an event (same object, same text) increments its count, which is written at growing intervals. An object with
too many different events is rate-limited; dropped events are counted. Servers without `events.k8s.io` get
events of the core group.

Rules for this file: events must never harm. `record` does not wait and does not fail, everything that is
remembered has a limit, and a write that fails a few times is dropped.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from dray.api.kinds import Kind
from dray.client.client import Client
from dray.client.errors import (
    AlreadyExistsError,
    ApiError,
    InternalServerError,
    NotFoundError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from dray.client.object_refs import Document, get_identity, get_kind, get_object_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import RateLimiter, TimeSource
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.clock import format_micro_timestamp, format_timestamp

NEW_EVENT_KIND: Final = get_kind("Event.events.k8s.io")
CORE_EVENT_KIND: Final = get_kind("Event")

MAX_NOTE_BYTES: Final = 1024
MAX_REASON_BYTES: Final = 128
MAX_CONCURRENT_WRITES: Final = 16
"""So many events are written at a time; one after the other, a burst would take too long."""
GATHER_SECONDS: Final = 0.05
"""So long events wait for others that are written with them."""
LAST_WRITE_SECONDS: Final = 1.0
"""Seconds in which the last events are written."""
MAX_REMEMBERED: Final = 2_000
"""How many different events, and how many objects, are remembered."""
INITIAL_INTERVAL, MAX_INTERVAL = 10.0, 600.0
"""Seconds between writes of the count of one event."""
EVENTS_PER_OBJECT: Final = 25
"""How many different events an object may have at once; after that one every `REFILL_SECONDS` seconds."""
REFILL_SECONDS: Final = 60.0
MAX_ATTEMPTS: Final = 5

_RETRYABLE_ERRORS = (TooManyRequestsError, InternalServerError, ServiceUnavailableError)


class InvolvedObject(NamedTuple):
    """The object an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def to_reference(self) -> Document:
        named = zip(("apiVersion", "kind", "namespace", "name", "uid"), self, strict=True)
        return {name: value for name, value in named if value}


def to_involved_object(obj: Any) -> InvolvedObject:
    """Return the reference to an object for an event."""
    kind, identity = get_object_kind(obj), get_identity(obj)
    return InvolvedObject(kind.internal_api_version, kind.name, *identity.key, identity.uid)


class _EventKey(NamedTuple):
    """What makes two events the same."""

    subject: InvolvedObject
    type: str
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Series:
    """One event and its repetitions."""

    first: datetime
    last: datetime
    count: int = 1
    written: int = 0
    name: str = ""
    interval: float = INITIAL_INTERVAL
    due: float = 0.0
    attempts: int = 0


@dataclass(slots=True)
class EventStats:
    """Counters of events, for metrics."""

    recorded: int = 0
    created: int = 0
    repeated: int = 0
    dropped: int = 0
    failed: int = 0


@dataclass
class EventRecorder:
    """Records events about objects, in the name of `controller`."""

    client: Client
    controller: str
    instance: str
    stats: EventStats = field(default_factory=EventStats)

    def __post_init__(self) -> None:
        self._time_source: TimeSource = self.client.options.time_source
        self._series: OrderedDict[_EventKey, _Series] = OrderedDict()
        self._pending: dict[_EventKey, None] = {}
        self._limits: OrderedDict[InvolvedObject, RateLimiter] = OrderedDict()
        self._kind: Kind | None = None
        self._number = 0
        self._wake = asyncio.Event()

    def record(
        self, regarding: Any, reason: str, note: str, *, warning: bool = False, action: str = ""
    ) -> None:
        """Record an event about an object (or an `InvolvedObject`); it is written soon, if at all."""
        self.stats.recorded += 1
        subject = regarding if isinstance(regarding, InvolvedObject) else to_involved_object(regarding)
        key = _EventKey(
            subject,
            "Warning" if warning else "Normal",
            truncate_text(reason, MAX_REASON_BYTES),
            truncate_text(action or reason, MAX_REASON_BYTES),
            truncate_text(note, MAX_NOTE_BYTES),
        )
        now = self._time_source.clock.now()
        known = self._series.get(key)
        if known is None:
            if not self._is_within_limit(subject):
                self.stats.dropped += 1
                return
            self._series[key] = _Series(now, now)
            self._forget_oldest()
        else:
            known.count += 1
            known.last = now
            self._series.move_to_end(key)
        self._pending[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Write recorded events until cancelled, and then those that are left."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._compute_next_delay()):
                        await self._wake.wait()
                await self._time_source.sleep(GATHER_SECONDS)
                self._wake.clear()
                await self.write_due()
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WRITE_SECONDS):
                    await self.write_due(everything=True)
            raise

    async def write_due(self, *, everything: bool = False) -> None:
        """Write the events that are due; with `everything`, all that are pending, before a program ends."""
        now = self._time_source.clock.monotonic()
        due = [key for key in self._pending if everything or self._is_due(key, now)]
        for start in range(0, len(due), MAX_CONCURRENT_WRITES):
            await asyncio.gather(*map(self._write_pending, due[start : start + MAX_CONCURRENT_WRITES]))

    def _is_due(self, key: _EventKey, now: float) -> bool:
        series = self._series.get(key)
        return series is None or series.due <= now

    async def _write_pending(self, key: _EventKey) -> None:
        """Write an event, unless it was dropped while others were written."""
        series = self._series.get(key)
        if key in self._pending:
            del self._pending[key]
            if series is not None:
                await self._write_series(key, series)

    def _is_within_limit(self, subject: InvolvedObject) -> bool:
        limit = self._limits.get(subject)
        if limit is None:
            limit = self._limits[subject] = RateLimiter(
                1 / REFILL_SECONDS, EVENTS_PER_OBJECT, self._time_source
            )
            if len(self._limits) > MAX_REMEMBERED:
                self._limits.popitem(last=False)
        return limit.try_acquire()

    def _forget_oldest(self) -> None:
        if len(self._series) > MAX_REMEMBERED:
            key, _ = self._series.popitem(last=False)
            if key in self._pending:
                del self._pending[key]
                self.stats.dropped += 1

    def _compute_next_delay(self) -> float | None:
        waiting = [self._series[key].due for key in self._pending if key in self._series]
        return max(0.0, min(waiting) - self._time_source.clock.monotonic()) if waiting else None

    async def _write_series(self, key: _EventKey, series: _Series) -> None:
        count = series.count
        try:
            if series.name and not await self._update_count(key, series):
                # Servers expire events after a while: start a new one, with what was not written yet.
                series.first, series.name = series.last, ""
                series.count, count = series.count - series.written, count - series.written
            if not series.name:
                await self._create_event(key, series)
        except CALL_ERRORS as failed:
            self._record_failure(key, series, failed)
            return
        series.written, series.attempts = count, 0
        series.due = self._time_source.clock.monotonic() + series.interval
        series.interval = min(series.interval * 2, MAX_INTERVAL)
        if series.count > count:
            self._pending[key] = None

    def _record_failure(self, key: _EventKey, series: _Series, error: Exception) -> None:
        self.stats.failed += 1
        series.attempts += 1
        permanent = isinstance(error, ApiError) and not isinstance(error, _RETRYABLE_ERRORS)
        if permanent or series.attempts >= MAX_ATTEMPTS:
            self._series.pop(key, None)
            self.stats.dropped += 1
            return
        series.due = self._time_source.clock.monotonic() + 2.0**series.attempts
        self._pending[key] = None

    async def _update_count(self, key: _EventKey, series: _Series) -> bool:
        """Write the count; False when the server has expired the event."""
        kind, last = await self._get_event_kind(), series.last
        if kind is NEW_EVENT_KIND:
            change: Document = {
                "series": {"count": series.count, "lastObservedTime": format_micro_timestamp(last)}
            }
        else:
            change = {"count": series.count, "lastTimestamp": format_timestamp(last)}
        namespace = key.subject.namespace or "default"
        try:
            await self._write(ObjectTransaction().patch(kind, series.name, MergePatch(change), namespace))
        except NotFoundError:
            return False
        self.stats.repeated += 1
        return True

    async def _create_event(self, key: _EventKey, series: _Series) -> None:
        kind = await self._get_event_kind()
        while True:
            self._number += 1
            stamp = f"{int(series.first.timestamp() * 1_000_000):x}.{self._number:x}"
            name = f"{key.subject.name[: 250 - len(stamp)]}.{stamp}"
            namespace = key.subject.namespace or "default"
            metadata = {"name": name, "namespace": namespace}
            content = (
                self._build_new_event(key, series)
                if kind is NEW_EVENT_KIND
                else self._build_core_event(key, series)
            )
            head = {"apiVersion": kind.internal_api_version, "kind": kind.name, "metadata": metadata}
            with suppress(AlreadyExistsError):
                await self._write(ObjectTransaction().create(head | content))
                break
        series.name = name
        self.stats.created += 1

    async def _write(self, transaction: ObjectTransaction) -> None:
        """Write an event, in one request with those that are written at the same time."""
        await self.client.transactions.commit(transaction, wants_objects=False)

    async def _get_event_kind(self) -> Kind:
        """Return the kind of events that the server serves."""
        if self._kind is None:
            try:
                await self.client.get_json(f"/apis/{NEW_EVENT_KIND.internal_api_version}")
                self._kind = NEW_EVENT_KIND
            except NotFoundError:
                self._kind = CORE_EVENT_KIND
        return self._kind

    def _build_new_event(self, key: _EventKey, series: _Series) -> Document:
        event = {
            "eventTime": format_micro_timestamp(series.first),
            "reportingController": self.controller,
            "reportingInstance": truncate_text(self.instance, MAX_REASON_BYTES),
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "regarding": key.subject.to_reference(),
            "note": key.note,
        }
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": format_micro_timestamp(series.last)}
        return event

    def _build_core_event(self, key: _EventKey, series: _Series) -> Document:
        return {
            "involvedObject": key.subject.to_reference(),
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "message": key.note,
            "source": {"component": self.controller},
            "reportingComponent": self.controller,
            "reportingInstance": truncate_text(self.instance, MAX_REASON_BYTES),
            "firstTimestamp": format_timestamp(series.first),
            "lastTimestamp": format_timestamp(series.last),
            "count": series.count,
        }


def truncate_text(text: str, limit: int) -> str:
    """Truncate a text to at most `limit` bytes, between characters and with `…`."""
    if len(text) <= limit and text.isascii():
        return text
    coded = text.encode("utf-8", "replace")
    if len(coded) <= limit:
        return coded.decode()
    return coded[: limit - 3].decode("utf-8", "ignore") + "…"
