"""One watch: a stream of bytes as batches of events.

Theory of operation: a server sends one event per line and cuts the stream where it likes, so lines are put
together from chunks; what came with one chunk is handed on as one batch. The server ends a watch by itself
after the seconds it was told; a stream that stays silent beyond that is dead and is given up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.api.watch_batch import Told
from dray.client.client import Client
from dray.client.errors import ClientError, WatchBroken
from dray.client.object_refs import EVERYTHING, Selection
from dray.client.response_decoding import Bookmark, Event

Batch = list[Event[Any] | Bookmark]

LONGEST_LINE: Final = 16 * 1024 * 1024
SHORTEST_WATCH: Final = 300
LATE: Final = 30.0
"""How many seconds after its end a watch may still be silent before it counts as dead."""


@dataclass(frozen=True, slots=True)
class Span:
    """What to watch, from where, and for how many seconds.

    Without a version and with `initial` the server sends everything there is first, and says when it is done.
    """

    kind: Kind | type[msgspec.Struct]
    namespace: str = ""
    select: Selection = EVERYTHING
    resource_version: str = ""
    initial: bool = False
    seconds: int = SHORTEST_WATCH

    def query(self) -> dict[str, str]:
        query = {**self.select.query(), "allowWatchBookmarks": "true", "timeoutSeconds": str(self.seconds)}
        if self.initial:
            return query | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return query | ({"resourceVersion": self.resource_version} if self.resource_version else {})


async def watch(client: Client, span: Span) -> AsyncGenerator[Batch, None]:
    """The events of one watch in batches until the server ends it; a failure comes after what came before."""
    reader, opening = await client.open_watch(
        span.kind, span.namespace, span.query(), silence=span.seconds + LATE
    )
    lines = Lines()
    async with opening as stream:
        async for chunk in stream.chunks:
            if isinstance(chunk, Told) and reader.takes_views:
                yield [Event(what, shown.view) for what, shown in chunk.events]
                continue
            batch: Batch = []
            failed: ClientError | None = None
            for line in lines.feed(chunk):
                try:
                    batch.append(reader.event(line))
                except ClientError as failure:
                    failed = failure
                    break
            if batch:
                yield batch
            if failed is not None:
                raise failed


class Lines:
    """Lines out of chunks; a line that spans many chunks is joined once."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk."""
        if not self._length and chunk.endswith(b"\n") and len(chunk) <= self._longest:
            # Most servers send whole lines, and most of the time one.
            lines = chunk[:-1].split(b"\n")
            return lines if all(lines) else [line for line in lines if line]
        pieces = chunk.split(b"\n")
        self._parts.append(pieces[0])
        self._length += len(pieces[0])
        if self._length > self._longest:
            raise WatchBroken(f"a line of more than {self._longest} bytes is no event")
        if len(pieces) == 1:
            return []
        pieces[0] = b"".join(self._parts)
        rest = pieces.pop()
        self._parts, self._length = [rest], len(rest)
        return [piece for piece in pieces if piece]
