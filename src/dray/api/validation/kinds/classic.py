"""Rules of the classic path: resource classes, and claims that a driver's controller allocates.

The phases of a claim are a small machine; `TRANSITIONS` is all of it, but for the end: of a claim that is
being deleted the driver may say that it is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from dray.api.classic import (
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClaimStatus,
    ResourceClass,
    SchedulingStatus,
)
from dray.api.classic.resource_claim import ALLOCATED, DELAYED, IMMEDIATE, PENDING, REALLOCATE
from dray.api.fields import ROOT, Path, forbidden, invalid, not_supported, too_long, too_many
from dray.api.validation import limits
from dray.api.validation.field_rules import (
    IMMUTABLE,
    OMITTED,
    Errors,
    distinct,
    each,
    misnamed,
    named,
    node_selector,
)
from dray.api.validation.metadata import owner_reference
from dray.api.validation.semantic_equality import same
from dray.values.names import dns_subdomain, driver_name

_SPEC = ROOT.field("spec")
_STATUS = ROOT.field("status")

UNLIMITED: Final = -1
"""The `userLimit` of a resource that any number of pods may use."""

PHASES: Final = (PENDING, ALLOCATED, REALLOCATE)
TRANSITIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        PENDING: (ALLOCATED,),
        ALLOCATED: (REALLOCATE,),
        REALLOCATE: (PENDING,),
    }
)
"""From which phase a claim may go to which. The driver allocates, the scheduler asks to start again, and the
driver frees the resource."""


def resource_class(obj: ResourceClass) -> Errors:
    """What holds of a classic class besides its metadata."""
    yield from named(obj.driver_name, driver_name, ROOT.field("driverName"))
    yield from _parameters(obj.parameters, ROOT.field("parameters"))


def classic_claim(obj: ClassicClaim) -> Errors:
    """What holds of a new classic claim besides its metadata."""
    return classic_spec(obj.spec, _SPEC)


def classic_spec(spec: ClassicClaimSpec, path: Path) -> Errors:
    """What a classic claim asks for, also inside a pod's template. That the class exists is not checked."""
    yield from named(spec.resource_class_name, dns_subdomain, path.field("resourceClassName"))
    yield from _parameters(spec.parameters, path.field("parameters"))
    if spec.allocation_mode and spec.allocation_mode not in (IMMEDIATE, DELAYED):
        yield not_supported(path.field("allocationMode"), spec.allocation_mode, (IMMEDIATE, DELAYED))


def _parameters(raw: msgspec.Raw, path: Path) -> Errors:
    """Arbitrary JSON for the driver; there need not be any."""
    written = bytes(raw)
    if not written:
        return
    if len(written) > limits.OPAQUE_BYTES:
        yield too_long(path, limits.OPAQUE_BYTES)
        return
    try:
        msgspec.json.decode(written)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as broken:
        yield invalid(path, OMITTED, f"error parsing data as JSON: {broken}")


def classic_claim_update(new: ClassicClaim, old: ClassicClaim) -> Errors:
    """What somebody needs never changes."""
    if not same(new.spec, old.spec):
        yield invalid(_SPEC, new.spec, IMMUTABLE)


# --- status ---


def classic_claim_status_update(new: ClassicClaim, old: ClassicClaim) -> Errors:
    """What holds of the step from one status to the next."""
    deleting = new.metadata.deletion_timestamp is not None or old.metadata.deletion_timestamp is not None
    yield from _step(new.status, old.status, deleting=deleting)
    after = new.status.phase or PENDING
    added = set(new.status.reserved_for) - set(old.status.reserved_for)
    if added and (deleting or after != ALLOCATED):
        why = "the claim is being deleted" if deleting else f"the claim is `{after}`, not `{ALLOCATED}`"
        yield forbidden(_STATUS.field("reservedFor"), f"new entries may not be added while {why}")


def _step(new: ClassicClaimStatus, old: ClassicClaimStatus, *, deleting: bool) -> Errors:
    """Whether a claim may go from its phase to the next."""
    before, after = old.phase or PENDING, new.phase or PENDING
    if before == after or before not in TRANSITIONS:
        return
    place, ways = _STATUS.field("phase"), TRANSITIONS[before]
    if deleting and before == ALLOCATED:
        ways = (*ways, PENDING)
    if after not in ways:
        allowed = " or ".join(f"`{phase}`" for phase in ways)
        yield invalid(place, new.phase, f"a claim that is `{before}` can only become {allowed}")
    elif after != ALLOCATED and set(new.reserved_for) & set(old.reserved_for):
        yield forbidden(place, f"the claim is in use, and stays `{before}` while `reservedFor` has entries")


def classic_claim_status(obj: ClassicClaim) -> Errors:
    """What holds of a status by itself."""
    status = obj.status
    if status.phase and status.phase not in PHASES:
        yield not_supported(_STATUS.field("phase"), status.phase, PHASES)
    if status.driver_name:
        yield from misnamed(driver_name(status.driver_name), _STATUS.field("driverName"))
    if status.available_on_nodes is not None:
        yield from node_selector(status.available_on_nodes, _STATUS.field("availableOnNodes"))
    if status.scheduling is not None:
        yield from _negotiation(status.scheduling, _STATUS.field("scheduling"))
    yield from _users(status, _STATUS)


def _users(status: ClassicClaimStatus, path: Path) -> Errors:
    limit, users, place = status.user_limit, status.reserved_for, path.field("reservedFor")
    if limit is not None and limit <= 0 and limit != UNLIMITED:
        text = f"must be greater than zero, or {UNLIMITED} for any number of users"
        yield invalid(path.field("userLimit"), limit, text)
        limit = None
    yield from each(users, limits.CONSUMERS_PER_CLAIM, owner_reference, place)
    if limit is not None and limit != UNLIMITED and len(users) > limit:
        yield too_many(place, len(users), limit)
    if len(users) <= limits.CONSUMERS_PER_CLAIM:
        yield from distinct((user.uid for user in users), place)


def _negotiation(item: SchedulingStatus, path: Path) -> Errors:
    scheduler, driver = item.scheduler, item.driver
    if scheduler.selected_node:
        place = path.field("scheduler", "selectedNode")
        yield from misnamed(dns_subdomain(scheduler.selected_node), place)
    yield from _node_names(scheduler.potential_nodes, path.field("scheduler", "potentialNodes"))
    yield from _node_names(driver.unsuitable_nodes, path.field("driver", "unsuitableNodes"))
    if driver.available_on_nodes is not None:
        yield from node_selector(driver.available_on_nodes, path.field("driver", "availableOnNodes"))


def _node_names(names: Sequence[str], path: Path) -> Errors:
    yield from each(names, limits.NODES_PER_CLASSIC_LIST, _node_name, path)
    if len(names) <= limits.NODES_PER_CLASSIC_LIST:
        yield from distinct(names, path)


def _node_name(name: str, path: Path) -> Errors:
    return named(name, dns_subdomain, path)
