"""Checks that every watch delivers exactly the history of the store, in its order.

Theory of operation: the revisions of each kind are recorded as they are committed. A watch of a whole kind
that begins at a revision must deliver the next one, and the next, until its connection breaks. After a
compaction that a server has not followed, it may skip states that nobody can read any more; then only the
order counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from dray.api.watch_batch import EncodedWatchBatch
from dray.client.transport import TransportRequest
from dray.server.objects.stored_object import StoredObject
from dray.store import EventBatch


class WatchChecker:
    """Follows every watch of a whole kind."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._history: dict[bytes, list[int]] = {}
        self._delivered: dict[int, int] = {}
        self.may_skip = False
        """Whether the history was compacted while somebody may not have read it."""
        self.events = 0

    def observe_commit(self, batch: EventBatch) -> None:
        """Record the revisions of a commit."""
        for event in batch.events:
            parts = event.key.split(b"/", 4)
            if len(parts) > 4 and parts[1] == b"registry":
                self._history.setdefault(parts[2] + b"/" + parts[3], []).append(batch.revision)

    def observe_chunk(self, number: int, client: str, request: TransportRequest, chunk: bytes | None) -> None:
        """Check a part of the watch with a number."""
        if not isinstance(chunk, EncodedWatchBatch):
            return
        kind = _read_kind(request)
        if kind is None:
            return
        history = self._history.get(kind, [])
        last = self._delivered.get(number, int(request.query["resourceVersion"]))
        for _, stored in chunk.events:
            assert isinstance(stored, StoredObject)
            self.events += 1
            place = bisect_right(history, last) if stored.revision > last else -1
            if place < 0 and stored.revision != last:
                self._fail(f"{client} got {stored.key.decode()} at {stored.revision} after {last}")
            elif place >= 0 and history[place] != stored.revision and not self.may_skip:
                self._fail(
                    f"{client} got {stored.key.decode()} at {stored.revision}, and not what came before: "
                    f"revision {history[place]} is missing after {last}"
                )
            last = stored.revision
        self._delivered[number] = last


def _read_kind(request: TransportRequest) -> bytes | None:
    """Return group and resource of a watch of a whole kind from a revision; None for other watches."""
    query = request.query
    if "fieldSelector" in query or "labelSelector" in query:
        return None
    if query.get("resourceVersion", "0") in ("", "0"):
        return None
    parts = request.path.strip("/").split("/")
    if parts[0] == "api" and len(parts) == 3:
        return b"core/" + parts[2].encode()
    return f"{parts[1]}/{parts[3]}".encode() if parts[0] == "apis" and len(parts) == 4 else None
