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
from dray.api.kinds import KINDS, Kind, get_kind
from dray.claims import quota
from dray.claims.quota import QuotaUsage
from dray.server.admission.change import ADMITTED, CREATE, DELETE, UPDATE, AdmissionEffects, ObjectChange
from dray.server.http import errors
from dray.server.objects.stored_object import StoredObject, encode_document, get_storage_kind
from dray.server.watch.cache import WatchCache
from dray.store import Compare, KeyUnchanged, Put, Store, Write
from dray.store.errors import StoreClosedError, StoreError
from dray.values.quantity import NANOS_PER_UNIT, Quantity

RETRY_SECONDS: Final = 1.0

QUOTA_MARKS_PREFIX: Final = b"/quotas/"
"""Beside the objects: a mark for each namespace that changes with its quotas."""


QUOTAS: Final = get_kind("", "ResourceQuota")
PODS: Final = get_kind("", "Pod")
CLAIMS: Final = get_kind("resource.k8s.io", "ResourceClaim")
_KINDS_BY_COUNT_NAME: Final = {
    quota.build_count_name(kind): kind for kind in KINDS if kind.namespaced and kind.stored_as is None
}
_KINDS_BY_SHORT_NAME: Final = {
    kind.plural: kind for kind in KINDS if not kind.group and kind.plural in quota.SHORT_NAMES
}


class ResourceQuotaAdmission:
    """Judges changes by the quotas of their namespace, and keeps what is used.

    `on_denied` is called with each name under which there was too little left, for counting.
    """

    def __init__(self, cache: WatchCache, *, on_denied: Callable[[str], None] | None = None) -> None:
        self._cache = cache
        self._on_denied = on_denied or (lambda name: None)
        self._quota_keys: dict[str, set[bytes]] = {}
        self._stale_quotas: set[bytes] = set()
        self._recount_needed = asyncio.Event()
        cache.add_listener(QUOTAS, self._on_change)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        """What the quotas of the namespace say to a change."""
        if not change.kind.namespaced:
            return ADMITTED
        about_quota = change.kind is QUOTAS and _changes_limits(change)
        if change.operation == UPDATE and change.kind is not PODS and not about_quota:
            return ADMITTED  # only pods count differently over time: the requests of a claim never change
        mark = QUOTA_MARKS_PREFIX + change.namespace.encode()
        compares: list[Compare] = [self._compare_mark(mark)]
        writes: list[Write] = [Put(mark, change.name.encode())] if about_quota else []
        places = self._quota_keys.get(change.namespace)
        added = _compute_usage_change(change) if places else {}
        for place in sorted(places or ()):
            held = self._cache.get_by_key(place)
            if held is None or (change.old is not None and held.key == change.old.key):
                continue
            written = self._charge(change, held, added)
            if written is not None:
                compares.append(KeyUnchanged(held.key, held.revision))
                writes.append(written)
        return AdmissionEffects(compares, writes, _collect_warnings(change) if about_quota else ())

    def _charge(self, change: ObjectChange, stored: StoredObject, added: QuotaUsage) -> Write | None:
        """The quota with the change counted; raises the failure when that is too much."""
        limits: ResourceQuota = stored.view
        hard = limits.spec.hard
        counted = {name: number for name, number in added.items() if name in hard}
        if not counted or _is_scoped(stored):
            return None
        used = self._get_usage(stored, limits)
        beyond = quota.find_excess(hard, used, counted)
        if beyond is not None:
            for name in beyond.names:
                self._on_denied(name)
            help_ = (
                "delete what is not needed, or raise spec.hard of resourcequota "
                f"{stored.namespace}/{stored.name}"
            )
            raise errors.new_forbidden(
                change.kind, change.name, f"{beyond.format_message(stored.name)}; {help_}"
            )
        for name, number in counted.items():
            used[name] = max(used.get(name, 0) + number, 0)
        return Put(stored.key, _encode_with_status(stored, used))

    def _get_usage(self, stored: StoredObject, limits: ResourceQuota) -> QuotaUsage:
        """What is used: as the quota says, or counted afresh when it does not say it of all its names."""
        if _is_usage_current(limits):
            return {name: amount.to_int() or 0 for name, amount in limits.status.used.items()}
        return self._recount(stored.namespace, [name for name in limits.spec.hard if quota.is_counted(name)])

    def _recount(self, namespace: str, names: list[str]) -> QuotaUsage:
        used: QuotaUsage = dict.fromkeys(names, 0)
        kinds = {kind for name in names if (kind := _find_counted_kind(name)) is not None}
        for kind in sorted(kinds, key=lambda kind: (kind.group, kind.plural)):
            for held in self._cache.list_objects(kind, namespace):
                for name, number in quota.count_usage(kind, held.value).items():
                    if name in used:
                        used[name] += number
        return used

    def _compare_mark(self, mark: bytes) -> Compare:
        entry = self._cache.get_row(mark)
        return KeyUnchanged(mark, 0 if entry is None else entry.mod_revision)

    def _on_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if new is None:
            assert old is not None
            places = self._quota_keys.get(old.namespace, set())
            places.discard(old.key)
            if not places:
                self._quota_keys.pop(old.namespace, None)
            self._stale_quotas.discard(old.key)
            return
        self._quota_keys.setdefault(new.namespace, set()).add(new.key)
        if not _is_usage_current(new.view) and not _is_scoped(new):
            self._stale_quotas.add(new.key)
            self._recount_needed.set()
        else:
            self._stale_quotas.discard(new.key)

    async def run_recounts(self, store: Store) -> None:
        """Count afresh for quotas with new limits, until the store is closed; runs as a task of its owner."""
        while True:
            await self._recount_needed.wait()
            self._recount_needed.clear()
            try:
                for place in sorted(self._stale_quotas):
                    await self._write_usage(store, place)
            except StoreClosedError:
                return
            except StoreError:
                await asyncio.sleep(RETRY_SECONDS)  # usage is judged rightly all the same, only not shown
                self._recount_needed.set()

    async def _write_usage(self, store: Store, key: bytes) -> None:
        held = self._cache.get_by_key(key)
        if held is None:
            return
        names = [name for name in held.view.spec.hard if quota.is_counted(name)]
        value = _encode_with_status(held, self._recount(held.namespace, names))
        # Somebody who was faster has counted too, or changed the limits; then the cache stirs again.
        await store.txn([KeyUnchanged(held.key, held.revision)], [Put(held.key, value)])


