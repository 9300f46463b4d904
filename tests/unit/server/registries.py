"""A registry with the admission rules under test on a store in memory, and functions to write through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dray.api.kinds import Kind, find_kind
from dray.server.admission.change import AdmissionRule
from dray.server.http.requests import ApiCall, ApiRequest, RequestUser
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.registry.object_registry import (
    DeleteObject,
    ObjectRegistry,
    SaveObject,
    WriteDecision,
    WriteResult,
)
from dray.server.watch.cache import WatchCache
from dray.store import Store
from dray.store.memory import MemoryStore

Document = dict[str, Any]


def kind(name: str, group: str = "resource.k8s.io") -> Kind:
    found = find_kind(group, name)
    assert found is not None
    return found


CLAIMS, SLICES = kind("ResourceClaim"), kind("ResourceSlice")
TEMPLATES = kind("ResourceClaimTemplate")
PREPARATIONS = kind("Preparation", "dray.dev")
PODS, QUOTAS, CONFIGS = kind("Pod", ""), kind("ResourceQuota", ""), kind("ConfigMap", "")


class World:
    """A store with its cache, and a registry with the rules."""

    def __init__(self, store: Store, make: Callable[[WatchCache], Sequence[AdmissionRule]]) -> None:
        self.store = store
        self.cache = WatchCache(store)
        self._make = make
        self._numbers = iter(range(1, 10**9))

    async def open(self) -> None:
        await self.cache.resync()
        self.rules = self._make(self.cache)
        self.registry = ObjectRegistry(self.store, self.cache, self.rules)

    async def write(
        self, of: Kind, namespace: str, name: str, wanted: Callable[[StoredObject | None], WriteDecision]
    ) -> WriteResult:
        request = ApiRequest(
            ApiCall("update", "", of, of.group, of.version, of.plural, namespace, name), RequestUser("tester")
        )
        return await self.registry.write(request, of, namespace, name, wanted)

    async def put(self, document: Mapping[str, Any]) -> WriteResult:
        """Store a document as it is; the uid of a stored object stays, a new one gets one."""
        metadata = document["metadata"]
        draft = PendingObject.from_document(document)
        uid = metadata.get("uid") or f"uid-{next(self._numbers)}"

        def wanted(old: StoredObject | None) -> WriteDecision:
            known = old.metadata.uid if old is not None else uid
            return SaveObject(draft.replace_metadata({**draft.metadata, "uid": known}))

        return await self.write(draft.kind, metadata.get("namespace", ""), metadata["name"], wanted)

    async def change(
        self, of: Kind, namespace: str, name: str, edit: Callable[[Document], None]
    ) -> WriteResult:
        def wanted(old: StoredObject | None) -> WriteDecision:
            assert old is not None
            document = old.document
            edit(document)
            return SaveObject(PendingObject.from_document(document))

        return await self.write(of, namespace, name, wanted)

    async def delete(self, of: Kind, namespace: str, name: str) -> WriteResult:
        return await self.write(of, namespace, name, lambda old: DeleteObject())

    async def caught_up(self) -> None:
        await self.cache.wait_until_fresh()

    # --- claims ---

    async def claim(self, name: str, uid: str = "", **spec: Any) -> None:
        await self.put(claim(name, uid, **spec))

    async def allocate(self, name: str, *results: Mapping[str, Any]) -> WriteResult:
        def edit(document: Document) -> None:
            document["status"] = {"allocation": {"devices": {"results": list(results)}}}

        return await self.change(CLAIMS, "default", name, edit)

    async def deallocate(self, name: str) -> WriteResult:
        return await self.change(CLAIMS, "default", name, lambda document: document.pop("status", None))


@asynccontextmanager
async def world(
    make: Callable[[WatchCache], Sequence[AdmissionRule]], store: Store | None = None
) -> AsyncIterator[World]:
    """A world with its cache, open while the block lasts."""
    opened = World(store or MemoryStore(), make)
    await opened.open()
    following = asyncio.create_task(opened.cache.follow())
    try:
        yield opened
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await opened.store.close()


def claim(name: str, uid: str = "", **spec: Any) -> Document:
    """A claim for one device of class `gpu`, unless `requests` says otherwise."""
    requests = spec.get("requests") or [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    ]
    metadata = {"name": name, "namespace": "default"} | ({"uid": uid} if uid else {})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
    }


def result(
    name: str, *, pool: str = "pool", share: str = "", admin: bool = False, **amounts: str
) -> Document:
    """One result of an allocation."""
    found: Document = {"request": "r", "driver": "gpu.example.com", "pool": pool, "device": name}
    if share:
        found["shareID"] = share
    if amounts:
        found["consumedCapacity"] = amounts
    if admin:
        found["adminAccess"] = True
    return found


def preparation(name: str, node: str, claim_name: str, uid: str) -> Document:
    """A preparation: the record of a node that it has the devices of a claim."""
    return {
        "apiVersion": "dray.dev/v1alpha1",
        "kind": "Preparation",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "claim": {"namespace": "default", "name": claim_name, "uid": uid}},
    }
