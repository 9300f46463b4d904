"""The watch server: streams the changes of selected objects after a revision.

Theory of operation: a watch starts with the current state (all selected objects as ADDED events) or with a
revision; from there it follows the cache. An object that a change makes match the selector is ADDED, one
that no longer matches is DELETED. Watches share encoded events: each is encoded once per form, however many
clients watch. Watches that require the value of a field or label are found by that value, so that a change
costs nothing for those it does not concern. Bookmarks tell idle watches the current revision. A client that
does not read is disconnected: its buffer is bounded, and so is the time to accept a part (see
`dray.server.http.asgi_messages`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
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
from dray.server.http.requests import ApiRequest, ApiResponse
from dray.server.http.responses import ResponseWriter, WatchEventEncoder
from dray.server.objects.stored_object import StoredObject, build_deleted, build_prefix
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
"""A watch without `timeoutSeconds` ends after half to all of this time, so that clients change servers."""

INITIAL_CHUNK_BYTES: Final = 256 * 1024
"""Initial events are sent in parts of about this many bytes."""

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

    async def open(self, request: ApiRequest, kind: Kind) -> ApiResponse:
        """Open a watch; raises an `ApiStatusError` when its options are not valid."""
        query = request.call.query
        selector, events = parse_selectors(kind, query), self._responses.build_event_encoder(request, kind)
        version = query.get("resourceVersion", "")
        initial = _read_send_initial_events(query)
        if version not in ("", "0"):
            revision = parse_revision(version)
            if initial or revision > self._cache.revision:
                await self._reader.wait_for_revision(revision)
        elif version == "":
            await self._cache.wait_until_fresh()
        _read_timeout(query)  # an error must come before the first line
        lines = self._stream_lines(request, kind, selector, events, initial)
        return ApiResponse(200, lines, events.content_type)

    async def _stream_lines(
        self,
        request: ApiRequest,
        kind: Kind,
        selector: ListSelector,
        events: WatchEventEncoder,
        initial: bool | None,
    ) -> AsyncGenerator[Line, None]:
        query, prefix = request.call.query, _build_watch_prefix(request, kind, selector)
        version = query.get("resourceVersion", "")
        after = self._cache.revision if version in ("", "0") or initial else parse_revision(version)
        if initial or (initial is None and version in ("", "0")):
            objects = self._reader.select_cached(kind, request.call.namespace, selector)
            for part in _encode_initial_events(events, objects):
                yield part
            if initial:
                yield events.encode_bookmark(after, initial_end=True)
        else:
            yield b""  # the headers must not wait for the first event
        shared = (prefix, *events.sharing_key) if selector.is_everything and events.sharing_key else None
        seconds = _read_timeout(query) or MAX_WATCH_SECONDS // 2 + self._random_int(MAX_WATCH_SECONDS // 2)
        try:
            async with aclosing(self._read_batches(prefix, after, seconds, selector)) as batches:
                async for batch in batches:
                    if batch.events:
                        line = self._encode_batch(shared, selector, events, batch)
                        if line:
                            yield line
                    elif query.get("allowWatchBookmarks") in ("true", "1", "True"):
                        yield events.encode_bookmark(batch.revision)
        except CompactedError as error:
            yield events.encode_error(new_expired(f"too old resource version: {after} ({error.oldest})"))
        except FutureRevisionError as error:
            yield events.encode_error(new_version_too_large(after, error.current or 0))
        except SlowWatcherError as error:
            yield events.encode_error(new_expired(str(error)))
        except StoreClosedError:
            return
        except StoreError as error:
            yield events.encode_error(new_service_unavailable(f"the store does not answer: {error}"))

    async def _read_batches(
        self, prefix: bytes, after: int, seconds: float, selector: ListSelector
    ) -> AsyncGenerator[EventBatch, None]:
        """The batches of changes until the timeout; an idle watch ends with a last bookmark."""
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        interval = seconds / math.ceil(seconds / BOOKMARK_SECONDS)
        async with aclosing(self._cache.watch(prefix, after, interval, selector.required_field)) as batches:
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
        """Encode the changes of a batch; watches of everything under a prefix share the encoded batch."""
        # Previous revisions are part of the key: after a gap the cache merges several changes into one.
        key = None if sharing_key is None else (batch.revision, *_get_previous_revisions(batch), *sharing_key)
        line = None if key is None else self._encoded_events.find(key)
        if line is None:
            classified = [(event, *self._classify_event(selector, event)) for event in batch.events]
            line = b"".join([self._encode_event(events, *each) for each in classified])
            if key is not None:
                if events.is_storage_version:
                    line = EncodedWatchBatch.from_events(
                        line, [(type_, stored) for _, type_, stored in classified if stored is not None]
                    )
                self._encoded_events.add(key, line)
        return line

    @staticmethod
    def _classify_event(selector: ListSelector, event: StoreEvent) -> tuple[str, StoredObject | None]:
        """The type and object of the event for a selector; no object when the change does not concern it."""
        now, before = _select_object(selector, event.entry), _select_object(selector, event.previous)
        if now is not None:
            return ("ADDED" if before is None else "MODIFIED"), now
        return "DELETED", None if before is None else build_deleted(before, event.revision)

    def _encode_event(
        self, events: WatchEventEncoder, event: StoreEvent, type_: str, stored: StoredObject | None
    ) -> Line:
        if stored is None:
            return b""
        sharing_key = events.sharing_key
        if sharing_key is None:
            return events.encode_event(type_, stored)
        key = (event.revision, event.key, type_, sharing_key)
        line = self._encoded_events.find(key)
        return self._encoded_events.add(key, events.encode_event(type_, stored)) if line is None else line


def _select_object(selector: ListSelector, entry: StoreEntry | None) -> StoredObject | None:
    """The object of an entry, if the selector matches it."""
    if entry is None or (selector.fields and not selector.matches_fields(entry.key, entry.value)):
        return None
    stored = StoredObject.from_entry(entry)
    return stored if not selector.labels.requirements or selector.matches(stored) else None


def _get_previous_revisions(batch: EventBatch) -> list[int]:
    """The previous revisions of the objects that a batch changes."""
    return [0 if event.previous is None else event.previous.mod_revision for event in batch.events]


def _build_watch_prefix(request: ApiRequest, kind: Kind, selector: ListSelector) -> bytes:
    """The prefix of everything that a watch selects: that of the kind, or of one namespace.

    Watches of one object are found by its name, as a required field: prefixes that end within a name would
    be compared with every key.
    """
    return build_prefix(kind, request.call.namespace or selector.get_exact_value("metadata.namespace") or "")


def _encode_initial_events(events: WatchEventEncoder, objects: Sequence[StoredObject]) -> Iterator[Line]:
    """ADDED events of all objects, each part encoded when it is sent: a client may read slowly."""
    lines: list[Line] = []
    size = 0
    for stored in objects:
        line = events.encode_event("ADDED", stored)
        lines.append(line)
        size += len(line)
        if size > INITIAL_CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _read_send_initial_events(query: Mapping[str, str]) -> bool | None:
    """The option `sendInitialEvents`; None when the client does not set it."""
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
