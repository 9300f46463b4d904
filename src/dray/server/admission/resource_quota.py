"""The admission rule of resource quotas: usage is updated in the transaction that changes it.

Theory of operation: `status.used` of a quota is the count. A change that raises or lowers it writes the quota
in the same transaction, with a compare on the quota that was read; of two creates that would both use the
last unit, one finds the quota changed and is reviewed again. So a limit holds under any concurrency.

A change that sees no quota in its namespace must not be committed after a quota was created. Each namespace
has a mark, a row outside the objects that changes with its quotas, and every counted change compares it. For
the same reason usage is recounted only from a cache that has the quota: from then on every change of usage
writes the quota.

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
from dray.server.admission.change import (
    ADMITTED,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionEffects,
    ObjectChange,
    RuleScope,
)
from dray.server.http import errors
from dray.server.objects.stored_object import StoredObject, encode_document, get_storage_kind
from dray.server.watch.cache import WatchCache
from dray.store import Compare, KeyUnchanged, Put, Store, Write
from dray.store.errors import StoreClosedError, StoreError
from dray.values.quantity import NANOS_PER_UNIT, Quantity

RETRY_SECONDS: Final = 1.0

QUOTA_MARKS_PREFIX: Final = b"/quotas/"
"""The keys of the marks: one row per namespace that changes with its quotas."""


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
    """Reviews changes by the quotas of their namespace, and maintains the usage.

    `on_denied` is called with the name of each exceeded resource, for metrics.
    """

    # Only updates of pods change usage: the requests of a claim are immutable.
    scopes: Final = (
        RuleScope(tuple(kind for kind in KINDS if kind.namespaced), (CREATE, DELETE)),
        RuleScope((PODS, QUOTAS), (UPDATE,)),
    )

    def __init__(self, cache: WatchCache, *, on_denied: Callable[[str], None] | None = None) -> None:
        self._cache = cache
        self._on_denied = on_denied or (lambda name: None)
        self._quota_keys: dict[str, set[bytes]] = {}
        self._stale_quotas: set[bytes] = set()
        self._recount_needed = asyncio.Event()
        cache.add_listener(QUOTAS, self._on_change)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        """Charge a change to the quotas of its namespace."""
        about_quota = change.kind is QUOTAS and _changes_limits(change)
        if change.operation == UPDATE and change.kind is not PODS and not about_quota:
            return ADMITTED  # only updates of pods change usage: the requests of a claim are immutable
        mark = QUOTA_MARKS_PREFIX + change.namespace.encode()
        compares: list[Compare] = [self._compare_mark(mark)]
        writes: list[Write] = [Put(mark, change.name.encode())] if about_quota else []
        keys = self._quota_keys.get(change.namespace)
        added = _compute_usage_change(change) if keys else {}
        for key in sorted(keys or ()):
            stored = self._cache.get_by_key(key)
            if stored is None or (change.old is not None and stored.key == change.old.key):
                continue
            written = self._charge(change, stored, added)
            if written is not None:
                compares.append(KeyUnchanged(stored.key, stored.revision))
                writes.append(written)
        return AdmissionEffects(compares, writes, _collect_warnings(change) if about_quota else ())

    def _charge(self, change: ObjectChange, stored: StoredObject, added: QuotaUsage) -> Write | None:
        """The write of the quota with the change counted; raises an `ApiStatusError` when it is exceeded."""
        limits: ResourceQuota = stored.view
        hard = limits.spec.hard
        counted = {name: number for name, number in added.items() if name in hard}
        if not counted or _is_scoped(stored):
            return None
        used = self._get_usage(stored, limits)
        excess = quota.find_excess(hard, used, counted)
        if excess is not None:
            for name in excess.names:
                self._on_denied(name)
            hint = (
                "delete what is not needed, or raise spec.hard of resourcequota "
                f"{stored.namespace}/{stored.name}"
            )
            raise errors.new_forbidden(
                change.kind, change.name, f"{excess.format_message(stored.name)}; {hint}"
            )
        for name, number in counted.items():
            used[name] = max(used.get(name, 0) + number, 0)
        return Put(stored.key, _encode_with_status(stored, used))

    def _get_usage(self, stored: StoredObject, limits: ResourceQuota) -> QuotaUsage:
        """The usage in the quota's status, or recounted when the status lacks a name."""
        if _is_usage_current(limits):
            return {name: amount.to_int() or 0 for name, amount in limits.status.used.items()}
        return self._recount(stored.namespace, [name for name in limits.spec.hard if quota.is_counted(name)])

    def _recount(self, namespace: str, names: list[str]) -> QuotaUsage:
        used: QuotaUsage = dict.fromkeys(names, 0)
        kinds = {kind for name in names if (kind := _find_counted_kind(name)) is not None}
        for kind in sorted(kinds, key=lambda kind: (kind.group, kind.plural)):
            for stored in self._cache.list_objects(kind, namespace):
                for name, number in quota.count_usage(kind, stored.value).items():
                    if name in used:
                        used[name] += number
        return used

    def _compare_mark(self, mark: bytes) -> Compare:
        entry = self._cache.get_row(mark)
        return KeyUnchanged(mark, 0 if entry is None else entry.mod_revision)

    def _on_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if new is None:
            assert old is not None
            keys = self._quota_keys.get(old.namespace, set())
            keys.discard(old.key)
            if not keys:
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
        """Recount quotas with new limits, until the store is closed; the owner runs this as a task."""
        while True:
            await self._recount_needed.wait()
            self._recount_needed.clear()
            try:
                for key in sorted(self._stale_quotas):
                    await self._write_usage(store, key)
            except StoreClosedError:
                return
            except StoreError:
                await asyncio.sleep(RETRY_SECONDS)  # admission recounts by itself; only the status is stale
                self._recount_needed.set()

    async def _write_usage(self, store: Store, key: bytes) -> None:
        stored = self._cache.get_by_key(key)
        if stored is None:
            return
        names = [name for name in stored.view.spec.hard if quota.is_counted(name)]
        value = _encode_with_status(stored, self._recount(stored.namespace, names))
        # After a conflict the quota has changed, and the listener marks it stale again if needed.
        await store.txn([KeyUnchanged(stored.key, stored.revision)], [Put(stored.key, value)])


