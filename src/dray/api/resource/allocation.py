"""Status of a claim: allocation results, reservations, and device status from drivers."""

from __future__ import annotations

import msgspec

from dray.api.meta import (
    NO_OPAQUE,
    ApiStruct,
    CompositeApiStruct,
    Condition,
    Int64,
    Timestamp,
    normalize_opaque,
)
from dray.values.node_selectors import NodeSelector
from dray.values.quantity import Quantity


class OpaqueDeviceConfiguration(ApiStruct, frozen=True):
    """Parameters that only the driver understands, stored as written."""

    driver: str = ""
    parameters: msgspec.Raw = NO_OPAQUE

    def __post_init__(self) -> None:
        normalize_opaque(self, "parameters")


class DeviceToleration(ApiStruct, frozen=True):
    """Tolerates taints, so that they do not keep devices away from a request."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class DeviceRequestAllocationResult(ApiStruct, frozen=True):
    """One device, or one share of a device, allocated to a request (or `request/subrequest`)."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfiguration(ApiStruct, frozen=True):
    """Configuration for the driver, and where it came from."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True):
    """All devices of an allocation and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(CompositeApiStruct, frozen=True):
    """An allocation, with the nodes where it can be used."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Timestamp | None = None


class ConsumerReference(ApiStruct, frozen=True):
    """A consumer that may use the claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(ApiStruct, frozen=True):
    """What a network driver reports about an interface."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True):
    """What a driver reports about one allocated device or share."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: msgspec.Raw = NO_OPAQUE
    network_data: NetworkDeviceData | None = None

    def __post_init__(self) -> None:
        normalize_opaque(self, "data")


class ResourceClaimStatus(ApiStruct, frozen=True):
    """The allocation, its consumers and the state of its devices."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()
