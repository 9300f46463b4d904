"""Garbage: dependents whose owners are gone, and everything in namespaces that are being deleted.

Theory of operation: the collector watches all objects through the cache and keeps, for every owner, who names
it. When an owner goes, its dependents are looked at: an owner reference counts as dead when no object of that
uid is there. A dependent all of whose owners are dead is deleted; one with living owners loses the dead
references. An owner that is deleted in the foreground waits for the dependents that block it; an orphaning
owner first lets its dependents go. What fails is tried again, later each time.

Rules for this file: it decides on what the cache shows and writes with preconditions, so a decision that was
overtaken fails instead of doing harm. It does nothing on several servers at once that one of them would not
do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dray.api.kinds import KINDS, Kind, kind_named, known_kind
from dray.server.http.errors import Failure
from dray.server.http.requests import MASTERS, Call, Request, User
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held
from dray.server.registry.deleter import BACKGROUND, FINALIZERS, FOREGROUND, ORPHAN, Removing
from dray.server.registry.object_registry import Keep, Registry, Remove, Same, Wanted
from dray.server.registry.strategies import KUBERNETES
from dray.server.watch.cache import Cache

COLLECTOR: Final = User("system:serviceaccount:kube-system:generic-garbage-collector", (MASTERS,))
_FOREGROUND, _ORPHAN = FINALIZERS[FOREGROUND], FINALIZERS[ORPHAN]
AT_ONCE: Final = 16
"""So many objects are looked at at a time: each waits for the disk, and many share a commit."""
_LONGEST_PAUSE: Final = 60.0
_ATTEMPTS_LOGGED: Final = 5

_NAMESPACE = known_kind("", "Namespace")
_KINDS: Final = tuple(kind for kind in KINDS if kind.kept_as is None)


class Collector:
    """Deletes what nobody owns any more."""

    def __init__(
        self,
        cache: Cache,
        registry: Registry,
        removing: Removing,
        troubled: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._cache = cache
        self._registry = registry
        self._removing = removing
        self._troubled = troubled
        self._uids: dict[str, bytes] = {}
        self._dependents: dict[str, set[bytes]] = {}
        self._work: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue()
        self._queued: set[bytes] = set()
        self._looked_at: dict[bytes, int | None] = {}
        """What is being looked at, and the attempt as which it is to be looked at again."""
        for kind in _KINDS:
            cache.listen(kind, self._seen)

    async def run(self) -> None:
        """Look at whatever changed, for ever; the owner runs this as a task."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._work_off(tasks))

    async def _work_off(self, later: asyncio.TaskGroup) -> None:
        while True:
            place, attempt = await self._work.get()
            self._queued.discard(place)
            if place in self._looked_at:
                self._looked_at[place] = attempt
                continue
            self._looked_at[place] = None
            try:
                await self._look(place)
            except Exception as broken:
                self._failed(place, attempt, broken, later)
            finally:
                again = self._looked_at.pop(place)
                if again is not None:
                    self._add(place, again)

    def _failed(self, place: bytes, attempt: int, broken: Exception, later: asyncio.TaskGroup) -> None:
        """Whatever it was, an object that cannot be collected must not end the server."""
        if _is_overtaken(broken) and attempt == 0:
            self._add(place, 1)
            return
        if attempt == _ATTEMPTS_LOGGED:
            why = broken.message if isinstance(broken, Failure) else repr(broken)
            self._troubled(f"{place.decode()} cannot be collected: {why}")
        later.create_task(self._again(place, attempt + 1))

    async def _again(self, place: bytes, attempt: int) -> None:
        await asyncio.sleep(min(0.05 * 2**attempt, _LONGEST_PAUSE))
        self._add(place, attempt)

    def _add(self, place: bytes, attempt: int = 0) -> None:
        if place not in self._queued:
            self._queued.add(place)
            self._work.put_nowait((place, attempt))

    def _seen(self, old: Held | None, new: Held | None) -> None:
        """Keep the index; nothing is written here."""
        before = old.metadata if old is not None else None
        after = new.metadata if new is not None else None
        place = (new or old).key  # type: ignore[union-attr]
        if before is not None:
            for owner in before.owner_references:
                self._dependents.get(owner.get("uid", ""), set()).discard(place)
            if after is None or after.uid != before.uid:
                self._uids.pop(before.uid, None)
                self._gone(before.uid)
        if after is None:
            self._freed(before.owner_references if before else ())
            self._leaves_namespace(old)
            return
        self._uids[after.uid] = place
        for owner in after.owner_references:
            self._dependents.setdefault(owner.get("uid", ""), set()).add(place)
        if after.owner_references or after.deletion_timestamp:
            self._add(place)

    def _gone(self, uid: str) -> None:
        for dependent in self._dependents.pop(uid, ()):
            self._add(dependent)

    def _freed(self, owners: Iterable[Mapping[str, Any]]) -> None:
        """An owner that waits for its dependents is looked at when one of them goes."""
        for owner in owners:
            place = self._uids.get(owner.get("uid", ""))
            if place is not None:
                self._add(place)

    def _leaves_namespace(self, held: Held | None) -> None:
        if held is None or not held.namespace:
            return
        home = self._cache.get(_NAMESPACE, "", held.namespace)
        if home is not None and home.metadata.deletion_timestamp:
            self._add(home.key)

    async def _look(self, place: bytes) -> None:
        held = self._cache.at(place)
        if held is None:
            return
        metadata = held.metadata
        if metadata.deletion_timestamp:
            await self._ending(held)
        elif metadata.owner_references:
            await self._owned(held)

    async def _owned(self, held: Held) -> None:
        """Delete a dependent whose owners are all dead; take dead owners from one that has a living one."""
        owners = held.metadata.owner_references
        dead = [owner for owner in owners if not self._lives(held, owner)]
        if not dead:
            return
        if len(dead) == len(owners):
            await self._delete(held, BACKGROUND)
            return
        uids = {owner.get("uid") for owner in dead}
        await self._change(held, lambda metadata: _without_owners(metadata, uids))

    def _lives(self, held: Held, owner: Mapping[str, Any]) -> bool:
        place = self._uids.get(owner.get("uid", ""))
        if place is None:
            return not _is_ours(owner)  # of kinds we do not serve we cannot know, so they live
        found = self._cache.at(place)
        return found is not None and _reaches(found, held)

    async def _ending(self, held: Held) -> None:
        """An object that is being deleted: its dependents go first, or go free, as its finalizers say."""
        metadata = held.metadata
        if held.kind is _NAMESPACE:
            await self._empty(held)
        named = (self._cache.at(place) for place in self._dependents.get(metadata.uid, ()))
        dependents = [found for found in named if found is not None and _reaches(held, found)]
        if _ORPHAN in metadata.finalizers:
            for dependent in dependents:
                await self._change(dependent, lambda found: _without_owners(found, {metadata.uid}))
            await self._change(held, lambda found: _without_finalizer(found, _ORPHAN))
        elif _FOREGROUND in metadata.finalizers:
            for dependent in dependents:
                if not dependent.metadata.deletion_timestamp:
                    await self._delete(dependent, FOREGROUND)
            if not any(_blocks(dependent, metadata.uid) for dependent in dependents):
                await self._change(held, lambda found: _without_finalizer(found, _FOREGROUND))

    async def _empty(self, namespace: Held) -> None:
        """Delete what is in a namespace; when nothing is left, let the namespace go."""
        left = 0
        for kind in _KINDS:
            if not kind.namespaced:
                continue
            for held in self._cache.all(kind, namespace.name):
                left += 1
                if not held.metadata.deletion_timestamp:
                    await self._delete(held, BACKGROUND)
        if left:
            return
        await self._cache.caught_up()
        if any(self._cache.all(kind, namespace.name) for kind in _KINDS if kind.namespaced):
            self._add(namespace.key)
            return
        await self._change(namespace, lambda metadata: metadata, finalized=True)

    async def _delete(self, held: Held, policy: str) -> None:
        wish = {"propagationPolicy": policy, "preconditions": {"uid": held.metadata.uid}}
        try:
            await self._removing.remove(_request("delete", held), held.kind, held.namespace, held.name, wish)
        except Failure as failure:
            if failure.code != 404:
                raise

    async def _change(
        self,
        held: Held,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        finalized: bool = False,
    ) -> None:
        uid = held.metadata.uid

        def decide(old: Held | None) -> Wanted:
            if old is None or old.metadata.uid != uid:
                raise Failure(404, "NotFound", "gone already")
            draft = Draft.of_held(old)
            metadata = change(dict(draft.metadata))
            changed = draft.with_metadata(metadata)
            if finalized:
                spec = {**(draft.document.get("spec") or {})}
                # Other names in this list belong to controllers of their own.
                spec["finalizers"] = [name for name in spec.get("finalizers") or () if name != KUBERNETES]
                changed = changed.with_field("spec", spec)
            if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not _graced(changed):
                return Remove()
            return Same() if changed.document == draft.document else Keep(changed)

        try:
            await self._registry.write(_request("update", held), held.kind, held.namespace, held.name, decide)
        except Failure as failure:
            if failure.code != 404:
                raise


