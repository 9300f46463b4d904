"""Decodes one watch: a stream of bytes as batches of events.

Theory of operation: a server sends one event per line and splits the stream anywhere, so lines are joined
from chunks; the events of one chunk are one batch. The server ends a watch by itself after its timeout; a
stream that stays silent beyond that is dead and is dropped.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.api.watch_batch import EncodedWatchBatch
from dray.client.client import Client
from dray.client.errors import BrokenWatchError, ClientError
from dray.client.object_refs import SELECT_ALL, ObjectSelector
from dray.client.response_decoding import Bookmark, WatchEvent

WatchBatch = list[WatchEvent[Any] | Bookmark]

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
MIN_WATCH_SECONDS: Final = 300
WATCH_GRACE_SECONDS: Final = 30.0
"""How many seconds after its timeout a watch may be silent before it counts as dead."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What to watch, from which version, and for how many seconds.

    Without a version and with `send_initial_events` the server sends all existing objects first, and then a
    bookmark.
    """

    kind: Kind | type[msgspec.Struct]
    namespace: str = ""
    selector: ObjectSelector = SELECT_ALL
    resource_version: str = ""
    send_initial_events: bool = False
    timeout_seconds: int = MIN_WATCH_SECONDS

    def build_query(self) -> dict[str, str]:
        query = {
            **self.selector.build_query(),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self.timeout_seconds),
        }
        if self.send_initial_events:
            return query | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return query | ({"resourceVersion": self.resource_version} if self.resource_version else {})


async def watch_in_batches(client: Client, request: WatchRequest) -> AsyncGenerator[WatchBatch, None]:
    """Yield the events of one watch in batches until the server ends it; a failure is raised after the events
    before it.
    """
    decoder, opening = await client.open_watch(
        request.kind,
        request.namespace,
        request.build_query(),
        idle_timeout=request.timeout_seconds + WATCH_GRACE_SECONDS,
    )
    lines = LineSplitter()
    async with opening as stream:
        async for chunk in stream.chunks:
            if isinstance(chunk, EncodedWatchBatch) and decoder.accepts_views:
                yield [WatchEvent(event_type, encoded.view) for event_type, encoded in chunk.events]
                continue
            batch: WatchBatch = []
            failed: ClientError | None = None
            for line in lines.feed(chunk):
                try:
                    batch.append(decoder.decode_event(line))
                except ClientError as failure:
                    failed = failure
                    break
            if batch:
                yield batch
            if failed is not None:
                raise failed


class LineSplitter:
    """Splits chunks into lines; a line that spans many chunks is joined once."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk."""
        if not self._length and chunk.endswith(b"\n") and len(chunk) <= self._max_bytes:
            # Most servers send whole lines, and most of the time one.
            lines = chunk[:-1].split(b"\n")
            return lines if all(lines) else [line for line in lines if line]
        pieces = chunk.split(b"\n")
        self._parts.append(pieces[0])
        self._length += len(pieces[0])
        if self._length > self._max_bytes:
            raise BrokenWatchError(f"a line of more than {self._max_bytes} bytes is no event")
        if len(pieces) == 1:
            return []
        pieces[0] = b"".join(self._parts)
        rest = pieces.pop()
        self._parts, self._length = [rest], len(rest)
        return [piece for piece in pieces if piece]
