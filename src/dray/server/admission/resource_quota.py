"""Quotas as a rule of the server: what is used changes in the transaction that uses it.

Theory of operation: `status.used` of a quota is the count. Whatever raises or lowers it writes the quota in
the same transaction, with a compare on the quota as it was read; of two creates that would both take the
last place one finds the quota changed and is judged again. So a limit holds however many ask at once.

A change that finds no quota in its namespace must not be stored after one came into being that it did not
see. Each namespace has a mark beside the objects that changes with its quotas, and whatever is counted
compares it. For the same reason usage is counted afresh only from a cache that shows the quota already: from
then on everybody who changes usage writes the quota.

Rules for this file: of a quota's document only `status.hard` and `status.used` are changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dray.api.core import ResourceQuota
from dray.api.kinds import KINDS, Kind, known_kind
from dray.claims import quota
from dray.claims.quota import Usage
from dray.server.admission.change import CREATE, DELETE, NOTHING, UPDATE, Change, Extra
from dray.server.http import errors
from dray.server.objects.stored_object import Held, keeper, stored_bytes
from dray.server.watch.cache import Cache
from dray.store import Compare, Put, Store, Unchanged, Write
from dray.store.errors import Closed, StoreError
from dray.values.quantity import NANOS, Quantity

PAUSE: Final = 1.0

MARKS: Final = b"/quotas/"
"""Beside the objects: a mark for each namespace that changes with its quotas."""


QUOTAS: Final = known_kind("", "ResourceQuota")
PODS: Final = known_kind("", "Pod")
CLAIMS: Final = known_kind("resource.k8s.io", "ResourceClaim")
_BY_NAME: Final = {quota.count_name(kind): kind for kind in KINDS if kind.namespaced and kind.kept_as is None}
_BY_NAME_ALONE: Final = {
    kind.plural: kind for kind in KINDS if not kind.group and kind.plural in quota.SHORT_NAMES
}


class Quotas:
    """Judges changes by the quotas of their namespace, and keeps what is used.

    `on_denied` is called with each name under which there was too little left, for counting.
    """

    def __init__(self, cache: Cache, *, on_denied: Callable[[str], None] | None = None) -> None:
        self._cache = cache
        self._on_denied = on_denied or (lambda name: None)
        self._places: dict[str, set[bytes]] = {}
        self._unsettled: set[bytes] = set()
        self._stirred = asyncio.Event()
        cache.listen(QUOTAS, self._changed)

    def judge(self, change: Change) -> Extra:
        """What the quotas of the namespace say to a change."""
        if not change.kind.namespaced:
            return NOTHING
        about_quota = change.kind is QUOTAS and _is_news(change)
        if change.operation == UPDATE and change.kind is not PODS and not about_quota:
            return NOTHING  # only pods count differently over time: the requests of a claim never change
        mark = MARKS + change.namespace.encode()
        compares: list[Compare] = [self._unchanged(mark)]
        writes: list[Write] = [Put(mark, change.name.encode())] if about_quota else []
        places = self._places.get(change.namespace)
        added = _difference(change) if places else {}
        for place in sorted(places or ()):
            held = self._cache.at(place)
            if held is None or (change.old is not None and held.key == change.old.key):
                continue
            written = self._counted(change, held, added)
            if written is not None:
                compares.append(Unchanged(held.key, held.revision))
                writes.append(written)
        return Extra(compares, writes, _warnings(change) if about_quota else ())

    def _counted(self, change: Change, held: Held, added: Usage) -> Write | None:
        """The quota with the change counted; raises the failure when that is too much."""
        limits: ResourceQuota = held.view
        hard = limits.spec.hard
        counted = {name: number for name, number in added.items() if name in hard}
        if not counted or _is_scoped(held):
            return None
        used = self._used(held, limits)
        beyond = quota.exceeded(hard, used, counted)
        if beyond is not None:
            for name in beyond.names:
                self._on_denied(name)
            help_ = (
                f"delete what is not needed, or raise spec.hard of resourcequota {held.namespace}/{held.name}"
            )
            raise errors.forbidden(change.kind, change.name, f"{beyond.text(held.name)}; {help_}")
        for name, number in counted.items():
            used[name] = max(used.get(name, 0) + number, 0)
        return Put(held.key, _with_status(held, used))

    def _used(self, held: Held, limits: ResourceQuota) -> Usage:
        """What is used: as the quota says, or counted afresh when it does not say it of all its names."""
        if _is_settled(limits):
            return {name: amount.as_int() or 0 for name, amount in limits.status.used.items()}
        return self._recounted(held.namespace, [name for name in limits.spec.hard if quota.is_counted(name)])

    def _recounted(self, namespace: str, names: list[str]) -> Usage:
        used: Usage = dict.fromkeys(names, 0)
        kinds = {kind for name in names if (kind := _kind_counted(name)) is not None}
        for kind in sorted(kinds, key=lambda kind: (kind.group, kind.plural)):
            for held in self._cache.all(kind, namespace):
                for name, number in quota.usage(kind, held.value).items():
                    if name in used:
                        used[name] += number
        return used

    def _unchanged(self, mark: bytes) -> Compare:
        entry = self._cache.row(mark)
        return Unchanged(mark, 0 if entry is None else entry.mod_revision)

    def _changed(self, old: Held | None, new: Held | None) -> None:
        if new is None:
            assert old is not None
            places = self._places.get(old.namespace, set())
            places.discard(old.key)
            if not places:
                self._places.pop(old.namespace, None)
            self._unsettled.discard(old.key)
            return
        self._places.setdefault(new.namespace, set()).add(new.key)
        if not _is_settled(new.view) and not _is_scoped(new):
            self._unsettled.add(new.key)
            self._stirred.set()
        else:
            self._unsettled.discard(new.key)

    async def keep(self, store: Store) -> None:
        """Count afresh for quotas with new limits, until the store is closed; runs as a task of its owner."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            try:
                for place in sorted(self._unsettled):
                    await self._settle(store, place)
            except Closed:
                return
            except StoreError:
                await asyncio.sleep(PAUSE)  # usage is judged rightly all the same, only not shown
                self._stirred.set()

    async def _settle(self, store: Store, place: bytes) -> None:
        held = self._cache.at(place)
        if held is None:
            return
        names = [name for name in held.view.spec.hard if quota.is_counted(name)]
        value = _with_status(held, self._recounted(held.namespace, names))
        # Somebody who was faster has counted too, or changed the limits; then the cache stirs again.
        await store.txn([Unchanged(held.key, held.revision)], [Put(held.key, value)])


