"""Validation of a claim's status: allocation, reservations, and what drivers report about devices.

An allocation is validated when it is written and never again: it cannot change, and rules for new ones may
have become stricter since. It can only be removed as a whole.
"""

from __future__ import annotations

from functools import partial
from ipaddress import IPv6Interface, ip_interface
from typing import TypeAlias

import msgspec

from dray.api import limits
from dray.api.fields import ROOT, FieldPath, forbidden, invalid, required, too_long
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
from dray.api.validation.conditions import validate_conditions
from dray.api.validation.field_rules import (
    IMMUTABLE,
    FieldErrors,
    report_name_faults,
    validate_binding_conditions,
    validate_distinct,
    validate_each,
    validate_keys,
    validate_name,
    validate_node_selector,
    validate_one_of,
    validate_opaque,
    validate_opaque_config,
    validate_toleration,
)
from dray.api.validation.kinds.claim import (
    RequestNames,
    collect_request_names,
    validate_request_reference,
    validate_request_references,
)
from dray.api.validation.semantic_equality import is_semantically_equal
from dray.values.names import (
    check_attribute_name,
    check_dns_label,
    check_driver_name,
    check_pool_name,
    check_uid,
    count_bytes,
)

_STATUS = ROOT.child("status")
_SOURCES = ("FromClaim", "FromClass")
_CIDR = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"

DeviceIdentity: TypeAlias = tuple[str, str, str, str | None]
"""A device or a share of one: driver, pool, device, share id."""


def validate_claim_status(obj: ResourceClaim) -> FieldErrors:
    """Check a status by itself, new or stored; the allocation excluded."""
    status, place = obj.status, _STATUS.child("reservedFor")
    if status.reserved_for:
        yield from validate_each(status.reserved_for, limits.CONSUMERS_PER_CLAIM, _validate_consumer, place)
        if len(status.reserved_for) <= limits.CONSUMERS_PER_CLAIM:
            yield from validate_distinct((consumer.uid for consumer in status.reserved_for), place)
        if status.allocation is None:
            yield forbidden(place, "may not be specified when `allocated` is not set")
    if status.devices:
        yield from _validate_device_statuses(status, _STATUS.child("devices"))


def validate_claim_allocation(obj: ResourceClaim) -> FieldErrors:
    """Check an allocation against the claim's spec."""
    allocation = obj.status.allocation
    if allocation is not None:
        yield from _validate_allocation(
            allocation, collect_request_names(obj.spec.devices), _STATUS.child("allocation")
        )


def validate_claim_status_update(new: ResourceClaim, old: ResourceClaim) -> FieldErrors:
    """Check the transition from one status to the next. The spec is the stored one."""
    if old.status.allocation is None:
        yield from validate_claim_allocation(msgspec.structs.replace(old, status=new.status))
    elif new.status.allocation is not None and not is_semantically_equal(
        new.status.allocation, old.status.allocation
    ):
        yield invalid(_STATUS.child("allocation"), new.status.allocation, IMMUTABLE)
    deleting = new.metadata.deletion_timestamp is not None or old.metadata.deletion_timestamp is not None
    if deleting and not set(new.status.reserved_for) <= set(old.status.reserved_for):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden(_STATUS.child("reservedFor"), text)


# --- reservations ---


def _validate_consumer(consumer: ConsumerReference, path: FieldPath) -> FieldErrors:
    for field in ("resource", "name", "uid"):
        if not getattr(consumer, field):
            yield required(path.child(field))


# --- the allocation ---


def _validate_allocation(allocation: AllocationResult, names: RequestNames, path: FieldPath) -> FieldErrors:
    devices = path.child("devices")
    judge_result = partial(_validate_result, names=names)
    judge_config = partial(_validate_config, names=names)
    results, config = allocation.devices.results, allocation.devices.config
    yield from validate_each(results, limits.RESULTS_PER_ALLOCATION, judge_result, devices.child("results"))
    yield from validate_each(config, limits.CONFIGS_PER_ALLOCATION, judge_config, devices.child("config"))
    if allocation.node_selector is not None:
        yield from validate_node_selector(allocation.node_selector, path.child("nodeSelector"))