def _request(verb: str, held: Held) -> Request:
    kind = held.kind
    call = Call(verb, "", kind, kind.group, kind.version, kind.plural, held.namespace, held.name)
    return Request(call, COLLECTOR, {"user-agent": "dray-collector"})


def _is_overtaken(broken: Exception) -> bool:
    """Whether somebody else was faster; then another look is enough."""
    return isinstance(broken, Failure) and broken.code in (404, 409)


def _is_ours(owner: Mapping[str, Any]) -> bool:
    group, _, version = str(owner.get("apiVersion", "")).rpartition("/")
    kind: Kind | None = kind_named(group, str(owner.get("kind", "")))
    return kind is not None and version in kind.versions


def _reaches(owner: Held, dependent: Held) -> bool:
    """Whether one can own the other: an owner in another namespace is none, its names mean nothing here."""
    return not owner.namespace or owner.namespace == dependent.namespace


def _blocks(dependent: Held, uid: str) -> bool:
    owners = dependent.metadata.owner_references
    return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)


def _without_owners(metadata: dict[str, Any], uids: Iterable[str | None]) -> dict[str, Any]:
    gone = set(uids)
    kept = [owner for owner in metadata.get("ownerReferences") or () if owner.get("uid") not in gone]
    return {**metadata, "ownerReferences": kept}


def _without_finalizer(metadata: dict[str, Any], finalizer: str) -> dict[str, Any]:
    return {
        **metadata,
        "finalizers": [name for name in metadata.get("finalizers") or () if name != finalizer],
    }


def _graced(draft: Draft) -> bool:
    """Whether something else than finalizers still holds the object: grace, or a namespace's own list."""
    if draft.metadata.get("deletionGracePeriodSeconds"):
        return True
    spec = draft.document.get("spec")
    return draft.kind is _NAMESPACE and isinstance(spec, dict) and bool(spec.get("finalizers"))
