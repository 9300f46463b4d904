"""Rules of what a claim got: allocation, reservations, and what drivers report about its devices.

An allocation is judged when it is written and never again: it cannot change, and rules for new ones may have
grown stricter since. It can only be taken back whole.
"""

from __future__ import annotations

from functools import partial
from ipaddress import IPv6Interface, ip_interface
from typing import TypeAlias

import msgspec

from dray.api.fields import ROOT, Path, forbidden, invalid, required, too_long
from dray.api.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimStatus,
)
from dray.api.validation import limits
from dray.api.validation.conditions import conditions
from dray.api.validation.field_rules import (
    IMMUTABLE,
    Errors,
    binding_conditions,
    configuration,
    distinct,
    each,
    keyed,
    misnamed,
    named,
    node_selector,
    one_of,
    opaque,
    size,
    toleration,
)
from dray.api.validation.kinds.claim import RequestNames, reference, references, request_names
from dray.api.validation.semantic_equality import same
from dray.values.names import attribute_name, dns_label, driver_name, pool_name, uid

_STATUS = ROOT.field("status")
_SOURCES = ("FromClaim", "FromClass")
_CIDR = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"

Place: TypeAlias = tuple[str, str, str, str | None]
"""A device or a share of one: driver, pool, device, share id."""


def claim_status(obj: ResourceClaim) -> Errors:
    """What holds of a status by itself, whether it is new or stored; the allocation aside."""
    status, place = obj.status, _STATUS.field("reservedFor")
    if status.reserved_for:
        yield from each(status.reserved_for, limits.CONSUMERS_PER_CLAIM, _consumer, place)
        if len(status.reserved_for) <= limits.CONSUMERS_PER_CLAIM:
            yield from distinct((consumer.uid for consumer in status.reserved_for), place)
        if status.allocation is None:
            yield forbidden(place, "may not be specified when `allocated` is not set")
    if status.devices:
        yield from _device_statuses(status, _STATUS.field("devices"))


def claim_allocation(obj: ResourceClaim) -> Errors:
    """What holds of an allocation, given what the claim asks for."""
    allocation = obj.status.allocation
    if allocation is not None:
        yield from _allocation(allocation, request_names(obj.spec.devices), _STATUS.field("allocation"))


def claim_status_update(new: ResourceClaim, old: ResourceClaim) -> Errors:
    """What holds of the step from one status to the next. What is asked for is what is stored."""
    if old.status.allocation is None:
        yield from claim_allocation(msgspec.structs.replace(old, status=new.status))
    elif new.status.allocation is not None and not same(new.status.allocation, old.status.allocation):
        yield invalid(_STATUS.field("allocation"), new.status.allocation, IMMUTABLE)
    deleting = new.metadata.deletion_timestamp is not None or old.metadata.deletion_timestamp is not None
    if deleting and not set(new.status.reserved_for) <= set(old.status.reserved_for):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden(_STATUS.field("reservedFor"), text)


# --- reservations ---


def _consumer(consumer: ConsumerReference, path: Path) -> Errors:
    for field in ("resource", "name", "uid"):
        if not getattr(consumer, field):
            yield required(path.field(field))


# --- the allocation ---


def _allocation(allocation: AllocationResult, names: RequestNames, path: Path) -> Errors:
    devices = path.field("devices")
    judge_result = partial(_result, names=names)
    judge_config = partial(_configuration, names=names)
    results, config = allocation.devices.results, allocation.devices.config
    yield from each(results, limits.RESULTS_PER_ALLOCATION, judge_result, devices.field("results"))
    yield from each(config, limits.CONFIGS_PER_ALLOCATION, judge_config, devices.field("config"))
    if allocation.node_selector is not None:
        yield from node_selector(allocation.node_selector, path.field("nodeSelector"))


