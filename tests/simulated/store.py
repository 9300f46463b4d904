"""The simulated store: one history that survives every crash, and a connection to it for each server.

Theory of operation: the contents are those of the store in memory, which is the reference of the contract
suite. A connection adds what a network does to it: a transaction is a message to the store and a message
back, and a server that crashes in between never learns whether it was committed. Each connection sees new
revisions after a lag of its own, in their order. Everyone who wants to check something after every commit is
a listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol

from dray.store.base import (
    FIRST_REVISION,
    AsyncCloseMixin,
    Committed,
    Compare,
    EntryPage,
    EventBatch,
    SequenceCommitted,
    SequenceConflict,
    StoreEntry,
    TxnConflict,
    TxnStep,
    Write,
)
from dray.store.errors import OutcomeUnknownError, StoreClosedError, StoreUnreachableError
from dray.store.memory import MemoryStore
from tests.simulated.event_loop import SimulatedLoop

CommitListener = Callable[[EventBatch], None]


class StoreConditions(Protocol):
    """Draws what happens between a server and its store."""

    def draw_delay(self) -> float:
        """Return how many seconds a message takes."""
        ...

    def draw_lag(self) -> float:
        """Return how many seconds later a server sees a change."""
        ...

    def refuses_txn(self) -> bool:
        """Whether a transaction does not reach the store."""
        ...

    def hides_outcome(self) -> bool:
        """Whether the server does not learn the outcome of a transaction."""
        ...

    def cuts_watch(self) -> bool:
        """Whether a watch of the store breaks here."""
        ...


class CalmStoreConditions:
    """A store that answers at once."""

    def draw_delay(self) -> float:
        return 0.0

    def draw_lag(self) -> float:
        return 0.0

    def refuses_txn(self) -> bool:
        return False

    def hides_outcome(self) -> bool:
        return False

    def cuts_watch(self) -> bool:
        return False


def complete(work: Any) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the store in memory does not wait")


class SimulatedStore:
    """The contents of a store, and everyone who follows it."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.contents = MemoryStore()
        self.commits_sequences = True
        """Whether the store commits sequences of transactions; etcd does not."""
        self.conditions: StoreConditions = CalmStoreConditions()
        self.listeners: list[CommitListener] = []
        self._connections: list[StoreConnection] = []

    @property
    def revision(self) -> int:
        """The revision of the newest change."""
        revision: int = complete(self.contents.get_revision())
        return revision

    def connect(self) -> StoreConnection:
        """Open a connection for one server."""
        connection = (SequenceConnection if self.commits_sequences else StoreConnection)(self)
        self._connections.append(connection)
        return connection

    def disconnect(self, connection: StoreConnection) -> None:
        """Forget a connection whose server has ended."""
        if connection in self._connections:
            self._connections.remove(connection)

    def drop(self) -> None:
        """Forget everyone who follows."""
        self._connections.clear()
        self.listeners.clear()

    def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        """Carry out a transaction, and tell everyone."""
        before = self.revision
        outcome: Committed | TxnConflict = complete(self.contents.txn(compares, writes))
        self._publish(before)
        return outcome

    def commit_sequence(self, steps: Sequence[TxnStep]) -> SequenceCommitted | SequenceConflict:
        """Carry out a sequence of transactions, and tell everyone."""
        before = self.revision
        outcome: SequenceCommitted | SequenceConflict = complete(self.contents.txn_sequence(steps))
        self._publish(before)
        return outcome

    def _publish(self, before: int) -> None:
        """Tell everyone what was committed after a revision."""
        for batch in self.contents._log[len(self.contents._log) - (self.revision - before) :]:
            for listener in self.listeners:
                listener(batch)
        if self.revision > before:
            for connection in self._connections:
                connection.announce(self.revision)