def _find_counted_kind(name: str) -> Kind | None:
    """The kind whose objects count under a name."""
    if name.endswith(quota.CLASS_DEVICES_SUFFIX):
        return CLAIMS
    return _KINDS_BY_COUNT_NAME.get(name) or _KINDS_BY_SHORT_NAME.get(name)


def _compute_usage_change(change: ObjectChange) -> QuotaUsage:
    """What a change adds under each name; below zero what it gives back."""
    kind = get_storage_kind(change.kind)
    before = (
        {} if change.operation == CREATE or change.old is None else quota.count_usage(kind, change.old.value)
    )
    after = {} if change.operation == DELETE or change.pending is None else _compute_usage(change, kind)
    names = before.keys() | after.keys()
    return {name: d for name in sorted(names) if (d := after.get(name, 0) - before.get(name, 0))}


def _compute_usage(change: ObjectChange, kind: Kind) -> QuotaUsage:
    """What the object counts as it would be."""
    if kind is PODS:
        status = (change.document or {}).get("status") or {}
        return quota.count_pod(kind, str(status.get("phase") or ""))
    if kind is CLAIMS:
        return quota.count_claim(kind, change.view.spec.devices.requests)
    return quota.count_object(kind)


def _is_usage_current(limits: ResourceQuota) -> bool:
    """Whether the status says what is used under every name that counts."""
    counted = {name for name in limits.spec.hard if quota.is_counted(name)}
    return limits.status.hard == limits.spec.hard and counted <= limits.status.used.keys()


def _is_scoped(stored: StoredObject) -> bool:
    spec = stored.document.get("spec") or {}
    return bool(spec.get("scopes") or spec.get("scopeSelector"))


def _changes_limits(change: ObjectChange) -> bool:
    """Whether a change of a quota changes what is limited."""
    if change.operation != UPDATE:
        return True
    return bool(change.view.spec.hard != change.old_view.spec.hard)


def _collect_warnings(change: ObjectChange) -> list[str]:
    if change.pending is None:
        return []
    spec = change.pending.document.get("spec") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        return [
            "spec: quotas with scopes limit nothing here; write one without scopes for "
            "count/…, pods or <class>.deviceclass.resource.k8s.io/devices"
        ]
    unknown = sorted(name for name in change.view.spec.hard if not quota.is_counted(name))
    return [
        f'spec.hard["{name}"]: is not counted and limits nothing; counted are count/<plural>.<group>, pods '
        f"and <class>{quota.CLASS_DEVICES_SUFFIX}"
        for name in unknown
    ]


def _encode_with_status(stored: StoredObject, used: QuotaUsage) -> bytes:
    """The quota with its limits in force and what is used, and otherwise as it was."""
    document = stored.document
    hard = (document.get("spec") or {}).get("hard") or {}
    counted = {name: str(Quantity(number * NANOS_PER_UNIT)) for name, number in sorted(used.items())}
    status = {**(document.get("status") or {}), "hard": hard, "used": counted}
    return encode_document(QUOTAS, document | {"status": status})
