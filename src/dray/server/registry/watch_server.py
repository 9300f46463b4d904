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
from dray.api.watch_batch import EncodedWatchBatch
from dray.server.http.errors import (
    new_bad_request,
    new_expired,
    new_invalid_options,
    new_service_unavailable,
    new_version_too_large,
)
from dray.server.http.requests import ApiRequest
from dray.server.http.responses import ResponseWriter, WatchEventEncoder, encode_error_event
from dray.server.objects.stored_object import StoredObject, build_deleted, build_key, build_prefix
from dray.server.registry.reader import NOT_OLDER_THAN, StoredObjectReader, parse_revision
from dray.server.registry.selectors import ListSelector, parse_selectors
from dray.server.watch.cache import WatchCache
from dray.server.watch.encoded_events import EncodedEventCache
from dray.store import EventBatch, StoreEntry, StoreEvent
from dray.store.errors import (
    CompactedError,
    FutureRevisionError,
    SlowWatcherError,
    StoreClosedError,
    StoreError,
)

BOOKMARK_SECONDS: Final = 10.0
MAX_WATCH_SECONDS: Final = 3600
"""A watch without a wish of its own ends after half an hour to an hour: clients spread over servers so."""

INITIAL_CHUNK_BYTES: Final = 256 * 1024
"""Initial events go out in parts of about this many bytes."""

Line = bytes