def _find_counted_kind(name: str) -> Kind | None:
    """The kind whose objects count under a resource name."""
    if name.endswith(quota.CLASS_DEVICES_SUFFIX):
        return CLAIMS
    return _KINDS_BY_COUNT_NAME.get(name) or _KINDS_BY_SHORT_NAME.get(name)


def _compute_usage_change(change: ObjectChange) -> QuotaUsage:
    """The change of usage under each name; negative for what it releases."""
    kind = get_storage_kind(change.kind)
    before = (
        {} if change.operation == CREATE or change.old is None else quota.count_usage(kind, change.old.value)
    )
    after = {} if change.operation == DELETE or change.pending is None else _compute_usage(change, kind)
    names = before.keys() | after.keys()
    return {name: d for name in sorted(names) if (d := after.get(name, 0) - before.get(name, 0))}


def _compute_usage(change: ObjectChange, kind: Kind) -> QuotaUsage:
    """The usage of the new object."""
    if kind is PODS:
        status = (change.document or {}).get("status") or {}
        return quota.count_pod(kind, str(status.get("phase") or ""))
    if kind is CLAIMS:
        return quota.count_claim(kind, change.view.spec.devices.requests)
    return quota.count_object(kind)


def _is_usage_current(limits: ResourceQuota) -> bool:
    """Whether the status has the current limits, and the usage under every counted name."""
    counted = {name for name in limits.spec.hard if quota.is_counted(name)}
    return limits.status.hard == limits.spec.hard and counted <= limits.status.used.keys()


def _is_scoped(stored: StoredObject) -> bool:
    spec = stored.document.get("spec") or {}
    return bool(spec.get("scopes") or spec.get("scopeSelector"))


def _changes_limits(change: ObjectChange) -> bool:
    """Whether a change of a quota changes its limits."""
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
    """Encode a quota with its current limits and usage in the status."""
    document = stored.document
    hard = (document.get("spec") or {}).get("hard") or {}
    counted = {name: str(Quantity(number * NANOS_PER_UNIT)) for name, number in sorted(used.items())}
    status = {**(document.get("status") or {}), "hard": hard, "used": counted}
    return encode_document(QUOTAS, document | {"status": status})
