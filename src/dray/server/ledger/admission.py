"""The ledger as an admission rule: an allocation and its ledger rows change in one transaction.

Theory of operation: the rule passes a change of a claim's allocation, or a created or deleted preparation, to
the ledger together with the rows and slices it concerns, as the cache has them. The writes of the ledger go
into the transaction of the change, with a compare for everything the ledger read. When another writer was
faster, a compare fails and the change is reviewed again with the current state; so of two allocations of one
device exactly one is stored, through any number of servers.

A device may be allocated before a slice publishes it; its consumption of counters is charged when a slice
does. So that the two cannot miss each other, each pool has a mark, a row outside the objects that changes
when a slice with such devices is written, and the allocation of an unpublished device compares it.
Unpublished devices of a pool with a mark cannot be allocated: their slices were withdrawn, and what they
consume is not known until the slices are back.

After a restore, nodes may have prepared devices that are not in the store. Until they have reported them, no
device that they can reach is allocated (`restore_quarantine`). Their reports are always recorded.

A denial is 409 and names every device that is in the way, its holder, and what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dray.api.kinds import get_kind
from dray.api.preparation import PreparationSpec
from dray.claims.ledger import denials, grants, prepared_devices
from dray.claims.ledger.denials import Denial, DenialReason
from dray.claims.ledger.grants import AllocatedResult, LedgerDecision, LedgerTransaction
from dray.claims.ledger.published_devices import read_draws
from dray.claims.ledger.rows import DeviceId, Holder, Holding
from dray.claims.ledger.stored_claims import StoredClaim, may_be_allocated, read_claim
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
from dray.server.ledger.published_pools import PublishedPools
from dray.server.ledger.restore_quarantine import RestoreQuarantine
from dray.server.objects.stored_object import StoredObject, build_key
from dray.server.watch.cache import WatchCache
from dray.store import Compare, Delete, KeyUnchanged, Put

_OWNERS_FORBIDDEN = (
    "a preparation has no owners: it would be garbage collected with them and release devices that the node "
    "still has; leave metadata.ownerReferences out"
)

_DEVICES_FORBIDDEN = (
    "a node reports its devices only after the server was restored from a backup, and until it has noted so "
    "on its Node; leave spec.devices out"
)

CLAIMS = get_kind("resource.k8s.io", "ResourceClaim")
SLICES = get_kind("resource.k8s.io", "ResourceSlice")
PREPARATIONS = get_kind("dray.dev", "Preparation")

POOL_MARKS_PREFIX: Final = b"/pools/"
"""The keys of the marks: one row per pool that changes when devices that consume counters are published."""


_SCOPES: Final = (RuleScope((CLAIMS, PREPARATIONS)), RuleScope((SLICES,), (CREATE, UPDATE)))


class LedgerAdmission:
    """Reviews changes by the ledger, and keeps the ledger consistent with the claims.

    `on_denied` is called with the reason of each denial, for metrics. A rule that is not enforced does
    nothing; tests use it to show what happens without the ledger.
    """

    def __init__(
        self,
        cache: WatchCache,
        *,
        restore_quarantine: RestoreQuarantine | None = None,
        enforced: bool = True,
        on_denied: Callable[[str], None] | None = None,
    ) -> None:
        self._cache = cache
        self._restore_quarantine = restore_quarantine
        self._published_pools = PublishedPools(cache)
        self.scopes: Final = _SCOPES if enforced else ()
        self._enforced = enforced
        self._on_denied = on_denied or (lambda reason: None)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        """Review a change by the ledger."""
        if not self._enforced:
            return ADMITTED
        if change.kind is CLAIMS:
            return self._admit_claim(change)
        if change.kind is PREPARATIONS:
            return self._admit_preparation(change)
        if change.kind is SLICES and change.view is not None:
            return self._admit_slice(change)
        return ADMITTED

    def _open_ledger(self) -> LedgerTransaction:
        return LedgerTransaction(self._read_row)

    def _read_row(self, key: bytes) -> bytes | None:
        entry = self._cache.get_row(key)
        return None if entry is None else entry.value

    def _get_row_revision(self, key: bytes) -> int:
        entry = self._cache.get_row(key)
        return 0 if entry is None else entry.mod_revision

    def _admit_claim(self, change: ObjectChange) -> AdmissionEffects:
        old = _read_allocated_claim(change.old)
        new: Sequence[AllocatedResult] = ()
        node = ""
        if change.view is not None and change.view.status.allocation is not None:
            allocation = change.view.status.allocation
            new = allocation.devices.results
            node = "" if allocation.node_selector is None else allocation.node_selector.only_node
        if old is None and not new:
            return ADMITTED
        before = grants.list_holdings(old.holder, old.results) if old is not None else []
        holder = _build_holder(change) if change.view is not None else Holder()
        if before == grants.list_holdings(holder, new):
            return ADMITTED
        ledger = self._open_ledger()
        if old is not None:
            grants.release_claim(ledger, old.holder.uid, (device for device, _ in before))
        denied = grants.grant_allocation(ledger, holder, new, self._published_pools, node)
        compares, withdrawn = self._check_unpublished(new)
        awaited = self._check_restore_quarantine(
            [each for each in grants.list_holdings(holder, new) if each not in before]
        )
        effects = self._build_effects(change, ledger.build_decision([*denied, *withdrawn, *awaited]))
        return AdmissionEffects([*effects.compares, *compares], effects.writes)

    def _check_unpublished(self, results: Sequence[AllocatedResult]) -> tuple[list[Compare], list[Denial]]:
        """Compares and denials for unpublished devices: no slice may publish or have withdrawn them."""
        marks: dict[bytes, int] = {}
        withdrawn: list[Denial] = []
        for position, result in enumerate(results):
            pool = (result.driver, result.pool)
            if result.admin_access or result.device in self._published_pools(pool).devices:
                continue
            mark = _build_pool_mark_key(*pool)
            marks[mark] = self._get_row_revision(mark)
            if marks[mark]:
                withdrawn.append(denials.deny_withdrawn(grants.get_device_id(result), position))
        return [KeyUnchanged(*mark) for mark in sorted(marks.items())], withdrawn

    def _check_restore_quarantine(self, wanted: Sequence[tuple[DeviceId, Holding]]) -> list[Denial]:
        """Denials for devices that nodes may have which have not reported since a restore."""
        quarantine = self._restore_quarantine
        if quarantine is None or not quarantine.is_open:
            return []
        found = (
            quarantine.deny_grant(device, self._published_pools((device.driver, device.pool)), position)
            for position, (device, _) in enumerate(wanted)
        )
        return [denial for denial in found if denial is not None]

    def _admit_slice(self, change: ObjectChange) -> AdmissionEffects:
        spec = change.view.spec
        consuming = [device for device in spec.devices if device.consumes_counters]
        if not consuming:
            return ADMITTED
        ledger = self._open_ledger()
        for device in consuming:
            device_id = DeviceId(spec.driver, spec.pool.name, device.name)
            grants.charge_published(ledger, device_id, read_draws(device.consumes_counters))
        effects = self._build_effects(change, ledger.build_decision())
        mark = Put(_build_pool_mark_key(spec.driver, spec.pool.name), change.name.encode())
        return AdmissionEffects(effects.compares, [*effects.writes, mark])

    def _admit_preparation(self, change: ObjectChange) -> AdmissionEffects:
        ledger = self._open_ledger()
        if change.operation == DELETE:
            prepared_devices.release_preparation(ledger, change.name)
            return self._build_effects(change, ledger.build_decision())
        if change.view.metadata.owner_references:
            raise errors.new_forbidden(PREPARATIONS, change.name, _OWNERS_FORBIDDEN)
        spec = change.view.spec
        if spec.devices and (change.old is None or spec != change.old_view.spec):
            return self._admit_reported_devices(change, spec)
        if change.operation != CREATE:
            return ADMITTED
        key = build_key(CLAIMS, spec.claim.namespace, spec.claim.name)
        stored = self._cache.get_by_key(key)
        claim = None if stored is None else read_claim(stored.value)
        denial = _deny_preparation(spec.claim, claim)
        if denial is not None or stored is None or claim is None:
            return self._build_effects(change, ledger.build_decision([denial] if denial else []))
        prepared_devices.release_preparation(ledger, change.name)
        denied = prepared_devices.record_preparation(
            ledger, change.name, spec.node_name, claim.holder, claim.results
        )
        denied += self._check_restore_quarantine(grants.list_holdings(claim.holder, claim.results))
        effects = self._build_effects(change, ledger.build_decision(denied))
        return AdmissionEffects([*effects.compares, KeyUnchanged(key, stored.revision)], effects.writes)

    def _admit_reported_devices(self, change: ObjectChange, spec: PreparationSpec) -> AdmissionEffects:
        """Record the devices that a node reports after a restore, whatever the store has of the claim."""
        if self._restore_quarantine is None or self._restore_quarantine.has_accounted(spec.node_name):
            raise errors.new_forbidden(PREPARATIONS, change.name, _DEVICES_FORBIDDEN)
        found = [(DeviceId(each.driver, each.pool, each.device), each.share_id) for each in spec.devices]
        for device, _ in found:
            facts = self._published_pools((device.driver, device.pool)).devices.get(device.device)
            if facts is not None and facts.node not in ("", spec.node_name):
                why = f"node {spec.node_name} cannot have device {device}, which is on node {facts.node}"
                raise errors.new_forbidden(PREPARATIONS, change.name, why)
        ledger = self._open_ledger()
        prepared_devices.release_preparation(ledger, change.name)
        claim = spec.claim
        holder = Holder(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        prepared_devices.record_found_devices(
            ledger, change.name, spec.node_name, holder, found, self._published_pools
        )
        return self._build_effects(change, ledger.build_decision())

    def _build_effects(self, change: ObjectChange, decision: LedgerDecision) -> AdmissionEffects:
        """The compares and writes of a decision; raises an `ApiStatusError` when it is a denial."""
        if decision.denials:
            for denial in decision.denials:
                self._on_denied(denial.reason.value)
            raise _build_conflict(change, decision.denials)
        compares: list[Compare] = [
            KeyUnchanged(key, self._get_row_revision(key)) for key in sorted(decision.reads)
        ]
        compares += [KeyUnchanged(*source) for source in sorted(decision.sources)]
        writes = [
            Delete(key) if value is None else Put(key, value) for key, value in decision.changes.items()
        ]
        return AdmissionEffects(compares, writes)


def _build_pool_mark_key(driver: str, pool: str) -> bytes:
    """The key of a pool's mark; names of drivers contain no slash."""
    return POOL_MARKS_PREFIX + f"{driver}/{pool}".encode()