def _validate_result(
    result: DeviceRequestAllocationResult, path: FieldPath, *, names: RequestNames
) -> FieldErrors:
    yield from validate_request_reference(result.request, path.child("request"), names=names)
    yield from _validate_device_identity(result, path)
    conditions, failures = result.binding_conditions, result.binding_failure_conditions
    if conditions or failures:
        yield from validate_binding_conditions(conditions, failures, path)
    if result.tolerations:
        yield from validate_each(
            result.tolerations, limits.TOLERATIONS, validate_toleration, path.child("tolerations")
        )
    if result.consumed_capacity:
        yield from _validate_consumed_capacity(result, path.child("consumedCapacity"))


def _validate_device_identity(
    item: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: FieldPath
) -> FieldErrors:
    """Check driver, pool, name and share id of a device."""
    yield from validate_name(item.driver, check_driver_name, path.child("driver"))
    yield from validate_name(item.pool, check_pool_name, path.child("pool"))
    yield from report_name_faults(check_dns_label(item.device), path.child("device"))
    if item.share_id is not None:
        yield from report_name_faults(check_uid(item.share_id), path.child("shareID"))


def _validate_consumed_capacity(result: DeviceRequestAllocationResult, path: FieldPath) -> FieldErrors:
    """Check amounts taken from a shared device; a negative one would create capacity."""
    yield from validate_keys(result.consumed_capacity, check_attribute_name, path)
    for name, amount in result.consumed_capacity.items():
        if amount.sign < 0:
            yield invalid(path.key(name), str(amount), "must be greater than or equal to 0")


def _validate_config(
    config: DeviceAllocationConfiguration, path: FieldPath, *, names: RequestNames
) -> FieldErrors:
    yield from validate_one_of(config.source, _SOURCES, path.child("source"))
    yield from validate_request_references(config.requests, path.child("requests"), names)
    yield from validate_opaque_config(config.opaque, path)


# --- device status from drivers ---


def _validate_device_statuses(status: ResourceClaimStatus, path: FieldPath) -> FieldErrors:
    results = status.allocation.devices.results if status.allocation is not None else ()
    rule = partial(_validate_device_status, allocated=frozenset(map(_get_device_identity, results)))
    yield from validate_each(status.devices, limits.RESULTS_PER_ALLOCATION, rule, path)
    if len(status.devices) <= limits.RESULTS_PER_ALLOCATION:
        yield from validate_distinct(map(_get_device_identity, status.devices), path)


def _get_device_identity(item: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> DeviceIdentity:
    return item.driver, item.pool, item.device, item.share_id


def _validate_device_status(
    item: AllocatedDeviceStatus, path: FieldPath, *, allocated: frozenset[DeviceIdentity]
) -> FieldErrors:
    yield from _validate_device_identity(item, path)
    if _get_device_identity(item) not in allocated:
        yield invalid(path, _get_device_identity(item), "must be an allocated device in the claim")
    if item.conditions:
        yield from validate_conditions(
            item.conditions, limits.CONDITIONS_PER_DEVICE, path.child("conditions")
        )
    if bytes(item.data) not in (b"", b"null"):
        yield from validate_opaque(item.data, limits.DEVICE_DATA_BYTES, path.child("data"))
    if item.network_data is not None:
        yield from _validate_network(item.network_data, path.child("networkData"))


def _validate_network(network: NetworkDeviceData, path: FieldPath) -> FieldErrors:
    if count_bytes(network.interface_name) > limits.INTERFACE_NAME_BYTES:
        yield too_long(path.child("interfaceName"), limits.INTERFACE_NAME_BYTES)
    if count_bytes(network.hardware_address) > limits.HARDWARE_ADDRESS_BYTES:
        yield too_long(path.child("hardwareAddress"), limits.HARDWARE_ADDRESS_BYTES)
    yield from validate_each(network.ips, limits.ADDRESSES_PER_DEVICE, _validate_address, path.child("ips"))
    if len(network.ips) <= limits.ADDRESSES_PER_DEVICE:
        yield from validate_distinct(network.ips, path.child("ips"))


def _validate_address(address: str, path: FieldPath) -> FieldErrors:
    """Check an address with its prefix length, in canonical form, so that addresses can be compared."""
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
