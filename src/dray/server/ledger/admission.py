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
device that they can reach changes hands (`aftermath`). What they say is entered whatever else is known.

A denial is 409 and names every device that is in the way, its holder, and what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dray.api.kinds import known_kind
from dray.api.preparation import PreparationSpec
from dray.claims.ledger import denials, grants, prepared_devices
from dray.claims.ledger.denials import Denial, Law
from dray.claims.ledger.grants import Books, Result, Ruling
from dray.claims.ledger.published_devices import draws_of
from dray.claims.ledger.rows import DeviceId, Holder, Holding
from dray.claims.ledger.stored_claims import SeenClaim, may_be_allocated, read_claim
from dray.server.admission.change import CREATE, DELETE, NOTHING, Change, Extra
from dray.server.http import errors
from dray.server.ledger.published_pools import Catalogue
from dray.server.ledger.restore_quarantine import Aftermath
from dray.server.objects.stored_object import Held, key
from dray.server.watch.cache import Cache
from dray.store import Compare, Delete, Put, Unchanged

RESULTS = "status.allocation.devices.results"

_NO_OWNERS = (
    "a preparation has no owners: it would be collected with them and free devices that the node still has; "
    "leave metadata.ownerReferences out"
)

_NOTHING_TO_ADD = (
    "a node says by itself which devices it has only after the server was restored from a copy, and until it "
    "has noted so on its Node; leave spec.devices out"
)

CLAIMS = known_kind("resource.k8s.io", "ResourceClaim")
SLICES = known_kind("resource.k8s.io", "ResourceSlice")
PREPARATIONS = known_kind("dray.dev", "Preparation")

MARKS: Final = b"/pools/"
"""Beside the objects: a mark for each pool that changes when devices that draw from counters are told."""


