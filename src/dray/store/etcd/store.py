"""The store in a running etcd, which several API servers may share.

Theory of operation: revisions are etcd's own, so that all servers on one etcd see one history. All keys carry
a prefix that nobody outside this package sees. A transaction is one transaction of etcd; its failure branch
reads the compared keys, which tells in the same instant what stood there instead. Whoever asks where the
store stands while such a question is on its way shares the next one: an answer must not be older than its
question, but one answer does for all who asked before it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from dray.store.base import (
    BUFFERED_EVENTS,
    Absent,
    Batch,
    Closing,
    Committed,
    Compare,
    Conflict,
    Delete,
    Entry,
    Mismatch,
    Page,
    Unchanged,
    ValueIs,
    Write,
    check_read,
    check_txn,
    holds,
    prefix_end,
    range_start,
)
from dray.store.errors import Compacted, OpenError
from dray.store.etcd.client import Line, Tls
from dray.store.etcd.messages import CLASSES
from dray.store.etcd.watch import EtcdWatch
from dray.store.watch_broadcaster import Buffer, closed

BY_REVISION, BY_VALUE = 2, 3
PATIENCE = 5.0
# Older servers may answer a question for progress before the events that come before it.
TRUTHFUL_PROGRESS = ((3, 4, 25), (3, 5, 8))


class EtcdStore(Closing):
    """Keys under a prefix of an etcd; durable and available as that etcd is."""

    def __init__(self, line: Line, prefix: bytes, version: tuple[int, ...], buffered_events: int) -> None:
        self._line = line
        self._prefix = prefix
        self._buffered_events = buffered_events
        self._may_ask_progress = _truthful(version)
        self._watches: dict[EtcdWatch, Buffer] = {}
        self._asking: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None
        self._open = True

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        *,
        prefix: bytes = b"/dray/",
        tls: Tls | None = None,
        patience: float = PATIENCE,
        buffered_events: int = BUFFERED_EVENTS,
    ) -> Self:
        """Connect, and look whether somebody is there; raises `OpenError` with what to do."""
        if not prefix:
            raise OpenError("a store in etcd needs a prefix for its keys, for example `/dray/`")
        line = Line(endpoints, tls, patience)
        try:
            status = await line.ask("Status", CLASSES["StatusRequest"]())
        except BaseException:
            await line.close()
            raise
        return cls(line, prefix, _version(status.version), buffered_events)

    async def revision(self) -> int:
        self._check_open()
        if self._next is None:
            self._next = asyncio.create_task(self._ask_revision(self._asking))
        return await asyncio.shield(self._next)

    async def _ask_revision(self, before: asyncio.Task[int] | None) -> int:
        if before is not None:
            await asyncio.wait([before])
        self._asking, self._next = self._next, None
        answer = await self._range(CLASSES["RangeRequest"](key=self._prefix, count_only=True))
        revision: int = answer.header.revision
        for watch in self._watches:
            watch.hurry(revision)
        return revision

    async def get(self, key: bytes, revision: int | None = None) -> Entry | None:
        check_read(None, revision)
        answer = await self._range(CLASSES["RangeRequest"](key=self._prefix + key, revision=revision or 0))
        return self._entry(answer.kvs[0]) if answer.kvs else None

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> Page:
        check_read(limit, revision)
        request = CLASSES["RangeRequest"](
            key=self._prefix + range_start(prefix, start_after),
            range_end=self._end(prefix),
            limit=limit or 0,
            revision=revision or 0,
        )
        answer = await self._range(request)
        entries = tuple(self._entry(kv) for kv in answer.kvs)
        return Page(entries, revision or answer.header.revision, more=answer.more)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | Conflict:
        self._check_open()
        check_txn(compares, writes)
        request = CLASSES["TxnRequest"](
            compare=[self._compare(compare) for compare in compares],
            success=[self._write(write) for write in writes],
            failure=[self._look(compare.key) for compare in compares],
        )
        answer = await self._line.tell("Txn", request)
        revision = answer.header.revision
        if answer.succeeded:
            return Committed(revision)
        found = [response.response_range.kvs for response in answer.responses]
        judged = [
            (compare, self._entry(kvs[0]) if kvs else None)
            for compare, kvs in zip(compares, found, strict=True)
        ]
        return Conflict(
            revision, tuple(Mismatch(compare, now) for compare, now in judged if not holds(compare, now))
        )

    async def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        self._check_open()
        buffer = Buffer(self._buffered_events)
        create = CLASSES["WatchCreateRequest"](
            key=self._prefix + prefix,
            range_end=self._end(prefix),
            prev_kv=True,
            progress_notify=bookmarks is not None,
        )
        watch = EtcdWatch(self._line, buffer, create, self._entry)
        asking = bookmarks if self._may_ask_progress else None
        batches = watch.batches(after_revision, self._check_readable, asking)
        self._watches[watch] = buffer
        try:
            async for batch in batches:
                yield batch
        finally:
            del self._watches[watch]
            await batches.aclose()

    async def compact(self, revision: int) -> None:
        self._check_open()
        try:
            await self._line.ask("Compact", CLASSES["CompactionRequest"](revision=revision))
        except Compacted:
            return

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for buffer in list(self._watches.values()):
            buffer.fail(closed())
        await self._line.close()

    async def _check_readable(self, revision: int) -> int:
        request = CLASSES["RangeRequest"](key=self._prefix, count_only=True, revision=revision)
        present: int = (await self._range(request)).header.revision
        return present

    async def _range(self, request: Any) -> Any:
        self._check_open()
        return await self._line.ask("Range", request)

    def _entry(self, kv: Any) -> Entry:
        key = kv.key.removeprefix(self._prefix)
        return Entry(key, kv.value, kv.create_revision, kv.mod_revision, kv.version)

    def _end(self, prefix: bytes) -> bytes:
        # A byte of zero is etcd's word for "to the end".
        return prefix_end(self._prefix + prefix) or b"\0"

    def _compare(self, compare: Compare) -> Any:
        key = self._prefix + compare.key
        match compare:
            case Unchanged(mod_revision=wanted):
                return CLASSES["Compare"](target=BY_REVISION, key=key, mod_revision=wanted)
            case Absent():
                return CLASSES["Compare"](target=BY_REVISION, key=key, mod_revision=0)
            case ValueIs(value=value):
                return CLASSES["Compare"](target=BY_VALUE, key=key, value=value)

    def _write(self, write: Write) -> Any:
        key = self._prefix + write.key
        if isinstance(write, Delete):
            return CLASSES["RequestOp"](request_delete_range=CLASSES["DeleteRangeRequest"](key=key))
        return CLASSES["RequestOp"](request_put=CLASSES["PutRequest"](key=key, value=write.value))

    def _look(self, key: bytes) -> Any:
        return CLASSES["RequestOp"](request_range=CLASSES["RangeRequest"](key=self._prefix + key))

    def _check_open(self) -> None:
        if not self._open:
            raise closed()


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def _truthful(version: tuple[int, ...]) -> bool:
    """Whether progress that was asked for can be trusted."""
    return version >= (3, 6) or any(line <= version < (line[0], line[1] + 1) for line in TRUTHFUL_PROGRESS)