def _read_allocated_claim(stored: StoredObject | None) -> StoredClaim | None:
    """The stored claim, if it has an allocation."""
    if stored is None or not may_be_allocated(stored.value):
        return None
    claim = read_claim(stored.value)
    return claim if claim.is_allocated else None


def _build_holder(change: ObjectChange) -> Holder:
    return Holder(namespace=change.namespace, name=change.name, uid=change.view.metadata.uid)


def _deny_preparation(wanted: Holder, claim: StoredClaim | None) -> Denial | None:
    """Why a node cannot prepare a claim; None when it can."""
    name = f"claim {wanted.namespace}/{wanted.name}"
    if claim is None:
        why = f"{name} does not exist; there is nothing to prepare"
    elif claim.metadata.uid != wanted.uid:
        why = f"{name} has uid {claim.metadata.uid}, not {wanted.uid}: it was replaced by another claim"
    elif not claim.is_allocated:
        why = f"{name} has no allocation; wait until it has one"
    else:
        return None
    return Denial(DenialReason.CLAIM, None, why)


def _build_conflict(change: ObjectChange, denials_found: Sequence[Denial]) -> errors.ApiStatusError:
    if change.kind is CLAIMS:
        causes = denials.build_allocation_causes(denials_found)
    else:
        causes = [
            {"reason": denial.reason.value, "message": denial.message, "field": "spec.claim"}
            for denial in denials_found
        ]
    return errors.new_conflict(change.kind, change.name, "; ".join(d.message for d in denials_found), causes)