class WatchServer:
    """Opens watches."""

    def __init__(
        self,
        cache: WatchCache,
        reader: StoredObjectReader,
        responses: ResponseWriter,
        random_int: Callable[[int], int],
    ) -> None:
        self._cache = cache
        self._reader = reader
        self._responses = responses
        self._random_int = random_int
        self._encoded_events = EncodedEventCache()

    async def open(self, request: ApiRequest, kind: Kind) -> AsyncGenerator[Line, None]:
        """The lines of a watch; raises a `Failure` when it makes no sense."""
        query = request.call.query
        chosen, events = parse_selectors(kind, query), self._responses.build_event_encoder(request, kind)
        version = query.get("resourceVersion", "")
        initial = _read_send_initial_events(query)
        if version not in ("", "0"):
            asked = parse_revision(version)
            if initial or asked > self._cache.revision:
                await self._reader.wait_for_revision(asked)
        elif version == "":
            await self._cache.wait_until_fresh()
        _read_timeout(query)  # what makes no sense is told before the first line
        return self._stream_lines(request, kind, chosen, events, initial)

    async def _stream_lines(
        self,
        request: ApiRequest,
        kind: Kind,
        selector: ListSelector,
        events: WatchEventEncoder,
        initial: bool | None,
    ) -> AsyncGenerator[Line, None]:
        query, place = request.call.query, _build_watch_prefix(request, kind, selector)
        version = query.get("resourceVersion", "")
        after = self._cache.revision if version in ("", "0") or initial else parse_revision(version)
        if initial or (initial is None and version in ("", "0")):
            held = [
                each
                for each in self._cache.list_objects(kind, request.call.namespace)
                if selector.matches(each)
            ]
            for part in _encode_initial_events(events, held):
                yield part
            if initial:
                yield events.encode_bookmark(after, initial_end=True)
        else:
            yield b""  # the headers must not wait for the first event
        shared = (place, *events.sharing_key) if selector.is_everything and events.sharing_key else None
        seconds = _read_timeout(query) or MAX_WATCH_SECONDS // 2 + self._random_int(MAX_WATCH_SECONDS // 2)
        try:
            async with aclosing(self._read_batches(place, after, seconds)) as batches:
                async for batch in batches:
                    if batch.events:
                        line = self._encode_batch(shared, selector, events, batch)
                        if line:
                            yield line
                    elif query.get("allowWatchBookmarks") in ("true", "1", "True"):
                        yield events.encode_bookmark(batch.revision)
        except CompactedError as gone:
            yield encode_error_event(new_expired(f"too old resource version: {after} ({gone.oldest})"))
        except FutureRevisionError as future:
            yield encode_error_event(new_version_too_large(after, future.current or 0))
        except SlowWatcherError as slow:
            yield encode_error_event(new_expired(str(slow)))
        except StoreClosedError:
            return
        except StoreError as broken:
            yield encode_error_event(new_service_unavailable(f"the store does not answer: {broken}"))

    async def _read_batches(
        self, prefix: bytes, after: int, seconds: float
    ) -> AsyncGenerator[EventBatch, None]:
        """What changes until the time is over: a quiet watch ends with its last bookmark."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        pause = seconds / math.ceil(seconds / BOOKMARK_SECONDS)
        async with aclosing(self._cache.watch(prefix, after, pause)) as batches:
            async for batch in batches:
                yield batch
                if now() >= deadline:
                    return

    def _encode_batch(
        self,
        sharing_key: tuple[object, ...] | None,
        selector: ListSelector,
        events: WatchEventEncoder,
        batch: EventBatch,
    ) -> Line:
        """All changes of a batch; who watches everything under a prefix gets what all others get who do."""
        # What stood before is part of the name: after a gap the cache tells several changes as one.
        known = (
            None if sharing_key is None else (batch.revision, *_get_previous_revisions(batch), *sharing_key)
        )
        line = None if known is None else self._encoded_events.find(known)
        if line is None:
            said = [(event, *self._classify_event(selector, event)) for event in batch.events]
            line = b"".join([self._encode_event(events, *each) for each in said])
            if known is not None:
                if events.is_storage_version:
                    line = EncodedWatchBatch.from_events(
                        line, [(what, held) for _, what, held in said if held is not None]
                    )
                self._encoded_events.add(known, line)
        return line

    @staticmethod
    def _classify_event(selector: ListSelector, event: StoreEvent) -> tuple[str, StoredObject | None]:
        """What a change means to those who watch what was chosen; nothing, maybe."""
        now, before = _select_object(selector, event.entry), _select_object(selector, event.previous)
        if now is not None:
            return ("ADDED" if before is None else "MODIFIED"), now
        return "DELETED", None if before is None else build_deleted(before, event.revision)

    def _encode_event(
        self, events: WatchEventEncoder, event: StoreEvent, type_: str, stored: StoredObject | None
    ) -> Line:
        if stored is None:
            return b""
        form = events.sharing_key
        if form is None:
            return events.encode_event(type_, stored)
        known = (event.revision, event.key, type_, form)
        line = self._encoded_events.find(known)
        return self._encoded_events.add(known, events.encode_event(type_, stored)) if line is None else line


def _select_object(selector: ListSelector, entry: StoreEntry | None) -> StoredObject | None:
    """An object, if there is one and it was chosen."""
    if entry is None or (selector.fields and not selector.matches_fields(entry.key, entry.value)):
        return None
    held = StoredObject.from_entry(entry)
    return held if not selector.labels.requirements or selector.matches(held) else None


def _get_previous_revisions(batch: EventBatch) -> list[int]:
    """The revisions at which what a batch changes was written before."""
    return [0 if event.previous is None else event.previous.mod_revision for event in batch.events]


def _build_watch_prefix(request: ApiRequest, kind: Kind, selector: ListSelector) -> bytes:
    """What a watch must hear of; who asks for one name is not told of all the others."""
    namespace, name = request.call.namespace, selector.get_exact_value("metadata.name")
    if name and (namespace or not kind.namespaced):
        return build_key(kind, namespace, name)
    return build_prefix(kind, namespace)


def _encode_initial_events(events: WatchEventEncoder, objects: list[StoredObject]) -> Iterator[Line]:
    """All objects as events, written when their part is sent: a client may take long to read them."""
    lines: list[Line] = []
    size = 0
    for each in objects:
        line = events.encode_event("ADDED", each)
        lines.append(line)
        size += len(line)
        if size > INITIAL_CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _read_send_initial_events(query: Mapping[str, str]) -> bool | None:
    """Whether the client wants the present state first; None when it does not say."""
    text, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
    if text is None:
        if match:
            what = (
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            raise new_invalid_options("ListOptions", "resourceVersionMatch", what)
        return None
    if match != NOT_OLDER_THAN:
        what = f"Forbidden: sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        raise new_invalid_options("ListOptions", "resourceVersionMatch", what)
    return text in ("true", "1", "True")


def _read_timeout(query: Mapping[str, str]) -> int:
    text = query.get("timeoutSeconds", "") or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise new_bad_request(f"timeoutSeconds must be a whole number, not `{text}`")
    return int(text)