class StoreConnection(AsyncCloseMixin):
    """The store as one server sees it."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store
        self._loop = store.loop
        self._visible = store.revision
        self._visible_at = 0.0
        self._waiters: list[asyncio.Future[Any]] = []
        self._closed = False

    def announce(self, revision: int) -> None:
        """Let the server see a revision, after its lag."""
        self._visible_at = max(self._visible_at, self._loop.time() + self._store.conditions.draw_lag())
        outside = self._loop.outside.context
        self._loop.call_at(self._visible_at, self._reveal, revision, context=outside)

    def _reveal(self, revision: int) -> None:
        self._visible = max(self._visible, revision)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _send(self, work: Callable[[], Any]) -> Any:
        """Send a message to the store and wait for its answer."""
        if self._closed:
            raise StoreClosedError("the store is closed")
        answer: asyncio.Future[Any] = self._loop.create_future()
        conditions, outside = self._store.conditions, self._loop.outside.context

        def arrive() -> None:
            outcome: Any = None
            error: Exception | None = None
            try:
                outcome = work()
            except Exception as raised:
                error = raised
            self._loop.call_later(conditions.draw_delay(), reply, outcome, error, context=outside)

        def reply(outcome: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(outcome)
            else:
                answer.set_exception(error)

        self._loop.call_later(conditions.draw_delay(), arrive, context=outside)
        return await answer

    async def get_revision(self) -> int:
        revision: int = await self._send(lambda: self._store.revision)
        return revision

    async def get(self, key: bytes, revision: int | None = None) -> StoreEntry | None:
        found: StoreEntry | None = await self._send(lambda: complete(self._store.contents.get(key, revision)))
        return found

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> EntryPage:
        def read() -> EntryPage:
            page: EntryPage = complete(
                self._store.contents.range(prefix, start_after=start_after, limit=limit, revision=revision)
            )
            return page

        page: EntryPage = await self._send(read)
        return page

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        outcome: Committed | TxnConflict = await self._commit(lambda: self._store.commit(compares, writes))
        return outcome

    async def _commit(self, work: Callable[[], Any]) -> Any:
        """Send a write, which the store may not get, or not answer."""
        conditions = self._store.conditions
        if conditions.refuses_txn():
            raise StoreUnreachableError("the store does not answer")
        hidden = conditions.hides_outcome()
        outcome = await self._send(work)
        if hidden:
            raise OutcomeUnknownError("the store was sent a write and did not answer")
        return outcome

    async def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        contents = self._store.contents
        cursor = max(after_revision, FIRST_REVISION)
        await self._send(lambda: complete(contents.check_readable(cursor)))
        while True:
            if self._closed:
                raise StoreClosedError("the store is closed")
            if cursor < self._visible:
                if self._store.conditions.cuts_watch():
                    raise StoreUnreachableError("the watch of the store broke")
                for batch in complete(contents.read_events(prefix, cursor, self._visible)):
                    if batch.revision > self._visible:
                        break
                    cursor = batch.revision
                    if batch.events:
                        yield batch
                continue
            if not await self._wait(bookmarks) and self._visible >= cursor:
                yield EventBatch(max(cursor, self._visible))

    async def _wait(self, seconds: float | None) -> bool:
        """Wait for a new revision; False when none came in time."""
        waiter: asyncio.Future[Any] = self._loop.create_future()
        self._waiters.append(waiter)
        if seconds is None:
            await waiter
            return True
        timer = self._loop.call_later(seconds, _expire, waiter)
        try:
            return await waiter is None
        finally:
            timer.cancel()

    async def compact(self, revision: int) -> None:
        await self._send(lambda: complete(self._store.contents.compact(revision)))

    async def close(self) -> None:
        self._closed = True
        self._reveal(self._visible)


class SequenceConnection(StoreConnection):
    """A store that commits sequences, as one server sees it."""

    async def txn_sequence(self, steps: Sequence[TxnStep]) -> SequenceCommitted | SequenceConflict:
        outcome: SequenceCommitted | SequenceConflict = await self._commit(
            lambda: self._store.commit_sequence(steps)
        )
        return outcome


def _expire(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_result(False)