def _result(result: DeviceRequestAllocationResult, path: Path, *, names: RequestNames) -> Errors:
    yield from reference(result.request, path.field("request"), names=names)
    yield from _place(result, path)
    conditions, failures = result.binding_conditions, result.binding_failure_conditions
    if conditions or failures:
        yield from binding_conditions(conditions, failures, path)
    if result.tolerations:
        yield from each(result.tolerations, limits.TOLERATIONS, toleration, path.field("tolerations"))
    if result.consumed_capacity:
        yield from _consumed(result, path.field("consumedCapacity"))


def _place(item: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: Path) -> Errors:
    """Where a device is to be found: driver, pool, name; and which share of it."""
    yield from named(item.driver, driver_name, path.field("driver"))
    yield from named(item.pool, pool_name, path.field("pool"))
    yield from named(item.device, dns_label, path.field("device"))
    if item.share_id is not None:
        yield from misnamed(uid(item.share_id), path.field("shareID"))


def _consumed(result: DeviceRequestAllocationResult, path: Path) -> Errors:
    """Amounts taken from a shared device; a negative one would make capacity out of nothing."""
    yield from keyed(result.consumed_capacity, attribute_name, path)
    for name, amount in result.consumed_capacity.items():
        if amount.sign < 0:
            yield invalid(path.key(name), str(amount), "must be greater than or equal to 0")


def _configuration(config: DeviceAllocationConfiguration, path: Path, *, names: RequestNames) -> Errors:
    yield from one_of(config.source, _SOURCES, path.field("source"))
    yield from references(config.requests, path.field("requests"), names)
    yield from configuration(config.opaque, path)


# --- what drivers report ---


def _device_statuses(status: ResourceClaimStatus, path: Path) -> Errors:
    results = status.allocation.devices.results if status.allocation is not None else ()
    judge = partial(_device_status, allocated=frozenset(map(_identity, results)))
    yield from each(status.devices, limits.RESULTS_PER_ALLOCATION, judge, path)
    if len(status.devices) <= limits.RESULTS_PER_ALLOCATION:
        yield from distinct(map(_identity, status.devices), path)


def _identity(item: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> Place:
    return item.driver, item.pool, item.device, item.share_id


def _device_status(item: AllocatedDeviceStatus, path: Path, *, allocated: frozenset[Place]) -> Errors:
    yield from _place(item, path)
    if _identity(item) not in allocated:
        yield invalid(path, _identity(item), "must be an allocated device in the claim")
    if item.conditions:
        yield from conditions(item.conditions, limits.CONDITIONS_PER_DEVICE, path.field("conditions"))
    if bytes(item.data) not in (b"", b"null"):
        yield from opaque(item.data, limits.DEVICE_DATA_BYTES, path.field("data"))
    if item.network_data is not None:
        yield from _network(item.network_data, path.field("networkData"))


def _network(network: NetworkDeviceData, path: Path) -> Errors:
    if size(network.interface_name) > limits.INTERFACE_NAME_BYTES:
        yield too_long(path.field("interfaceName"), limits.INTERFACE_NAME_BYTES)
    if size(network.hardware_address) > limits.HARDWARE_ADDRESS_BYTES:
        yield too_long(path.field("hardwareAddress"), limits.HARDWARE_ADDRESS_BYTES)
    yield from each(network.ips, limits.ADDRESSES_PER_DEVICE, _address, path.field("ips"))
    if len(network.ips) <= limits.ADDRESSES_PER_DEVICE:
        yield from distinct(network.ips, path.field("ips"))


def _address(address: str, path: Path) -> Errors:
    """An address with the length of its network, in the one form everybody compares."""
    try:
        parsed = ip_interface(address)
    except ValueError:
        yield invalid(path, address, _CIDR)
        return
    mapped = isinstance(parsed, IPv6Interface) and parsed.ip.ipv4_mapped is not None
    if "/" not in address or "%" in address or mapped:
        yield invalid(path, address, _CIDR)
    elif str(parsed) != address:
        yield invalid(path, address, f'must be in canonical form ("{parsed}")')
