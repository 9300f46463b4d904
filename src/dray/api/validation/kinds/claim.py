"""Rules of what a claim asks for: requests and their alternatives, constraints, configuration.

Templates hold the same spec and share these rules. What a claim *got* is in `claimstatus`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from dray.api.fields import ROOT, Path, invalid, not_supported
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
from dray.api.validation import limits
from dray.api.validation.field_rules import (
    IMMUTABLE,
    Errors,
    configuration,
    distinct,
    each,
    exactly_one,
    keyed,
    misnamed,
    named,
    selector,
    toleration,
)
from dray.api.validation.semantic_equality import same
from dray.api.validation.validation_cache import Proven
from dray.values.cache_bounds import Bound
from dray.values.names import attribute_name, dns_label, dns_subdomain, fully_qualified_name

RequestNames: TypeAlias = Mapping[str, frozenset[str]]
"""The names of the requests of a claim, each with the names of its alternatives."""

_SPEC = ROOT.field("spec")
_DEVICES = _SPEC.field("devices")
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def claim(obj: ResourceClaim) -> Errors:
    """What holds of a new claim besides its metadata."""
    return device_claim(obj.spec.devices, _DEVICES)


def claim_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    """What somebody needs never changes, so there is nothing else to look at."""
    if not same(new.spec, old.spec):
        yield invalid(_SPEC, new.spec, IMMUTABLE)


def device_claim(devices: DeviceClaim, path: Path) -> Errors:
    """Requests, constraints and configuration."""
    written = _written(devices)
    if written is None or written not in ASKED:
        errors = [*_requests(devices.requests, path), *_constraints(devices, path)]
        yield from errors
        if written is not None and not errors:
            ASKED.add((written,))
    if devices.config:
        judge = partial(_configuration, names=request_names(devices))
        yield from each(devices.config, limits.CONFIGS_PER_CLAIM, judge, path.field("config"))


ASKED: Final = Proven[bytes](Bound("sound requests of claims", 1_024, "the process"))
"""What was asked for before, as it is written. The claims of a template all ask for the same.

Configuration has no part in it: it may hold bytes that are no JSON, which could be written so that they look
like something else.
"""

_LONGEST_REMEMBERED: Final = 4096


def _written(devices: DeviceClaim) -> bytes | None:
    """Requests and constraints as JSON, unless they are long, or no JSON can hold them."""
    try:
        written = ENCODER.encode((devices.requests, devices.constraints))
    except (TypeError, ValueError, OverflowError):
        return None
    return written if len(written) <= _LONGEST_REMEMBERED else None


# --- requests ---


def _requests(requests: Sequence[DeviceRequest], path: Path) -> Errors:
    place = path.field("requests")
    yield from each(requests, limits.REQUESTS_PER_CLAIM, _request, place)
    if len(requests) <= limits.REQUESTS_PER_CLAIM:
        yield from distinct((request.name for request in requests), place)


def _request(request: DeviceRequest, path: Path) -> Errors:
    if not request.name or dns_label(request.name):
        yield from named(request.name, dns_label, path.field("name"))
    exactly, alternatives = request.exactly, request.first_available
    if (exactly is None) is (not alternatives):
        yield from exactly_one({"exactly": exactly is not None, "firstAvailable": bool(alternatives)}, path)
    elif exactly is not None:
        yield from _ask(exactly, path.field("exactly"))
    else:
        place = path.field("firstAvailable")
        yield from each(alternatives, limits.ALTERNATIVES_PER_REQUEST, _subrequest, place)
        if len(alternatives) <= limits.ALTERNATIVES_PER_REQUEST:
            yield from distinct((alternative.name for alternative in alternatives), place)


def _subrequest(request: DeviceSubRequest, path: Path) -> Errors:
    if not request.name or dns_label(request.name):
        yield from named(request.name, dns_label, path.field("name"))
    yield from _ask(request, path)


def _ask(ask: ExactDeviceRequest | DeviceSubRequest, path: Path) -> Errors:
    """What an exact request and an alternative have in common."""
    if not ask.device_class_name or dns_subdomain(ask.device_class_name):
        yield from named(ask.device_class_name, dns_subdomain, path.field("deviceClassName"))
    if ask.selectors:
        yield from each(ask.selectors, limits.SELECTORS_PER_REQUEST, selector, path.field("selectors"))
    yield from _amount(ask.allocation_mode, ask.count, path)
    if ask.tolerations:
        yield from each(ask.tolerations, limits.TOLERATIONS, toleration, path.field("tolerations"))
    if ask.capacity is not None:
        yield from _capacity(ask.capacity, path.field("capacity", "requests"))


def _amount(mode: str, count: int, path: Path) -> Errors:
    if mode == EXACT_COUNT:
        if count <= 0:
            yield invalid(path.field("count"), count, "must be greater than zero")
        elif count > limits.LARGEST_COUNT:
            text = f"must not be greater than {limits.LARGEST_COUNT}"
            yield invalid(path.field("count"), count, text)
    elif mode == ALL:
        if count:
            text = f"must not be specified when allocationMode is '{ALL}'"
            yield invalid(path.field("count"), count, text)
    else:
        yield not_supported(path.field("allocationMode"), mode, (ALL, EXACT_COUNT))


def _capacity(capacity: CapacityRequirements, path: Path) -> Errors:
    yield from keyed(capacity.requests, attribute_name, path)
    for name, amount in capacity.requests.items():
        if amount.sign < 0:
            yield invalid(path.key(name), str(amount), "must be greater than or equal to 0")


# --- references to requests ---


def request_names(devices: DeviceClaim) -> RequestNames:
    """What a constraint, a configuration or a result may refer to."""
    return {
        request.name: frozenset(alternative.name for alternative in request.first_available)
        for request in devices.requests
    }


def reference(name: str, path: Path, *, names: RequestNames) -> Errors:
    """`request`, or `request/alternative`, of the same claim."""
    request, slash, alternative = name.partition("/")
    if "/" in alternative:
        yield invalid(path, name, _REFERENCE)
        return
    for part in (request, alternative) if slash else (request,):
        yield from misnamed(dns_label(part), path)
    if request not in names or (slash and alternative not in names[request]):
        yield invalid(path, name, _REFERENCE)


def references(requests: Sequence[str], path: Path, names: RequestNames) -> Errors:
    """The requests that a constraint or a configuration is about; none stands for all."""
    yield from each(requests, limits.REQUESTS_PER_CLAIM, partial(reference, names=names), path)
    if len(requests) <= limits.REQUESTS_PER_CLAIM:
        yield from distinct(requests, path)


# --- constraints and configuration ---


def _constraints(devices: DeviceClaim, path: Path) -> Errors:
    if devices.constraints:
        judge = partial(_constraint, names=request_names(devices))
        yield from each(devices.constraints, limits.CONSTRAINTS_PER_CLAIM, judge, path.field("constraints"))


def _constraint(constraint: DeviceConstraint, path: Path, *, names: RequestNames) -> Errors:
    yield from references(constraint.requests, path.field("requests"), names)
    choices = {
        "matchAttribute": constraint.match_attribute,
        "distinctAttribute": constraint.distinct_attribute,
    }
    yield from exactly_one({field: name is not None for field, name in choices.items()}, path)
    for field, name in choices.items():
        if name is not None and (faults := fully_qualified_name(name)):
            yield from misnamed(faults, path.field(field))


def _configuration(config: DeviceClaimConfiguration, path: Path, *, names: RequestNames) -> Errors:
    yield from references(config.requests, path.field("requests"), names)
    yield from configuration(config.opaque, path)
