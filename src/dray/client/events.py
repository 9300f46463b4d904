"""Events: what people should know about an object, told once.

Theory of operation: `record` only notes; `run` writes. What is said again about the same object in the same
words is one event with a count, and the count is written with growing pauses. An object that has too much
said about it is not heard any more for a while; what is dropped is counted. Servers without `events.k8s.io`
get events of the core group.

Rules for this file: telling must never hurt. `record` does not wait and does not fail, everything that is
remembered has an upper limit, and a write that does not succeed in a few attempts is forgotten.
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
from dray.client.errors import AlreadyExists, ApiError, NotFound, ServerFault, TooManyRequests, Unavailable
from dray.client.leases import micro_time
from dray.client.object_refs import Document, key_of, kind_called, kind_of_object, uid_of
from dray.client.patches import MergePatch
from dray.client.rest_client import TROUBLE
from dray.client.timing import Limiter, Tempo
from dray.clock import timestamp

NEW: Final = kind_called("Event.events.k8s.io")
CORE: Final = kind_called("Event")

NOTE_BYTES: Final = 1024
WORD_BYTES: Final = 128
AT_ONCE: Final = 16
"""So many events are written at a time; one after the other, a burst of them would never be told."""
REMEMBERED: Final = 2_000
"""How many different events, and how many objects, are remembered."""
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds between writes of the count of one event."""
PER_OBJECT: Final = 25
"""How many different events an object may have at once; after that one every `REFILL` seconds."""
REFILL: Final = 60.0
ATTEMPTS: Final = 5

_LATER = (TooManyRequests, ServerFault, Unavailable)


