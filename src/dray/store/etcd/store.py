"""The store in a running etcd, which several API servers may share.

Theory of operation: revisions are etcd's own, so that all servers on one etcd see one history. All keys carry
a prefix that is not visible outside this package. A transaction is one transaction of etcd; its failure
branch reads the compared keys, so the conflict has what was there at that moment. Callers that need the
current revision while a request for it is on its way share the next request: an answer must not be older than
its request, but one answer serves all who asked before it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from dray.store.base import (
    MAX_BUFFERED_EVENTS,
    AsyncCloseMixin,
    Committed,
    Compare,
    Delete,
    EntryPage,
    EventBatch,
    FailedCompare,
    KeyAbsent,
    KeyHasValue,
    KeyUnchanged,
    StoreEntry,
    TxnConflict,
    Write,
    check_read,
    check_txn,
    evaluate_compare,
    get_prefix_end,
    get_range_start,
)
from dray.store.errors import CompactedError, StoreOpenError
from dray.store.etcd.client import EtcdClient, EtcdTlsFiles
from dray.store.etcd.messages import CLASSES
from dray.store.etcd.watch import EtcdWatch
from dray.store.watch_broadcaster import build_closed_error
from dray.store.watch_buffer import WatchBuffer

COMPARE_MOD_REVISION, COMPARE_VALUE = 2, 3
DEFAULT_TIMEOUT = 5.0
# Older servers may send a requested progress message before earlier events.
RELIABLE_PROGRESS_VERSIONS = ((3, 4, 25), (3, 5, 8))


class EtcdStore(AsyncCloseMixin):
    """Keys under a prefix of an etcd; as durable and available as that etcd."""

    def __init__(
        self, client: EtcdClient, prefix: bytes, version: tuple[int, ...], buffered_events: int
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._buffered_events = buffered_events
        self._has_reliable_progress = _is_progress_reliable(version)
        self._watches: dict[EtcdWatch, WatchBuffer] = {}
        self._revision_task: asyncio.Task[int] | None = None
        self._next_revision_task: asyncio.Task[int] | None = None
        self._open = True

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        *,
        prefix: bytes = b"/dray/",
        tls: EtcdTlsFiles | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        buffered_events: int = MAX_BUFFERED_EVENTS,
    ) -> Self:
        """Connect, and check that etcd answers; raises `StoreOpenError` with what to do."""
        if not prefix:
            raise StoreOpenError("a store in etcd needs a prefix for its keys, for example `/dray/`")
        line = EtcdClient(endpoints, tls, timeout)
        try:
            status = await line.call_idempotent("Status", CLASSES["StatusRequest"]())
        except BaseException:
            await line.close()
            raise
        return cls(line, prefix, _parse_version(status.version), buffered_events)

    async def get_revision(self) -> int:
        self._check_open()
        if self._next_revision_task is None:
            self._next_revision_task = asyncio.create_task(self._fetch_revision(self._revision_task))
        return await asyncio.shield(self._next_revision_task)

    async def _fetch_revision(self, previous: asyncio.Task[int] | None) -> int:
        if previous is not None:
            await asyncio.wait([previous])
        self._revision_task, self._next_revision_task = self._next_revision_task, None
        answer = await self._call_range(CLASSES["RangeRequest"](key=self._prefix, count_only=True))
        revision: int = answer.header.revision
        for watch in self._watches:
            watch.request_progress(revision)
        return revision

    async def get(self, key: bytes, revision: int | None = None) -> StoreEntry | None:
        check_read(None, revision)
        answer = await self._call_range(
            CLASSES["RangeRequest"](key=self._prefix + key, revision=revision or 0)
        )
        return self._decode_entry(answer.kvs[0]) if answer.kvs else None

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> EntryPage:
        check_read(limit, revision)
        request = CLASSES["RangeRequest"](
            key=self._prefix + get_range_start(prefix, start_after),
            range_end=self._get_range_end(prefix),
            limit=limit or 0,
            revision=revision or 0,
        )
        answer = await self._call_range(request)
        entries = tuple(self._decode_entry(kv) for kv in answer.kvs)
        return EntryPage(entries, revision or answer.header.revision, more=answer.more)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        self._check_open()
        check_txn(compares, writes)
        request = CLASSES["TxnRequest"](
            compare=[self._encode_compare(compare) for compare in compares],
            success=[self._encode_write(write) for write in writes],
            failure=[self._encode_get(compare.key) for compare in compares],
        )
        answer = await self._client.call_once("Txn", request)
        revision = answer.header.revision
        if answer.succeeded:
            return Committed(revision)
        found = [response.response_range.kvs for response in answer.responses]
        judged = [
            (compare, self._decode_entry(kvs[0]) if kvs else None)
            for compare, kvs in zip(compares, found, strict=True)
        ]
        return TxnConflict(
            revision,
            tuple(
                FailedCompare(compare, now) for compare, now in judged if not evaluate_compare(compare, now)
            ),
        )

    async def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        self._check_open()
        buffer = WatchBuffer(self._buffered_events)
        create = CLASSES["WatchCreateRequest"](
            key=self._prefix + prefix,
            range_end=self._get_range_end(prefix),
            prev_kv=True,
            progress_notify=bookmarks is not None,
        )
        watch = EtcdWatch(self._client, buffer, create, self._decode_entry)
        progress_interval = bookmarks if self._has_reliable_progress else None
        batches = watch.stream_batches(after_revision, self._check_readable, progress_interval)
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
            await self._client.call_idempotent("Compact", CLASSES["CompactionRequest"](revision=revision))
        except CompactedError:
            return

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for buffer in list(self._watches.values()):
            buffer.fail(build_closed_error())
        await self._client.close()

    async def _check_readable(self, revision: int) -> int:
        request = CLASSES["RangeRequest"](key=self._prefix, count_only=True, revision=revision)
        present: int = (await self._call_range(request)).header.revision
        return present

    async def _call_range(self, request: Any) -> Any:
        self._check_open()
        return await self._client.call_idempotent("Range", request)

    def _decode_entry(self, kv: Any) -> StoreEntry:
        key = kv.key.removeprefix(self._prefix)
        return StoreEntry(key, kv.value, kv.create_revision, kv.mod_revision, kv.version)

    def _get_range_end(self, prefix: bytes) -> bytes:
        # A zero byte means "to the end" to etcd.
        return get_prefix_end(self._prefix + prefix) or b"\0"

    def _encode_compare(self, compare: Compare) -> Any:
        key = self._prefix + compare.key
        match compare:
            case KeyUnchanged(mod_revision=wanted):
                return CLASSES["Compare"](target=COMPARE_MOD_REVISION, key=key, mod_revision=wanted)
            case KeyAbsent():
                return CLASSES["Compare"](target=COMPARE_MOD_REVISION, key=key, mod_revision=0)
            case KeyHasValue(value=value):
                return CLASSES["Compare"](target=COMPARE_VALUE, key=key, value=value)

    def _encode_write(self, write: Write) -> Any:
        key = self._prefix + write.key
        if isinstance(write, Delete):
            return CLASSES["RequestOp"](request_delete_range=CLASSES["DeleteRangeRequest"](key=key))
        return CLASSES["RequestOp"](request_put=CLASSES["PutRequest"](key=key, value=write.value))

    def _encode_get(self, key: bytes) -> Any:
        return CLASSES["RequestOp"](request_range=CLASSES["RangeRequest"](key=self._prefix + key))

    def _check_open(self) -> None:
        if not self._open:
            raise build_closed_error()


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def _is_progress_reliable(version: tuple[int, ...]) -> bool:
    """Return whether requested progress messages can be trusted."""
    return version >= (3, 6) or any(
        line <= version < (line[0], line[1] + 1) for line in RELIABLE_PROGRESS_VERSIONS
    )
