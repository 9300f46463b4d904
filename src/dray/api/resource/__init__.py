"""The objects of `resource.k8s.io`: devices in slices, classes, claims, templates, taint rules.

These are the internal form (`v1`) with every field of the specification and of the gates; older wire
versions never get this far. Only shapes and small readings of one value live here: defaults, gates
and rules have files of their own beside this package.
"""

from dray.api.resource.allocation import (
    AllocatedDeviceStatus,
    AllocationResult,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceToleration,
    NetworkDeviceData,
    OpaqueDeviceConfiguration,
    ResourceClaimStatus,
)
from dray.api.resource.claim import (
    CapacityRequirements,
    CELDeviceSelector,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dray.api.resource.device import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ListAttribute,
)
from dray.api.resource.device_class import DeviceClass, DeviceClassConfiguration, DeviceClassSpec
from dray.api.resource.slice import ResourcePool, ResourceSlice, ResourceSliceSpec
from dray.api.resource.taint_rule import (
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
)
from dray.api.resource.template import ResourceClaimTemplate, ResourceClaimTemplateSpec

__all__ = [
    "AllocatedDeviceStatus",
    "AllocationResult",
    "CELDeviceSelector",
    "CapacityRequestPolicy",
    "CapacityRequestPolicyRange",
    "CapacityRequirements",
    "ConsumerReference",
    "Counter",
    "CounterSet",
    "Device",
    "DeviceAllocationConfiguration",
    "DeviceAllocationResult",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClaimConfiguration",
    "DeviceClass",
    "DeviceClassConfiguration",
    "DeviceClassSpec",
    "DeviceConstraint",
    "DeviceCounterConsumption",
    "DeviceRequest",
    "DeviceRequestAllocationResult",
    "DeviceSelector",
    "DeviceSubRequest",
    "DeviceTaint",
    "DeviceTaintRule",
    "DeviceTaintRuleSpec",
    "DeviceTaintRuleStatus",
    "DeviceTaintSelector",
    "DeviceToleration",
    "ExactDeviceRequest",
    "ListAttribute",
    "NetworkDeviceData",
    "OpaqueDeviceConfiguration",
    "ResourceClaim",
    "ResourceClaimSpec",
    "ResourceClaimStatus",
    "ResourceClaimTemplate",
    "ResourceClaimTemplateSpec",
    "ResourcePool",
    "ResourceSlice",
    "ResourceSliceSpec",
]