def _kind_counted(name: str) -> Kind | None:
    """The kind whose objects count under a name."""
    if name.endswith(quota.PER_CLASS):
        return CLAIMS
    return _BY_NAME.get(name) or _BY_NAME_ALONE.get(name)


def _difference(change: Change) -> Usage:
    """What a change adds under each name; below zero what it gives back."""
    kind = keeper(change.kind)
    before = {} if change.operation == CREATE or change.old is None else quota.usage(kind, change.old.value)
    after = {} if change.operation == DELETE or change.draft is None else _usage(change, kind)
    names = before.keys() | after.keys()
    return {name: d for name in sorted(names) if (d := after.get(name, 0) - before.get(name, 0))}


def _usage(change: Change, kind: Kind) -> Usage:
    """What the object counts as it would be."""
    if kind is PODS:
        status = (change.document or {}).get("status") or {}
        return quota.pod_usage(kind, str(status.get("phase") or ""))
    if kind is CLAIMS:
        return quota.claim_usage(kind, change.view.spec.devices.requests)
    return quota.object_usage(kind)


def _is_settled(limits: ResourceQuota) -> bool:
    """Whether the status says what is used under every name that counts."""
    counted = {name for name in limits.spec.hard if quota.is_counted(name)}
    return limits.status.hard == limits.spec.hard and counted <= limits.status.used.keys()


def _is_scoped(held: Held) -> bool:
    spec = held.document.get("spec") or {}
    return bool(spec.get("scopes") or spec.get("scopeSelector"))


def _is_news(change: Change) -> bool:
    """Whether a change of a quota changes what is limited."""
    if change.operation != UPDATE:
        return True
    return bool(change.view.spec.hard != change.old_view.spec.hard)


def _warnings(change: Change) -> list[str]:
    if change.draft is None:
        return []
    spec = change.draft.document.get("spec") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        return [
            "spec: quotas with scopes limit nothing here; write one without scopes for "
            "count/…, pods or <class>.deviceclass.resource.k8s.io/devices"
        ]
    unknown = sorted(name for name in change.view.spec.hard if not quota.is_counted(name))
    return [
        f'spec.hard["{name}"]: is not counted and limits nothing; counted are count/<plural>.<group>, pods '
        f"and <class>{quota.PER_CLASS}"
        for name in unknown
    ]


def _with_status(held: Held, used: Usage) -> bytes:
    """The quota with its limits in force and what is used, and otherwise as it was."""
    document = held.document
    hard = (document.get("spec") or {}).get("hard") or {}
    counted = {name: str(Quantity(number * NANOS)) for name, number in sorted(used.items())}
    status = {**(document.get("status") or {}), "hard": hard, "used": counted}
    return stored_bytes(QUOTAS, document | {"status": status})
