"""The ledger as a rule of the server: an allocation and its rows change in one transaction.

Theory of operation: a change of a claim's allocation, and a preparation that comes or goes, is put to the
ledger together with the rows and slices it concerns, as the cache shows them. What the ledger wants written
goes into the transaction of the change, with a compare for everything it looked at. Somebody else who was
faster makes a compare fail, and the change is judged again on what stands then; so of two allocations of
one device exactly one is stored, through however many servers they come.

A device may be taken while no slice has told of it yet; what it draws from counters is charged when one does.
So that the two cannot pass each other, each pool has a mark beside the objects that changes when such a slice
is written, and whoever takes a device that is not published compares it. From a pool that has a mark nothing
is taken unpublished: its slices were withdrawn, and what its devices draw is not known until they are back.

After a restore nodes may have devices in their hands of which nobody here knows. Until they have said so, no
device that they can reach changes hands (`restore_quarantine`). What they say is entered whatever else is
known.

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
from dray.server.admission.change import ADMITTED, CREATE, DELETE, AdmissionEffects, ObjectChange
from dray.server.http import errors
from dray.server.ledger.published_pools import PublishedPools
from dray.server.ledger.restore_quarantine import RestoreQuarantine
from dray.server.objects.stored_object import StoredObject, build_key
from dray.server.watch.cache import WatchCache
from dray.store import Compare, Delete, KeyUnchanged, Put

RESULTS_PATH = "status.allocation.devices.results"

_OWNERS_FORBIDDEN = (
    "a preparation has no owners: it would be collected with them and free devices that the node still has; "
    "leave metadata.ownerReferences out"
)

_DEVICES_FORBIDDEN = (
    "a node says by itself which devices it has only after the server was restored from a copy, and until it "
    "has noted so on its Node; leave spec.devices out"
)

CLAIMS = get_kind("resource.k8s.io", "ResourceClaim")
SLICES = get_kind("resource.k8s.io", "ResourceSlice")
PREPARATIONS = get_kind("dray.dev", "Preparation")

POOL_MARKS_PREFIX: Final = b"/pools/"
"""Beside the objects: a mark for each pool that changes when devices that draw from counters are told."""


class LedgerAdmission:
    """Judges changes by the ledger, and keeps the ledger in step.

    `on_denied` is called with the law behind each denial, for counting. A guard that is not enforced does
    nothing at all; it exists to show in tests what would happen without the ledger.
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
        self._enforced = enforced
        self._on_denied = on_denied or (lambda law: None)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        """What the ledger says to a change."""
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
        books = self._open_ledger()
        if old is not None:
            grants.release_claim(books, old.holder.uid, (device for device, _ in before))
        denied = grants.grant_allocation(books, holder, new, self._published_pools, node)
        compares, withdrawn = self._check_unpublished(new)
        awaited = self._check_restore_quarantine(
            [each for each in grants.list_holdings(holder, new) if each not in before]
        )
        extra = self._build_effects(change, books.build_decision([*denied, *withdrawn, *awaited]))
        return AdmissionEffects([*extra.compares, *compares], extra.writes)

    def _check_unpublished(self, results: Sequence[AllocatedResult]) -> tuple[list[Compare], list[Denial]]:
        """Devices that no slice tells of: nobody must publish them meanwhile, nor have withdrawn them."""
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
        """After a restore: devices that somebody may have who was not heard of yet."""
        aftermath = self._restore_quarantine
        if aftermath is None or not aftermath.is_open:
            return []
        found = (
            aftermath.deny_grant(device, self._published_pools((device.driver, device.pool)), position)
            for position, (device, _) in enumerate(wanted)
        )
        return [denial for denial in found if denial is not None]

    def _admit_slice(self, change: ObjectChange) -> AdmissionEffects:
        spec = change.view.spec
        drawing = [device for device in spec.devices if device.consumes_counters]
        if not drawing:
            return ADMITTED
        books = self._open_ledger()
        for device in drawing:
            place = DeviceId(spec.driver, spec.pool.name, device.name)
            grants.charge_published(books, place, read_draws(device.consumes_counters))
        extra = self._build_effects(change, books.build_decision())
        mark = Put(_build_pool_mark_key(spec.driver, spec.pool.name), change.name.encode())
        return AdmissionEffects(extra.compares, [*extra.writes, mark])

    def _admit_preparation(self, change: ObjectChange) -> AdmissionEffects:
        books = self._open_ledger()
        if change.operation == DELETE:
            prepared_devices.release_preparation(books, change.name)
            return self._build_effects(change, books.build_decision())
        if change.view.metadata.owner_references:
            raise errors.new_forbidden(PREPARATIONS, change.name, _OWNERS_FORBIDDEN)
        spec = change.view.spec
        if spec.devices and (change.old is None or spec != change.old_view.spec):
            return self._admit_reported_devices(change, spec)
        if change.operation != CREATE:
            return ADMITTED
        place = build_key(CLAIMS, spec.claim.namespace, spec.claim.name)
        held = self._cache.get_by_key(place)
        claim = None if held is None else read_claim(held.value)
        denial = _deny_preparation(spec.claim, claim)
        if denial is not None or held is None or claim is None:
            return self._build_effects(change, books.build_decision([denial] if denial else []))
        prepared_devices.release_preparation(books, change.name)
        denied = prepared_devices.record_preparation(
            books, change.name, spec.node_name, claim.holder, claim.results
        )
        denied += self._check_restore_quarantine(grants.list_holdings(claim.holder, claim.results))
        extra = self._build_effects(change, books.build_decision(denied))
        return AdmissionEffects([*extra.compares, KeyUnchanged(place, held.revision)], extra.writes)

    def _admit_reported_devices(self, change: ObjectChange, spec: PreparationSpec) -> AdmissionEffects:
        """A node says what it has, whatever is known of the claim here."""
        if self._restore_quarantine is None or self._restore_quarantine.has_accounted(spec.node_name):
            raise errors.new_forbidden(PREPARATIONS, change.name, _DEVICES_FORBIDDEN)
        found = [(DeviceId(each.driver, each.pool, each.device), each.share_id) for each in spec.devices]
        for device, _ in found:
            facts = self._published_pools((device.driver, device.pool)).devices.get(device.device)
            if facts is not None and facts.node not in ("", spec.node_name):
                why = f"node {spec.node_name} cannot have device {device}, which is of node {facts.node}"
                raise errors.new_forbidden(PREPARATIONS, change.name, why)
        books = self._open_ledger()
        prepared_devices.release_preparation(books, change.name)
        claim = spec.claim
        holder = Holder(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        prepared_devices.record_found_devices(
            books, change.name, spec.node_name, holder, found, self._published_pools
        )
        return self._build_effects(change, books.build_decision())

    def _build_effects(self, change: ObjectChange, ruling: LedgerDecision) -> AdmissionEffects:
        """The ruling as part of a transaction; a denial as a failure."""
        if ruling.denials:
            for denial in ruling.denials:
                self._on_denied(denial.reason.value)
            raise _build_conflict(change, ruling.denials)
        compares: list[Compare] = [
            KeyUnchanged(place, self._get_row_revision(place)) for place in sorted(ruling.reads)
        ]
        compares += [KeyUnchanged(*source) for source in sorted(ruling.sources)]
        writes = [
            Delete(place) if value is None else Put(place, value) for place, value in ruling.changes.items()
        ]
        return AdmissionEffects(compares, writes)


def _build_pool_mark_key(driver: str, pool: str) -> bytes:
    """The mark of a pool; names of drivers have no slash."""
    return POOL_MARKS_PREFIX + f"{driver}/{pool}".encode()


def _read_allocated_claim(stored: StoredObject | None) -> StoredClaim | None:
    """The claim as it is stored, if it has an allocation."""
    if stored is None or not may_be_allocated(stored.value):
        return None
    claim = read_claim(stored.value)
    return claim if claim.is_allocated else None


def _build_holder(change: ObjectChange) -> Holder:
    return Holder(namespace=change.namespace, name=change.name, uid=change.view.metadata.uid)


def _deny_preparation(wanted: Holder, claim: StoredClaim | None) -> Denial | None:
    """Why a node cannot say that it prepares a claim."""
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
    field = RESULTS_PATH if change.kind is CLAIMS else "spec.claim"
    causes = [
        {
            "reason": denial.reason.value,
            "message": denial.message,
            "field": f"{field}[{denial.position}]" if change.kind is CLAIMS else field,
        }
        for denial in denials_found
    ]
    return errors.new_conflict(change.kind, change.name, "; ".join(d.message for d in denials_found), causes)
