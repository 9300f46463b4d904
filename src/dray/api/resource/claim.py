"""Claim: the devices a workload needs (spec) and got (status)."""

from __future__ import annotations

from dray.api.meta import ApiStruct, CompositeApiStruct, Int64, ObjectMeta, always_encode
from dray.api.resource.allocation import DeviceToleration, OpaqueDeviceConfiguration, ResourceClaimStatus
from dray.values.quantity import Quantity

EXACT_COUNT = "ExactCount"
ALL = "All"


class CELDeviceSelector(ApiStruct, frozen=True):
    """A CEL expression over `device` that must be true."""

    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True):
    """One criterion a device must meet."""

    cel: CELDeviceSelector | None = None


class CapacityRequirements(ApiStruct, frozen=True):
    """How much of which capacity each device must provide."""

    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(ApiStruct, frozen=True):
    """A request without alternatives."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(ApiStruct, frozen=True):
    """One alternative of a request; like an exact one, but named and without admin access.

    A type of its own, not a variant of `ExactDeviceRequest`: the two evolve separately.
    """

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(ApiStruct, frozen=True):
    """A named request: either exactly this, or the first available of these."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(ApiStruct, frozen=True):
    """A rule across the devices of several requests."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True):
    """Configuration for the devices of some requests, or of all when none is named."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True):
    """Requests, constraints across them, and configuration."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(CompositeApiStruct, frozen=True):
    """What is needed; it never changes."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(CompositeApiStruct, frozen=True):
    """The devices a workload needs, and those it got."""

    api_version: str = always_encode("resource.k8s.io/v1")
    kind: str = always_encode("ResourceClaim")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