class Subject(NamedTuple):
    """Who an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def reference(self) -> Document:
        named = zip(("apiVersion", "kind", "namespace", "name", "uid"), self, strict=True)
        return {name: value for name, value in named if value}


def subject_of(obj: Any) -> Subject:
    """An object as the subject of an event."""
    kind = kind_of_object(obj)
    return Subject(kind.internal_api_version, kind.name, *key_of(obj), uid_of(obj))


class _Said(NamedTuple):
    """What makes events the same."""

    subject: Subject
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
    pause: float = FIRST_PAUSE
    due: float = 0.0
    attempts: int = 0


@dataclass(slots=True)
class Tally:
    """What became of events, for metrics."""

    recorded: int = 0
    created: int = 0
    repeated: int = 0
    dropped: int = 0
    failed: int = 0


@dataclass
class EventRecorder:
    """Tells people about objects, in the name of `controller`."""

    client: Client
    controller: str
    instance: str
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._tempo: Tempo = self.client.habits.tempo
        self._series: OrderedDict[_Said, _Series] = OrderedDict()
        self._pending: dict[_Said, None] = {}
        self._limits: OrderedDict[Subject, Limiter] = OrderedDict()
        self._kind: Kind | None = None
        self._number = 0
        self._wake = asyncio.Event()

    def record(self, about: Any, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """Note that something happened to an object (or to a `Subject`); written soon, if at all."""
        self.tally.recorded += 1
        subject = about if isinstance(about, Subject) else subject_of(about)
        said = _Said(
            subject,
            "Warning" if warning else "Normal",
            shortened(reason, WORD_BYTES),
            shortened(action or reason, WORD_BYTES),
            shortened(note, NOTE_BYTES),
        )
        now = self._tempo.clock.now()
        known = self._series.get(said)
        if known is None:
            if not self._may_speak(subject):
                self.tally.dropped += 1
                return
            self._series[said] = _Series(now, now)
            self._forget_oldest()
        else:
            known.count += 1
            known.last = now
            self._series.move_to_end(said)
        self._pending[said] = None
        self._wake.set()

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            self._wake.clear()
            await self.write_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._wake.wait()

    async def write_due(self, *, everything: bool = False) -> None:
        """Write what is due; everything that waits, before a program ends."""
        now = self._tempo.clock.monotonic()
        due = [said for said in self._pending if everything or self._is_due(said, now)]
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*map(self._write_pending, due[start : start + AT_ONCE]))

    def _is_due(self, said: _Said, now: float) -> bool:
        series = self._series.get(said)
        return series is None or series.due <= now

    async def _write_pending(self, said: _Said) -> None:
        """Write something, unless it was forgotten while others were written."""
        series = self._series.get(said)
        if said in self._pending:
            del self._pending[said]
            if series is not None:
                await self._write(said, series)

    def _may_speak(self, subject: Subject) -> bool:
        limit = self._limits.get(subject)
        if limit is None:
            limit = self._limits[subject] = Limiter(1 / REFILL, PER_OBJECT, self._tempo)
            if len(self._limits) > REMEMBERED:
                self._limits.popitem(last=False)
        return limit.try_turn()

    def _forget_oldest(self) -> None:
        if len(self._series) > REMEMBERED:
            said, _ = self._series.popitem(last=False)
            if said in self._pending:
                del self._pending[said]
                self.tally.dropped += 1

    def _seconds_to_next(self) -> float | None:
        waiting = [self._series[said].due for said in self._pending if said in self._series]
        return max(0.0, min(waiting) - self._tempo.clock.monotonic()) if waiting else None

    async def _write(self, said: _Said, series: _Series) -> None:
        count = series.count
        try:
            if series.name and not await self._repeat(said, series):
                # Servers forget events after a while: begin anew, with what was not told yet.
                series.first, series.name = series.last, ""
                series.count, count = series.count - series.written, count - series.written
            if not series.name:
                await self._create(said, series)
        except TROUBLE as failed:
            self._failed(said, series, failed)
            return
        series.written, series.attempts = count, 0
        series.due = self._tempo.clock.monotonic() + series.pause
        series.pause = min(series.pause * 2, LONGEST_PAUSE)
        if series.count > count:
            self._pending[said] = None

    def _failed(self, said: _Said, series: _Series, failed: Exception) -> None:
        self.tally.failed += 1
        series.attempts += 1
        lasting = isinstance(failed, ApiError) and not isinstance(failed, _LATER)
        if lasting or series.attempts >= ATTEMPTS:
            self._series.pop(said, None)
            self.tally.dropped += 1
            return
        series.due = self._tempo.clock.monotonic() + 2.0**series.attempts
        self._pending[said] = None

    async def _repeat(self, said: _Said, series: _Series) -> bool:
        """Write the count; False when the server has forgotten the event."""
        kind, last = await self._spoken(), series.last
        if kind is NEW:
            change: Document = {"series": {"count": series.count, "lastObservedTime": micro_time(last)}}
        else:
            change = {"count": series.count, "lastTimestamp": timestamp(last)}
        try:
            await self.client.patch(
                kind, series.name, MergePatch(change), said.subject.namespace or "default"
            )
        except NotFound:
            return False
        self.tally.repeated += 1
        return True

    async def _create(self, said: _Said, series: _Series) -> None:
        kind = await self._spoken()
        while True:
            self._number += 1
            stamp = f"{int(series.first.timestamp() * 1_000_000):x}.{self._number:x}"
            name = f"{said.subject.name[: 250 - len(stamp)]}.{stamp}"
            namespace = said.subject.namespace or "default"
            metadata = {"name": name, "namespace": namespace}
            shown = self._new(said, series) if kind is NEW else self._core(said, series)
            head = {"apiVersion": kind.internal_api_version, "kind": kind.name, "metadata": metadata}
            with suppress(AlreadyExists):
                await self.client.create(head | shown)
                break
        series.name = name
        self.tally.created += 1

    async def _spoken(self) -> Kind:
        """Which events the server knows."""
        if self._kind is None:
            try:
                await self.client.document(f"/apis/{NEW.internal_api_version}")
                self._kind = NEW
            except NotFound:
                self._kind = CORE
        return self._kind

    def _new(self, said: _Said, series: _Series) -> Document:
        event = {
            "eventTime": micro_time(series.first),
            "reportingController": self.controller,
            "reportingInstance": shortened(self.instance, WORD_BYTES),
            "type": said.type,
            "reason": said.reason,
            "action": said.action,
            "regarding": said.subject.reference(),
            "note": said.note,
        }
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": micro_time(series.last)}
        return event

    def _core(self, said: _Said, series: _Series) -> Document:
        return {
            "involvedObject": said.subject.reference(),
            "type": said.type,
            "reason": said.reason,
            "action": said.action,
            "message": said.note,
            "source": {"component": self.controller},
            "reportingComponent": self.controller,
            "reportingInstance": shortened(self.instance, WORD_BYTES),
            "firstTimestamp": timestamp(series.first),
            "lastTimestamp": timestamp(series.last),
            "count": series.count,
        }


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` bytes; what is cut off is cut at a letter and shown by `…`."""
    coded = text.encode("utf-8", "replace")
    if len(coded) <= limit:
        return coded.decode()
    return coded[: limit - 3].decode("utf-8", "ignore") + "…"