class Guard:
    """Judges changes by the ledger, and keeps the ledger in step.

    `on_denied` is called with the law behind each denial, for counting. A guard that is not enforced does
    nothing at all; it exists to show in tests what would happen without the ledger.
    """

    def __init__(
        self,
        cache: Cache,
        *,
        aftermath: Aftermath | None = None,
        enforced: bool = True,
        on_denied: Callable[[str], None] | None = None,
    ) -> None:
        self._cache = cache
        self._aftermath = aftermath
        self._catalogue = Catalogue(cache)
        self._enforced = enforced
        self._on_denied = on_denied or (lambda law: None)

    def judge(self, change: Change) -> Extra:
        """What the ledger says to a change."""
        if not self._enforced:
            return NOTHING
        if change.kind is CLAIMS:
            return self._judge_claim(change)
        if change.kind is PREPARATIONS:
            return self._judge_preparation(change)
        if change.kind is SLICES and change.view is not None:
            return self._judge_slice(change)
        return NOTHING

    def _books(self) -> Books:
        return Books(self._row)

    def _row(self, place: bytes) -> bytes | None:
        entry = self._cache.row(place)
        return None if entry is None else entry.value

    def _revision(self, place: bytes) -> int:
        entry = self._cache.row(place)
        return 0 if entry is None else entry.mod_revision

    def _judge_claim(self, change: Change) -> Extra:
        old = _allocated(change.old)
        new: Sequence[Result] = ()
        node = ""
        if change.view is not None and change.view.status.allocation is not None:
            allocation = change.view.status.allocation
            new = allocation.devices.results
            node = "" if allocation.node_selector is None else allocation.node_selector.only_node
        if old is None and not new:
            return NOTHING
        before = grants.held_by(old.holder, old.results) if old is not None else []
        holder = _holder(change) if change.view is not None else Holder()
        if before == grants.held_by(holder, new):
            return NOTHING
        books = self._books()
        if old is not None:
            grants.release(books, old.holder.uid, (device for device, _ in before))
        denied = grants.grant(books, holder, new, self._catalogue, node)
        compares, withdrawn = self._unpublished(new)
        awaited = self._awaited([each for each in grants.held_by(holder, new) if each not in before])
        extra = self._extra(change, books.ruling([*denied, *withdrawn, *awaited]))
        return Extra([*extra.compares, *compares], extra.writes)

    def _unpublished(self, results: Sequence[Result]) -> tuple[list[Compare], list[Denial]]:
        """Devices that no slice tells of: nobody must publish them meanwhile, nor have withdrawn them."""
        marks: dict[bytes, int] = {}
        withdrawn: list[Denial] = []
        for position, result in enumerate(results):
            pool = (result.driver, result.pool)
            if result.admin_access or result.device in self._catalogue(pool).devices:
                continue
            mark = _mark(*pool)
            marks[mark] = self._revision(mark)
            if marks[mark]:
                withdrawn.append(denials.withdrawn(grants.device_of(result), position))
        return [Unchanged(*mark) for mark in sorted(marks.items())], withdrawn

    def _awaited(self, wanted: Sequence[tuple[DeviceId, Holding]]) -> list[Denial]:
        """After a restore: devices that somebody may have who was not heard of yet."""
        aftermath = self._aftermath
        if aftermath is None or not aftermath.is_open:
            return []
        found = (
            aftermath.no_grant(device, self._catalogue((device.driver, device.pool)), position)
            for position, (device, _) in enumerate(wanted)
        )
        return [denial for denial in found if denial is not None]

    def _judge_slice(self, change: Change) -> Extra:
        spec = change.view.spec
        drawing = [device for device in spec.devices if device.consumes_counters]
        if not drawing:
            return NOTHING
        books = self._books()
        for device in drawing:
            place = DeviceId(spec.driver, spec.pool.name, device.name)
            grants.charge_published(books, place, draws_of(device.consumes_counters))
        extra = self._extra(change, books.ruling())
        mark = Put(_mark(spec.driver, spec.pool.name), change.name.encode())
        return Extra(extra.compares, [*extra.writes, mark])

    def _judge_preparation(self, change: Change) -> Extra:
        books = self._books()
        if change.operation == DELETE:
            prepared_devices.free(books, change.name)
            return self._extra(change, books.ruling())
        if change.view.metadata.owner_references:
            raise errors.forbidden(PREPARATIONS, change.name, _NO_OWNERS)
        spec = change.view.spec
        if spec.devices and (change.old is None or spec != change.old_view.spec):
            return self._judge_found(change, spec)
        if change.operation != CREATE:
            return NOTHING
        place = key(CLAIMS, spec.claim.namespace, spec.claim.name)
        held = self._cache.at(place)
        claim = None if held is None else read_claim(held.value)
        denial = _no_preparation(spec.claim, claim)
        if denial is not None or held is None or claim is None:
            return self._extra(change, books.ruling([denial] if denial else []))
        prepared_devices.free(books, change.name)
        denied = prepared_devices.prepare(books, change.name, spec.node_name, claim.holder, claim.results)
        denied += self._awaited(grants.held_by(claim.holder, claim.results))
        extra = self._extra(change, books.ruling(denied))
        return Extra([*extra.compares, Unchanged(place, held.revision)], extra.writes)

    def _judge_found(self, change: Change, spec: PreparationSpec) -> Extra:
        """A node says what it has, whatever is known of the claim here."""
        if self._aftermath is None or self._aftermath.has_accounted(spec.node_name):
            raise errors.forbidden(PREPARATIONS, change.name, _NOTHING_TO_ADD)
        found = [(DeviceId(each.driver, each.pool, each.device), each.share_id) for each in spec.devices]
        for device, _ in found:
            facts = self._catalogue((device.driver, device.pool)).devices.get(device.device)
            if facts is not None and facts.node not in ("", spec.node_name):
                why = f"node {spec.node_name} cannot have device {device}, which is of node {facts.node}"
                raise errors.forbidden(PREPARATIONS, change.name, why)
        books = self._books()
        prepared_devices.free(books, change.name)
        claim = spec.claim
        holder = Holder(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        prepared_devices.find(books, change.name, spec.node_name, holder, found, self._catalogue)
        return self._extra(change, books.ruling())

    def _extra(self, change: Change, ruling: Ruling) -> Extra:
        """The ruling as part of a transaction; a denial as a failure."""
        if ruling.denials:
            for denial in ruling.denials:
                self._on_denied(denial.law.value)
            raise _failure(change, ruling.denials)
        compares: list[Compare] = [Unchanged(place, self._revision(place)) for place in sorted(ruling.reads)]
        compares += [Unchanged(*source) for source in sorted(ruling.sources)]
        writes = [
            Delete(place) if value is None else Put(place, value) for place, value in ruling.changes.items()
        ]
        return Extra(compares, writes)


def _mark(driver: str, pool: str) -> bytes:
    """The mark of a pool; names of drivers have no slash."""
    return MARKS + f"{driver}/{pool}".encode()


def _allocated(held: Held | None) -> SeenClaim | None:
    """The claim as it is stored, if it has an allocation."""
    if held is None or not may_be_allocated(held.value):
        return None
    claim = read_claim(held.value)
    return claim if claim.is_allocated else None


def _holder(change: Change) -> Holder:
    return Holder(namespace=change.namespace, name=change.name, uid=change.view.metadata.uid)


def _no_preparation(wanted: Holder, claim: SeenClaim | None) -> Denial | None:
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
    return Denial(Law.CLAIM, None, why)


def _failure(change: Change, denied: Sequence[Denial]) -> errors.Failure:
    field = RESULTS if change.kind is CLAIMS else "spec.claim"
    causes = [
        {
            "reason": denial.law.value,
            "message": denial.message,
            "field": f"{field}[{denial.position}]" if change.kind is CLAIMS else field,
        }
        for denial in denied
    ]
    return errors.conflict(change.kind, change.name, "; ".join(d.message for d in denied), causes)
