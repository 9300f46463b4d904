"""The garbage collector: deletes dependents without owners, and the contents of namespaces being deleted.

Theory of operation: the collector listens to all objects in the cache and indexes dependents by owner. When
an owner is deleted, its dependents are processed: an owner reference is dangling when no object has that uid.
A dependent whose owners are all gone is deleted; one with remaining owners loses the dangling references. An
owner deleted in the foreground waits for the dependents that block it; with the orphan policy its references
are removed from the dependents first. A failed step is retried with backoff.

kube-controller-manager collects the same garbage. While it renews its lease, the collector leaves each object
to it for a while and then does what is left: of two collectors at once, each would find objects gone that it
is about to change, which kube-controller-manager logs as an error.

A claim with the finalizer of claim controllers cannot be deleted without one. Where transactions are served,
our claim controller deletes such a claim and removes the finalizer in one of them; so the collector leaves it
to the controller for a moment, and marks it then if it is still there.

Rules for this file: it decides on the state of the cache and writes with preconditions, so an outdated
decision fails without harm. Several servers may run it at once with the same result as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dray.api.kinds import KINDS, Kind, find_kind, get_kind
from dray.claims.claim_names import FINALIZER
from dray.server.background.deferred_keys import DeferredKeys
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import MASTERS, ApiCall, ApiRequest, RequestUser
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject, build_key
from dray.server.registry.deleter import BACKGROUND, FOREGROUND, ORPHAN, PROPAGATION_FINALIZERS, ObjectDeleter
from dray.server.registry.object_registry import (
    DeleteObject,
    LeaveUnchanged,
    ObjectRegistry,
    SaveObject,
    WriteDecision,
)
from dray.server.registry.strategies import KUBERNETES_FINALIZER
from dray.server.watch.cache import WatchCache

COLLECTOR_USER: Final = RequestUser("system:serviceaccount:kube-system:generic-garbage-collector", (MASTERS,))
_FOREGROUND, _ORPHAN = PROPAGATION_FINALIZERS[FOREGROUND], PROPAGATION_FINALIZERS[ORPHAN]
WORKER_COUNT: Final = 16
"""The number of concurrent workers: each waits for the disk, and concurrent writes share a commit."""
_MAX_BACKOFF_SECONDS: Final = 60.0
_LOG_AFTER_ATTEMPTS: Final = 5

OTHER_COLLECTOR: Final = build_key(
    get_kind("coordination.k8s.io", "Lease"), "kube-system", "kube-controller-manager"
)
"""The lease of the program that collects the same garbage."""
_RENEWAL_SECONDS: Final = 20.0
"""So long after a renewal of its lease the other collector counts as running."""
DEFERRED_SECONDS: Final = 10.0
"""So long an object is left to the other collector."""
CLAIM_SECONDS: Final = 1.0
"""So long a claim is left to the claim controller."""

_NAMESPACE = get_kind("", "Namespace")
_CLAIM = get_kind("resource.k8s.io", "ResourceClaim")
_KINDS: Final = tuple(kind for kind in KINDS if kind.stored_as is None)


class GarbageCollector:
    """Deletes objects whose owners are gone."""

    def __init__(
        self,
        cache: WatchCache,
        registry: ObjectRegistry,
        deleter: ObjectDeleter,
        report_failure: Callable[[str], None] = lambda _text: None,
        *,
        leaves_claims: bool = False,
    ) -> None:
        """`leaves_claims` says whether claims are left to the claim controller for a moment."""
        self._cache = cache
        self._registry = registry
        self._deleter = deleter
        self._report_failure = report_failure
        self._uids: dict[str, bytes] = {}
        self._dependents: dict[str, set[bytes]] = {}
        self._queue: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()
        self._queued: set[bytes] = set()
        self._processing: dict[bytes, int | None] = {}
        """Keys in process, with the attempt to requeue them as when they changed meanwhile."""
        self._left_to_collector = DeferredKeys(lambda: DEFERRED_SECONDS, self._enqueue_deferred)
        self._left_to_controller = DeferredKeys(lambda: CLAIM_SECONDS, self._enqueue_deferred)
        self._leaves_claims = leaves_claims
        self._other_seen = -_RENEWAL_SECONDS
        for kind in _KINDS:
            cache.add_listener(kind, self._on_change)

    async def run(self) -> None:
        """Process changed objects, forever; the owner runs this as a task."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._left_to_collector.run())
            tasks.create_task(self._left_to_controller.run())
            for _ in range(WORKER_COUNT):
                tasks.create_task(self._run_worker(tasks))

    async def _run_worker(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            key, attempt = await self._queue.get()
            self._queued.discard(key)
            if attempt == 0 and self._is_other_running():
                self._left_to_collector.restart(key)
                continue
            if key in self._processing:
                self._processing[key] = attempt
                continue
            self._processing[key] = None
            try:
                await self._process(key, attempt)
            except Exception as error:
                self._retry_or_report(key, attempt, error, tasks)
            finally:
                again = self._processing.pop(key)
                if again is not None:
                    self._enqueue(key, again)

    def _is_other_running(self) -> bool:
        return asyncio.get_running_loop().time() - self._other_seen < _RENEWAL_SECONDS

    def _retry_or_report(self, key: bytes, attempt: int, error: Exception, tasks: asyncio.TaskGroup) -> None:
        """Retry an object that cannot be collected: no exception may end the server."""
        if _is_race(error) and attempt == 0:
            self._enqueue(key, 1)
            return
        if attempt == _LOG_AFTER_ATTEMPTS:
            why = error.message if isinstance(error, ApiStatusError) else repr(error)
            self._report_failure(f"{key.decode()} cannot be collected: {why}")
        tasks.create_task(self._requeue_later(key, attempt + 1))

    async def _requeue_later(self, key: bytes, attempt: int) -> None:
        await asyncio.sleep(min(0.05 * 2**attempt, _MAX_BACKOFF_SECONDS))
        self._enqueue(key, attempt)

    def _enqueue_deferred(self, key: bytes) -> None:
        self._enqueue(key, 1)

    def _enqueue(self, key: bytes, attempt: int = 0) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait((key, attempt))

    def _on_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        """Update the index and the queue; nothing is written here."""
        before = old.metadata if old is not None else None
        after = new.metadata if new is not None else None
        key = (new or old).key  # type: ignore[union-attr]
        if key == OTHER_COLLECTOR and after is not None:
            self._other_seen = asyncio.get_running_loop().time()
        if before is not None:
            for owner in before.owner_references:
                self._remove_dependent(owner.get("uid", ""), key)
            if after is None or after.uid != before.uid:
                self._uids.pop(before.uid, None)
                self._enqueue_dependents(before.uid)
        if after is None:
            self._left_to_collector.discard(key)
            self._left_to_controller.discard(key)
            self._enqueue_owners(before.owner_references if before else ())
            self._enqueue_namespace(old)
            return
        self._uids[after.uid] = key
        for owner in after.owner_references:
            self._dependents.setdefault(owner.get("uid", ""), set()).add(key)
        if after.owner_references or after.deletion_timestamp:
            self._enqueue(key)

    def _remove_dependent(self, uid: str, key: bytes) -> None:
        """Remove a dependent from the index, and the row of its owner with the last one: the owner may have
        been deleted before, and then nothing else removes it.
        """
        dependents = self._dependents.get(uid)
        if dependents is not None:
            dependents.discard(key)
            if not dependents:
                del self._dependents[uid]

    def _enqueue_dependents(self, uid: str) -> None:
        for dependent in self._dependents.pop(uid, ()):
            self._enqueue(dependent)

    def _enqueue_owners(self, owners: Iterable[Mapping[str, Any]]) -> None:
        """Enqueue the owners of a deleted dependent: they may wait for it."""
        for owner in owners:
            key = self._uids.get(owner.get("uid", ""))
            if key is not None:
                self._enqueue(key)

    def _enqueue_namespace(self, stored: StoredObject | None) -> None:
        if stored is None or not stored.namespace:
            return
        namespace = self._cache.get(_NAMESPACE, "", stored.namespace)
        if namespace is not None and namespace.metadata.deletion_timestamp:
            self._enqueue(namespace.key)

    async def _process(self, key: bytes, attempt: int) -> None:
        stored = self._cache.get_by_key(key)
        if stored is None:
            return
        metadata = stored.metadata
        if metadata.deletion_timestamp:
            await self._process_deletion(stored)
        elif metadata.owner_references:
            await self._collect_dependent(stored, attempt)

    async def _collect_dependent(self, stored: StoredObject, attempt: int) -> None:
        """Delete a dependent whose owners are all gone; remove dangling references from one with owners."""
        owners = stored.metadata.owner_references
        dangling = [owner for owner in owners if not self._has_owner(stored, owner)]
        if not dangling:
            return
        if len(dangling) == len(owners):
            if attempt > 0 or not self._is_left_to_controller(stored):
                await self._delete(stored, BACKGROUND)
            elif stored.key not in self._left_to_controller:
                self._left_to_controller.restart(stored.key)
            return
        uids = {owner.get("uid") for owner in dangling}
        await self._update_metadata(stored, lambda metadata: _drop_owners(metadata, uids))

    def _is_left_to_controller(self, stored: StoredObject) -> bool:
        return self._leaves_claims and stored.kind is _CLAIM and FINALIZER in stored.metadata.finalizers

    def _has_owner(self, stored: StoredObject, reference: Mapping[str, Any]) -> bool:
        key = self._uids.get(reference.get("uid", ""))
        if key is None:
            return not _is_served_kind(reference)  # owners of kinds that are not served count as existing
        owner = self._cache.get_by_key(key)
        return owner is not None and _can_own(owner, stored)

    async def _process_deletion(self, stored: StoredObject) -> None:
        """Process an object that is being deleted: delete or orphan its dependents, as its finalizers say."""
        metadata = stored.metadata
        if stored.kind is _NAMESPACE:
            await self._empty_namespace(stored)
        named = (self._cache.get_by_key(key) for key in self._dependents.get(metadata.uid, ()))
        dependents = [each for each in named if each is not None and _can_own(stored, each)]
        if _ORPHAN in metadata.finalizers:
            for dependent in dependents:
                await self._update_metadata(dependent, lambda found: _drop_owners(found, {metadata.uid}))
            await self._update_metadata(stored, lambda found: _drop_finalizer(found, _ORPHAN))
        elif _FOREGROUND in metadata.finalizers:
            for dependent in dependents:
                if not dependent.metadata.deletion_timestamp:
                    await self._delete(dependent, FOREGROUND)
            if not any(_blocks_owner_deletion(dependent, metadata.uid) for dependent in dependents):
                await self._update_metadata(stored, lambda found: _drop_finalizer(found, _FOREGROUND))

    async def _empty_namespace(self, namespace: StoredObject) -> None:
        """Delete the contents of a namespace; when nothing is left, remove the namespace's finalizer."""
        remaining = 0
        for kind in _KINDS:
            if not kind.namespaced:
                continue
            for stored in self._cache.list_objects(kind, namespace.name):
                remaining += 1
                if not stored.metadata.deletion_timestamp:
                    await self._delete(stored, BACKGROUND)
        if remaining:
            return
        await self._cache.wait_until_fresh()
        if any(self._cache.list_objects(kind, namespace.name) for kind in _KINDS if kind.namespaced):
            self._enqueue(namespace.key)
            return
        await self._update_metadata(namespace, lambda metadata: metadata, finalize_namespace=True)

    async def _delete(self, stored: StoredObject, policy: str) -> None:
        options = {"propagationPolicy": policy, "preconditions": {"uid": stored.metadata.uid}}
        try:
            await self._deleter.delete_object(
                _build_request("delete", stored), stored.kind, stored.namespace, stored.name, options
            )
        except ApiStatusError as error:
            if error.code != 404:
                raise

    async def _update_metadata(
        self,
        stored: StoredObject,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        finalize_namespace: bool = False,
    ) -> None:
        uid = stored.metadata.uid

        def decide(old: StoredObject | None) -> WriteDecision:
            if old is None or old.metadata.uid != uid:
                raise ApiStatusError(404, "NotFound", "the object is deleted already")
            pending = PendingObject.from_stored(old)
            metadata = change(dict(pending.metadata))
            changed = pending.replace_metadata(metadata)
            if finalize_namespace:
                spec = {**(pending.document.get("spec") or {})}
                # Other finalizers in this list belong to their own controllers.
                spec["finalizers"] = [
                    name for name in spec.get("finalizers") or () if name != KUBERNETES_FINALIZER
                ]
                changed = changed.replace_field("spec", spec)
            if (
                metadata.get("deletionTimestamp")
                and not metadata.get("finalizers")
                and not _has_other_holds(changed)
            ):
                return DeleteObject()
            return LeaveUnchanged() if changed.document == pending.document else SaveObject(changed)

        try:
            await self._registry.write(
                _build_request("update", stored), stored.kind, stored.namespace, stored.name, decide
            )
        except ApiStatusError as error:
            if error.code != 404:
                raise


def _build_request(verb: str, stored: StoredObject) -> ApiRequest:
    kind = stored.kind
    call = ApiCall(verb, "", kind, kind.group, kind.version, kind.plural, stored.namespace, stored.name)
    return ApiRequest(call, COLLECTOR_USER, {"user-agent": "dray-collector"})


def _is_race(error: Exception) -> bool:
    """Whether another writer was faster; then one more attempt is enough."""
    return isinstance(error, ApiStatusError) and error.code in (404, 409)


def _is_served_kind(owner: Mapping[str, Any]) -> bool:
    group, _, version = str(owner.get("apiVersion", "")).rpartition("/")
    kind: Kind | None = find_kind(group, str(owner.get("kind", "")))
    return kind is not None and version in kind.versions


def _can_own(owner: StoredObject, dependent: StoredObject) -> bool:
    """Whether one can own the other: a namespaced owner must be in the same namespace."""
    return not owner.namespace or owner.namespace == dependent.namespace


def _blocks_owner_deletion(dependent: StoredObject, uid: str) -> bool:
    owners = dependent.metadata.owner_references
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)


def _drop_owners(metadata: dict[str, Any], uids: Iterable[str | None]) -> dict[str, Any]:
    dropped = set(uids)
    rest = [owner for owner in metadata.get("ownerReferences") or () if owner.get("uid") not in dropped]
    return {**metadata, "ownerReferences": rest}


def _drop_finalizer(metadata: dict[str, Any], finalizer: str) -> dict[str, Any]:
    return {
        **metadata,
        "finalizers": [name for name in metadata.get("finalizers") or () if name != finalizer],
    }


def _has_other_holds(pending: PendingObject) -> bool:
    """Whether a grace period or the finalizers in a namespace's spec still keep the object."""
    if pending.metadata.get("deletionGracePeriodSeconds"):
        return True
    spec = pending.document.get("spec")
    return pending.kind is _NAMESPACE and isinstance(spec, dict) and bool(spec.get("finalizers"))
