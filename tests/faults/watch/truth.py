"""What really happened, replayed from the acknowledged writes, without any watch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from dray.store import Delete, StoreEntry, StoreEvent, Write


class Truth:
    """All changes in order, and the state at any revision."""

    def __init__(self, start: dict[bytes, StoreEntry]) -> None:
        self._start = start
        self._events: dict[int, tuple[StoreEvent, ...]] = {}
        self._revisions: list[int] = []

    @classmethod
    def of(cls, start: dict[bytes, StoreEntry], done: Iterable[tuple[int, Sequence[Write]]]) -> Truth:
        """Replay writes with the revisions at which they were acknowledged."""
        truth = cls(start)
        state = dict(start)
        by_revision: dict[int, list[Sequence[Write]]] = {}
        for revision, writes in done:
            by_revision.setdefault(revision, []).append(writes)
        for revision, told in sorted(by_revision.items()):
            writes = _real(told, state)
            events = tuple(event for write in writes if (event := _applied(state, write, revision)))
            if events:
                truth._events[revision] = events
                truth._revisions.append(revision)
        return truth

    @property
    def end(self) -> int:
        return self._revisions[-1]

    def at(self, revision: int, prefix: bytes) -> tuple[StoreEvent, ...]:
        """What changed at a revision under a prefix."""
        return tuple(event for event in self._events.get(revision, ()) if event.key.startswith(prefix))

    def between(self, after: int, up_to: int, prefix: bytes) -> list[int]:
        """The revisions after one and up to another at which something changed under the prefix."""
        first, last = bisect_right(self._revisions, after), bisect_right(self._revisions, up_to)
        return [revision for revision in self._revisions[first:last] if self.at(revision, prefix)]

    def state(self, revision: int, prefix: bytes) -> dict[bytes, StoreEntry]:
        state = {key: entry for key, entry in self._start.items() if key.startswith(prefix)}
        for at in self.between(0, revision, prefix):
            for event in self.at(at, prefix):
                if event.entry is None:
                    del state[event.key]
                else:
                    state[event.key] = event.entry
        return state


def _real(told: list[Sequence[Write]], state: dict[bytes, StoreEntry]) -> Sequence[Write]:
    """The transaction that made the revision, among those that were told it.

    The others deleted what was not there any more, and were told where the store stood. Hence everything they
    name that was there before is among what the real one removed.
    """
    putting = [writes for writes in told if not all(isinstance(write, Delete) for write in writes)]
    assert len(putting) < 2, f"two transactions were told one revision: {putting}"
    return max(putting or told, key=lambda writes: sum(write.key in state for write in writes))


def _applied(state: dict[bytes, StoreEntry], write: Write, revision: int) -> StoreEvent | None:
    before = state.get(write.key)
    if isinstance(write, Delete):
        if before is None:
            return None
        del state[write.key]
        return StoreEvent(write.key, revision, None, before)
    created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
    state[write.key] = StoreEntry(write.key, write.value, created, revision, version)
    return StoreEvent(write.key, revision, state[write.key], before)
