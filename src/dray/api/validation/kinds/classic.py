"""Validation of the classic path: resource classes, and claims that a driver's controller allocates.

The phases of a claim are a small state machine; `TRANSITIONS` is all of it, with one exception: the driver
may report a claim that is being deleted as free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from dray.api import limits
from dray.api.classic import (
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicResourceClaim,
    ResourceClass,
    SchedulingStatus,
)
from dray.api.classic.resource_claim import ALLOCATED, DELAYED, IMMEDIATE, PENDING, REALLOCATE
from dray.api.fields import ROOT, FieldPath, forbidden, invalid, not_supported, too_long, too_many
from dray.api.validation.field_rules import (
    IMMUTABLE,
    OMITTED,
    FieldErrors,
    find_json_error,
    report_name_faults,
    validate_distinct,
    validate_each,
    validate_name,
    validate_node_selector,
)
from dray.api.validation.metadata import validate_owner_reference
from dray.api.validation.semantic_equality import is_semantically_equal
from dray.values.names import check_dns_subdomain, check_driver_name

_SPEC = ROOT.child("spec")
_STATUS = ROOT.child("status")

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
"""The phases a claim may enter from each phase. The driver allocates, the scheduler requests a reallocation,
and the driver frees the resource.
"""


def validate_resource_class(obj: ResourceClass) -> FieldErrors:
    """Check a classic class, its metadata excluded."""
    yield from validate_name(obj.driver_name, check_driver_name, ROOT.child("driverName"))
    yield from _validate_parameters(obj.parameters, ROOT.child("parameters"))


def validate_classic_claim(obj: ClassicResourceClaim) -> FieldErrors:
    """Check a new classic claim, its metadata excluded."""
    return validate_classic_spec(obj.spec, _SPEC)


def validate_classic_spec(spec: ClassicClaimSpec, path: FieldPath) -> FieldErrors:
    """Check the spec of a classic claim, also inside a pod's template. The class need not exist."""
    yield from validate_name(spec.resource_class_name, check_dns_subdomain, path.child("resourceClassName"))
    yield from _validate_parameters(spec.parameters, path.child("parameters"))
    if spec.allocation_mode and spec.allocation_mode not in (IMMEDIATE, DELAYED):
        yield not_supported(path.child("allocationMode"), spec.allocation_mode, (IMMEDIATE, DELAYED))


def _validate_parameters(raw: msgspec.Raw, path: FieldPath) -> FieldErrors:
    """Check arbitrary JSON for the driver; it may be absent."""
    written = bytes(raw)
    if not written:
        return
    if len(written) > limits.OPAQUE_BYTES:
        yield too_long(path, limits.OPAQUE_BYTES)
    elif problem := find_json_error(written):
        yield invalid(path, OMITTED, problem)


def validate_classic_claim_update(new: ClassicResourceClaim, old: ClassicResourceClaim) -> FieldErrors:
    """Check that the spec does not change."""
    if not is_semantically_equal(new.spec, old.spec):
        yield invalid(_SPEC, new.spec, IMMUTABLE)


# --- status ---


def validate_classic_status_update(new: ClassicResourceClaim, old: ClassicResourceClaim) -> FieldErrors:
    """Check the transition from one status to the next."""
    deleting = new.metadata.deletion_timestamp is not None or old.metadata.deletion_timestamp is not None
    yield from _validate_phase_transition(new.status, old.status, deleting=deleting)
    after = new.status.phase or PENDING
    added = set(new.status.reserved_for) - set(old.status.reserved_for)
    if added and (deleting or after != ALLOCATED):
        why = "the claim is being deleted" if deleting else f"the claim is `{after}`, not `{ALLOCATED}`"
        yield forbidden(_STATUS.child("reservedFor"), f"new entries may not be added while {why}")


def _validate_phase_transition(
    new: ClassicClaimStatus, old: ClassicClaimStatus, *, deleting: bool
) -> FieldErrors:
    """Check whether a claim may go from its phase to the next."""
    before, after = old.phase or PENDING, new.phase or PENDING
    if before == after or before not in TRANSITIONS:
        return
    place, ways = _STATUS.child("phase"), TRANSITIONS[before]
    if deleting and before == ALLOCATED:
        ways = (*ways, PENDING)
    if after not in ways:
        allowed = " or ".join(f"`{phase}`" for phase in ways)
        yield invalid(place, new.phase, f"a claim that is `{before}` can only become {allowed}")
    elif after != ALLOCATED and set(new.reserved_for) & set(old.reserved_for):
        yield forbidden(place, f"the claim is in use, and stays `{before}` while `reservedFor` has entries")


def validate_classic_status(obj: ClassicResourceClaim) -> FieldErrors:
    """Check a status by itself."""
    status = obj.status
    if status.phase and status.phase not in PHASES:
        yield not_supported(_STATUS.child("phase"), status.phase, PHASES)
    if status.driver_name:
        yield from report_name_faults(check_driver_name(status.driver_name), _STATUS.child("driverName"))
    if status.available_on_nodes is not None:
        yield from validate_node_selector(status.available_on_nodes, _STATUS.child("availableOnNodes"))
    if status.scheduling is not None:
        yield from _validate_scheduling(status.scheduling, _STATUS.child("scheduling"))
    yield from _validate_users(status, _STATUS)


def _validate_users(status: ClassicClaimStatus, path: FieldPath) -> FieldErrors:
    limit, users, place = status.user_limit, status.reserved_for, path.child("reservedFor")
    if limit is not None and limit <= 0 and limit != UNLIMITED:
        text = f"must be greater than zero, or {UNLIMITED} for any number of users"
        yield invalid(path.child("userLimit"), limit, text)
        limit = None
    yield from validate_each(users, limits.CONSUMERS_PER_CLAIM, validate_owner_reference, place)
    if limit is not None and limit != UNLIMITED and len(users) > limit:
        yield too_many(place, len(users), limit)
    if len(users) <= limits.CONSUMERS_PER_CLAIM:
        yield from validate_distinct((user.uid for user in users), place)


def _validate_scheduling(item: SchedulingStatus, path: FieldPath) -> FieldErrors:
    scheduler, driver = item.scheduler, item.driver
    if scheduler.selected_node:
        place = path.child("scheduler", "selectedNode")
        yield from report_name_faults(check_dns_subdomain(scheduler.selected_node), place)
    yield from _validate_node_names(scheduler.potential_nodes, path.child("scheduler", "potentialNodes"))
    yield from _validate_node_names(driver.unsuitable_nodes, path.child("driver", "unsuitableNodes"))
    if driver.available_on_nodes is not None:
        yield from validate_node_selector(driver.available_on_nodes, path.child("driver", "availableOnNodes"))


def _validate_node_names(names: Sequence[str], path: FieldPath) -> FieldErrors:
    yield from validate_each(names, limits.NODES_PER_CLASSIC_LIST, _validate_node_name, path)
    if len(names) <= limits.NODES_PER_CLASSIC_LIST:
        yield from validate_distinct(names, path)


def _validate_node_name(name: str, path: FieldPath) -> FieldErrors:
    return validate_name(name, check_dns_subdomain, path)
