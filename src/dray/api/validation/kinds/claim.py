"""Validation of a claim's spec: requests and their alternatives, constraints, configuration.

Templates hold the same spec and share these rules. The status of a claim is in `claim_status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from dray.api import limits
from dray.api.fields import ROOT, FieldPath, invalid, not_supported
from dray.api.json_text import ENCODER
from dray.api.resource import (
    CapacityRequirements,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.api.resource.claim import ALL, EXACT_COUNT
from dray.api.validation.field_rules import (
    IMMUTABLE,
    FieldErrors,
    report_name_faults,
    validate_distinct,
    validate_each,
    validate_exactly_one,
    validate_keys,
    validate_name,
    validate_opaque_config,
    validate_selector,
    validate_toleration,
)
from dray.api.validation.semantic_equality import is_semantically_equal
from dray.api.validation.validation_cache import ValidValueCache
from dray.values.cache_bounds import CacheBound
from dray.values.names import (
    check_attribute_name,
    check_dns_label,
    check_dns_subdomain,
    check_fully_qualified_name,
)

RequestNames: TypeAlias = Mapping[str, frozenset[str]]
"""The names of the requests of a claim, each with the names of its alternatives."""

_SPEC = ROOT.child("spec")
_DEVICES = _SPEC.child("devices")
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def validate_claim(obj: ResourceClaim) -> FieldErrors:
    """Check a new claim, its metadata excluded."""
    return validate_device_claim(obj.spec.devices, _DEVICES)


def validate_claim_update(new: ResourceClaim, old: ResourceClaim) -> FieldErrors:
    """Check that the spec does not change; there is nothing else to check."""
    if not is_semantically_equal(new.spec, old.spec):
        yield invalid(_SPEC, new.spec, IMMUTABLE)


def validate_device_claim(devices: DeviceClaim, path: FieldPath) -> FieldErrors:
    """Check requests, constraints and configuration."""
    written = _encode_requests(devices)
    if written is None or written not in VALID_REQUESTS:
        errors = [*_validate_requests(devices.requests, path), *_validate_constraints(devices, path)]
        yield from errors
        if written is not None and not errors:
            VALID_REQUESTS.add((written,))
    if devices.config:
        rule = partial(_validate_config, names=collect_request_names(devices))
        yield from validate_each(devices.config, limits.CONFIGS_PER_CLAIM, rule, path.child("config"))


VALID_REQUESTS: Final = ValidValueCache[bytes](CacheBound("valid requests of claims", 1_024, "the process"))
"""Encoded requests that were found valid. All claims of a template have the same.

