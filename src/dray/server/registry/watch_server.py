"""Watches: every change of the chosen objects after a revision, as lines of JSON.

Theory of operation: a watch begins with a state (all chosen objects, as ADDED events) or with a revision;
from there it hangs on the cache's feed. An object that comes to be chosen by a change is ADDED, one that
ceases to be is DELETED. Watches in the usual form share the bytes of an event: it is written once, however
many listen. Bookmarks tell quiet watches how far they have come. A client that does not read is cut off: its
buffer is bounded, and so is the time it may take to accept what was sent (see `asgi`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Final

from dray.api.kinds import Kind
from dray.api.watch_batch import Told
from dray.server.http.errors import bad_request, expired, invalid_options, unavailable, version_too_large
from dray.server.http.requests import Request
from dray.server.http.responses import Events, Showing, error_event
from dray.server.objects.stored_object import Held, gone, key, prefix
from dray.server.registry.reader import NOT_OLDER, Reading, revision_of
from dray.server.registry.selectors import Choice, choice
from dray.server.watch.cache import Cache
from dray.server.watch.encoded_events import SharedLines
from dray.store import Batch, Entry, Event
from dray.store.errors import Closed, Compacted, FutureRevision, SlowWatcher, StoreError

BOOKMARK_SECONDS: Final = 10.0
LONGEST: Final = 3600
"""A watch without a wish of its own ends after half an hour to an hour: clients spread over servers so."""

TOGETHER: Final = 256 * 1024
"""Initial events go out in parts of about this many bytes."""

Line = bytes


class Watching:
    """Opens watches."""

    def __init__(
        self, cache: Cache, reading: Reading, showing: Showing, chance: Callable[[int], int]
    ) -> None:
        self._cache = cache
        self._reading = reading
        self._showing = showing
        self._chance = chance
        self._shared = SharedLines()

    async def open(self, request: Request, kind: Kind) -> AsyncGenerator[Line, None]:
        """The lines of a watch; raises a `Failure` when it makes no sense."""
        query = request.call.query
        chosen, events = choice(kind, query), self._showing.events(request, kind)
        version = query.get("resourceVersion", "")
        initial = _initial(query)
        if version not in ("", "0"):
            asked = revision_of(version)
            if initial or asked > self._cache.revision:
                await self._reading.reached(asked)
        elif version == "":
            await self._cache.caught_up()
        _timeout(query)  # what makes no sense is told before the first line
        return self._lines(request, kind, chosen, events, initial)

    async def _lines(
        self, request: Request, kind: Kind, chosen: Choice, events: Events, initial: bool | None
    ) -> AsyncGenerator[Line, None]:
        query, place = request.call.query, _place(request, kind, chosen)
        version = query.get("resourceVersion", "")
        after = self._cache.revision if version in ("", "0") or initial else revision_of(version)
        if initial or (initial is None and version in ("", "0")):
            held = [each for each in self._cache.all(kind, request.call.namespace) if chosen.takes(each)]
            for part in _parts(events, held):
                yield part
            if initial:
                yield events.bookmark(after, initial_end=True)
        else:
            yield b""  # the headers must not wait for the first event
        shared = (place, *events.shared) if chosen.everything and events.shared else None
        seconds = _timeout(query) or LONGEST // 2 + self._chance(LONGEST // 2)
        try:
            async with aclosing(self._batches(place, after, seconds)) as batches:
                async for batch in batches:
                    if batch.events:
                        line = self._together(shared, chosen, events, batch)
                        if line:
                            yield line
                    elif query.get("allowWatchBookmarks") in ("true", "1", "True"):
                        yield events.bookmark(batch.revision)
        except Compacted as gone:
            yield error_event(expired(f"too old resource version: {after} ({gone.oldest})"))
        except FutureRevision as future:
            yield error_event(version_too_large(after, future.current or 0))
        except SlowWatcher as slow:
            yield error_event(expired(str(slow)))
        except Closed:
            return
        except StoreError as broken:
            yield error_event(unavailable(f"the store does not answer: {broken}"))

    async def _batches(self, place: bytes, after: int, seconds: float) -> AsyncGenerator[Batch, None]:
        """What changes until the time is over: a quiet watch ends with its last bookmark."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        pause = seconds / math.ceil(seconds / BOOKMARK_SECONDS)
        async with aclosing(self._cache.watch(place, after, pause)) as batches:
            async for batch in batches:
                yield batch
                if now() >= deadline:
                    return

    def _together(
        self, shared: tuple[object, ...] | None, chosen: Choice, events: Events, batch: Batch
    ) -> Line:
        """All changes of a batch; who watches everything under a prefix gets what all others get who do."""
        # What stood before is part of the name: after a gap the cache tells several changes as one.
        known = None if shared is None else (batch.revision, *_before(batch), *shared)
        line = None if known is None else self._shared.find(known)
        if line is None:
            said = [(event, *self._said(chosen, event)) for event in batch.events]
            line = b"".join([self._line(events, *each) for each in said])
            if known is not None:
                if events.as_kept:
                    line = Told.of(line, [(what, held) for _, what, held in said if held is not None])
                self._shared.keep(known, line)
        return line

    @staticmethod
    def _said(chosen: Choice, event: Event) -> tuple[str, Held | None]:
        """What a change means to those who watch what was chosen; nothing, maybe."""
        now, before = _seen(chosen, event.entry), _seen(chosen, event.previous)
        if now is not None:
            return ("ADDED" if before is None else "MODIFIED"), now
        return "DELETED", None if before is None else gone(before, event.revision)

    def _line(self, events: Events, event: Event, type_: str, held: Held | None) -> Line:
        if held is None:
            return b""
        form = events.shared
        if form is None:
            return events.event(type_, held)
        known = (event.revision, event.key, type_, form)
        line = self._shared.find(known)
        return self._shared.keep(known, events.event(type_, held)) if line is None else line


def _seen(chosen: Choice, entry: Entry | None) -> Held | None:
    """An object, if there is one and it was chosen."""
    if entry is None or (chosen.fields and not chosen.may_take(entry.key, entry.value)):
        return None
    held = Held.of(entry)
    return held if not chosen.labels.requirements or chosen.takes(held) else None


def _before(batch: Batch) -> list[int]:
    """The revisions at which what a batch changes was written before."""
    return [0 if event.previous is None else event.previous.mod_revision for event in batch.events]


def _place(request: Request, kind: Kind, chosen: Choice) -> bytes:
    """What a watch must hear of; who asks for one name is not told of all the others."""
    namespace, name = request.call.namespace, chosen.only("metadata.name")
    if name and (namespace or not kind.namespaced):
        return key(kind, namespace, name)
    return prefix(kind, namespace)


def _parts(events: Events, held: list[Held]) -> Iterator[Line]:
    """All objects as events, written when their part is sent: a client may take long to read them."""
    lines: list[Line] = []
    size = 0
    for each in held:
        line = events.event("ADDED", each)
        lines.append(line)
        size += len(line)
        if size > TOGETHER:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _initial(query: Mapping[str, str]) -> bool | None:
    """Whether the client wants the present state first; None when it does not say."""
    text, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
    if text is None:
        if match:
            what = (
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            raise invalid_options("ListOptions", "resourceVersionMatch", what)
        return None
    if match != NOT_OLDER:
        what = f"Forbidden: sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
        raise invalid_options("ListOptions", "resourceVersionMatch", what)
    return text in ("true", "1", "True")


def _timeout(query: Mapping[str, str]) -> int:
    text = query.get("timeoutSeconds", "") or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise bad_request(f"timeoutSeconds must be a whole number, not `{text}`")
    return int(text)
