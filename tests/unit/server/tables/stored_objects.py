"""Stored objects, and a cache of them, for tests of tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dray.api.kinds import Kind, find_kind, parse_document_kind
from dray.server.objects.stored_object import StoredObject, build_key, encode_document, get_storage_kind
from dray.server.tables import build_column_definitions, build_row
from dray.server.watch.cache import WatchCache
from dray.store import Put, StoreEntry
from dray.store.memory import MemoryStore

NOW = datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
AN_HOUR_AGO = "2027-01-15T07:00:00Z"


def kind(name: str, group: str = "") -> Kind:
    found = find_kind(group, name)
    assert found is not None
    return found


def thing(api_version: str, name: str, **rest: Any) -> dict[str, Any]:
    """Build a document of a kind, created an hour ago; `metadata` adds to its metadata."""
    metadata = {"name": "a", "namespace": "ns", "creationTimestamp": AN_HOUR_AGO, **rest.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, **rest}


def store_object(document: dict[str, Any], revision: int = 7) -> StoredObject:
    its = get_storage_kind(parse_document_kind(document)[0])
    metadata = document["metadata"]
    place = build_key(its, metadata.get("namespace", ""), metadata["name"])
    return StoredObject.from_entry(StoreEntry(place, encode_document(its, document), revision, revision, 1))


def cache_of(documents: Iterable[dict[str, Any]], rows: Iterable[tuple[bytes, bytes]] = ()) -> WatchCache:
    """Build a cache of documents and rows."""

    async def fill() -> WatchCache:
        store = MemoryStore()
        objects = [store_object(document) for document in documents]
        writes = [Put(one.key, one.value) for one in objects] + [Put(*one) for one in rows]
        if writes:
            await store.txn([], writes)
        cache = WatchCache(store)
        await cache.resync()
        await store.close()
        return cache

    return asyncio.run(fill())


def cells(document: dict[str, Any], cache: WatchCache | None = None) -> dict[str, Any]:
    """Render the cells of one row, by the names of their columns."""
    its = parse_document_kind(document)[0]
    names = [column["name"] for column in build_column_definitions(its)]
    return dict(
        zip(names, build_row(its, store_object(document), now=NOW, cache=cache)["cells"], strict=True)
    )