Configuration is no part of it: it may hold bytes that are not JSON, which could be written to look like
something else.
"""

_MAX_CACHED_BYTES: Final = 4096


def _encode_requests(devices: DeviceClaim) -> bytes | None:
    """Encode requests and constraints as JSON; None when they are long, or JSON cannot hold them."""
    try:
        written = ENCODER.encode((devices.requests, devices.constraints))
    except (TypeError, ValueError, OverflowError):
        return None
    return written if len(written) <= _MAX_CACHED_BYTES else None


# --- requests ---


def _validate_requests(requests: Sequence[DeviceRequest], path: FieldPath) -> FieldErrors:
    place = path.child("requests")
    yield from validate_each(requests, limits.REQUESTS_PER_CLAIM, _validate_request, place)
    if len(requests) <= limits.REQUESTS_PER_CLAIM:
        yield from validate_distinct((request.name for request in requests), place)


def _validate_request(request: DeviceRequest, path: FieldPath) -> FieldErrors:
    if faults := check_dns_label(request.name):
        yield from report_name_faults(faults, path.child("name"))
    exactly, alternatives = request.exactly, request.first_available
    if (exactly is None) is (not alternatives):
        yield from validate_exactly_one(
            {"exactly": exactly is not None, "firstAvailable": bool(alternatives)}, path
        )
    elif exactly is not None:
        yield from _validate_request_fields(exactly, path.child("exactly"))
    else:
        place = path.child("firstAvailable")
        yield from validate_each(alternatives, limits.ALTERNATIVES_PER_REQUEST, _validate_subrequest, place)
        if len(alternatives) <= limits.ALTERNATIVES_PER_REQUEST:
            yield from validate_distinct((alternative.name for alternative in alternatives), place)


def _validate_subrequest(request: DeviceSubRequest, path: FieldPath) -> FieldErrors:
    if faults := check_dns_label(request.name):
        yield from report_name_faults(faults, path.child("name"))
    yield from _validate_request_fields(request, path)


def _validate_request_fields(request: ExactDeviceRequest | DeviceSubRequest, path: FieldPath) -> FieldErrors:
    """Check the fields that an exact request and an alternative share."""
    if not request.device_class_name or check_dns_subdomain(request.device_class_name):
        yield from validate_name(
            request.device_class_name, check_dns_subdomain, path.child("deviceClassName")
        )
    if request.selectors:
        yield from validate_each(
            request.selectors, limits.SELECTORS_PER_REQUEST, validate_selector, path.child("selectors")
        )
    yield from _validate_count(request.allocation_mode, request.count, path)
    if request.tolerations:
        yield from validate_each(
            request.tolerations, limits.TOLERATIONS, validate_toleration, path.child("tolerations")
        )
    if request.capacity is not None:
        yield from _validate_capacity_requests(request.capacity, path.child("capacity", "requests"))


def _validate_count(mode: str, count: int, path: FieldPath) -> FieldErrors:
    if mode == EXACT_COUNT:
        if count <= 0:
            yield invalid(path.child("count"), count, "must be greater than zero")
        elif count > limits.MAX_COUNT:
            text = f"must not be greater than {limits.MAX_COUNT}"
            yield invalid(path.child("count"), count, text)
    elif mode == ALL:
        if count:
            text = f"must not be specified when allocationMode is '{ALL}'"
            yield invalid(path.child("count"), count, text)
    else:
        yield not_supported(path.child("allocationMode"), mode, (ALL, EXACT_COUNT))


def _validate_capacity_requests(capacity: CapacityRequirements, path: FieldPath) -> FieldErrors:
    yield from validate_keys(capacity.requests, check_attribute_name, path)
    for name, amount in capacity.requests.items():
        if amount.sign < 0:
            yield invalid(path.key(name), str(amount), "must be greater than or equal to 0")


# --- references to requests ---


def collect_request_names(devices: DeviceClaim) -> RequestNames:
    """Collect the names that a constraint, a configuration or a result may refer to."""
    return {
        request.name: frozenset(alternative.name for alternative in request.first_available)
        for request in devices.requests
    }


def validate_request_reference(name: str, path: FieldPath, *, names: RequestNames) -> FieldErrors:
    """Check a reference to a request of the same claim: `request`, or `request/subrequest`."""
    request, slash, alternative = name.partition("/")
    if "/" in alternative:
        yield invalid(path, name, _REFERENCE)
        return
    for part in (request, alternative) if slash else (request,):
        yield from report_name_faults(check_dns_label(part), path)
    if request not in names or (slash and alternative not in names[request]):
        yield invalid(path, name, _REFERENCE)


def validate_request_references(requests: Sequence[str], path: FieldPath, names: RequestNames) -> FieldErrors:
    """Check the requests that a constraint or a configuration applies to; none means all."""
    yield from validate_each(
        requests, limits.REQUESTS_PER_CLAIM, partial(validate_request_reference, names=names), path
    )
    if len(requests) <= limits.REQUESTS_PER_CLAIM:
        yield from validate_distinct(requests, path)


# --- constraints and configuration ---


def _validate_constraints(devices: DeviceClaim, path: FieldPath) -> FieldErrors:
    if devices.constraints:
        rule = partial(_validate_constraint, names=collect_request_names(devices))
        yield from validate_each(
            devices.constraints, limits.CONSTRAINTS_PER_CLAIM, rule, path.child("constraints")
        )


def _validate_constraint(
    constraint: DeviceConstraint, path: FieldPath, *, names: RequestNames
) -> FieldErrors:
    yield from validate_request_references(constraint.requests, path.child("requests"), names)
    choices = {
        "matchAttribute": constraint.match_attribute,
        "distinctAttribute": constraint.distinct_attribute,
    }
    yield from validate_exactly_one({field: name is not None for field, name in choices.items()}, path)
    for field, name in choices.items():
        if name is not None and (faults := check_fully_qualified_name(name)):
            yield from report_name_faults(faults, path.child(field))


def _validate_config(
    config: DeviceClaimConfiguration, path: FieldPath, *, names: RequestNames
) -> FieldErrors:
    yield from validate_request_references(config.requests, path.child("requests"), names)
    yield from validate_opaque_config(config.opaque, path)
