"""A write touches the watchers it concerns and no others; so do a resumed watch and a list of one node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.api.kinds import get_kind
from dray.server.objects.stored_object import build_key, build_prefix, encode_document
from dray.server.watch.cache import WatchCache
from dray.server.watch.field_index import LABELS
from dray.server.watch.recent_batches import RecentBatches
from dray.store import Delete, EventBatch, Put, StoreEntry, StoreEvent
from dray.store.memory import MemoryStore
from dray.store.watch_broadcaster import RequiredField
from dray.store.watch_buffer import WatchBuffer

PODS = get_kind("", "Pod")
PREFIX = build_prefix(PODS)
NODE = "spec.nodeName"


class CountedBuffer(WatchBuffer):
    """A buffer that counts what is put into it."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.batches = 0

    def put(self, batch: EventBatch, *, size: int | None = None, bounded: bool = True) -> None:
        self.batches += 1
        super().put(batch, size=size, bounded=bounded)


class Crowd:
    """A cache, and the watchers that agents of many nodes have."""

    def __init__(self, nodes: int) -> None:
        self.store = MemoryStore()
        self.cache = WatchCache(self.store)
        self.buffers: dict[tuple[int, str, str], CountedBuffer] = {}
        for number in range(nodes):
            for namespace in ("", "default", "other"):
                for field, value in (
                    (NODE, f"n{number}"),
                    ("metadata.name", f"p{number}"),
                    (LABELS, f"l{number}=x"),
                ):
                    buffer = self.buffers[number, namespace, field] = CountedBuffer()
                    self.cache.hub.subscribe(
                        buffer, build_prefix(PODS, namespace), RequiredField(field, value)
                    )

    async def put(self, number: int, **changes: Any) -> int:
        """Put the pod of a node; return how many watchers were touched."""
        before = sum(buffer.batches for buffer in self.buffers.values())
        await self.store.txn(
            [], [Put(build_key(PODS, "default", f"p{number}"), build_pod(number, **changes))]
        )
        await self.cache.wait_until_fresh()
        return sum(buffer.batches for buffer in self.buffers.values()) - before


def build_pod(number: int, node: str = "", label: str = "") -> bytes:
    metadata: dict[str, Any] = {"name": f"p{number}", "namespace": "default"}
    if label:
        metadata["labels"] = {label: "x"}
    spec = {"nodeName": node} if node else {}
    return encode_document(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@asynccontextmanager
async def crowd_of(nodes: int) -> AsyncIterator[Crowd]:
    crowd = Crowd(nodes)
    await crowd.cache.resync()
    following = asyncio.create_task(crowd.cache.follow())
    try:
        yield crowd
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await crowd.store.close()


@pytest.mark.parametrize("nodes", [10, 1000])
def test_the_watchers_that_a_write_touches_do_not_grow_with_the_nodes(nodes: int):
    async def scenario() -> list[int]:
        async with crowd_of(nodes) as crowd:
            return [
                await crowd.put(5),  # by name
                await crowd.put(5, node="n7"),  # and by node
                await crowd.put(5, node="n8"),  # and by the node it leaves
                await crowd.put(5, node="n8", label="l3"),  # by name, node and label
                await crowd.put(nodes, node="nowhere", label="unknown"),
            ]

    # Each is watched in its namespace and in all; nobody in the namespace `other` is touched.
    assert asyncio.run(scenario()) == [2, 4, 6, 6, 0]


def test_a_resumed_watch_and_a_list_read_only_what_concerns_the_node():
    async def scenario() -> None:
        async with crowd_of(0) as crowd:
            cache, start = crowd.cache, crowd.cache.revision
            for number in range(50):
                await crowd.put(number, node=f"n{number % 10}")
            middle = cache.revision
            await crowd.put(3, node="n4")
            await crowd.store.txn([], [Delete(build_key(PODS, "default", "p14"))])
            await cache.wait_until_fresh()
            for after, expected in ((start, 7), (middle, 2), (cache.revision, 0)):
                batches = await cache.read_events(PREFIX, after, cache.revision, RequiredField(NODE, "n4"))
                assert batches[-1] == EventBatch(cache.revision)
                assert sum(len(batch.events) for batch in batches) == expected
            names = [stored.name for stored in cache.list_objects(PODS, "", RequiredField(NODE, "n4"))]
            assert names == ["p24", "p3", "p34", "p4", "p44"]
            assert cache.list_objects(PODS, "other", RequiredField(NODE, "n4")) == []

    asyncio.run(scenario())


def test_the_recent_changes_and_their_indexes_stay_within_their_bound():
    def list_values(field: str, entry: StoreEntry) -> list[str]:
        return [entry.value.decode()]

    recent = RecentBatches(list_values, lambda key: PREFIX, max_events=10)
    required = RequiredField(NODE, "3")
    previous = None
    for revision in range(1, 101):
        entry = StoreEntry(PREFIX + b"a/p", b"%d" % (revision % 50), 1, revision, revision)
        recent.add(EventBatch(revision, (StoreEvent(entry.key, revision, entry, previous),)))
        previous = entry
        # Becomes the value 3, and loses it; older changes are dropped.
        found = recent.list_after(0, PREFIX, required)
        assert [batch.revision for batch in found] == [
            r for r in (3, 4, 53, 54) if revision - 10 < r <= revision
        ]
    assert len(recent) == 10
    (events_by_value,) = recent._kinds[PREFIX]._by_field.values()
    assert len(events_by_value._by_value) == 11
    assert recent.start_revision == 90
