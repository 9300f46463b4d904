"""Field documentation of claims, templates and device classes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.resource import (
    AllocatedDeviceStatus,
    AllocationResult,
    CapacityRequirements,
    CELDeviceSelector,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    NetworkDeviceData,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)

_OPAQUE = "Parameters for one driver, in a form that only this driver understands."
_SELECTORS = "Criteria a device must meet, all of them. At most 32."
_MODE = (
    "How many devices are wanted. `ExactCount` (the default) wants as many as `count` says. `All` wants "
    "every matching device that the node can reach, at least one, and fails when one of them is taken."
)
_COUNT = "How many devices are wanted in the mode `ExactCount`; one when nothing is said. Not used by `All`."
_CLASS = (
    "The name of the DeviceClass; its selectors must hold too, and its configuration comes along. Required."
)
_TOLERATIONS = (
    "Taints that do not keep devices away from this request. A device with a taint of effect `NoSchedule` or "
    "`NoExecute` is only taken when a toleration matches it. At most 16."
)
_CAPACITY = (
    "How much of its capacities each device must provide. Of a device that several may share, this much is "
    "set aside; what is not asked for follows the device's policy."
)
_DRIVER = "The name of the driver, a DNS subdomain such as `gpu.example.com`."
_POOL = "The pool the device belongs to; driver, pool and device together identify a device."
_SHARE = "Identifies a share of a device that several claims share."

CLAIMS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        ResourceClaim: {
            "spec": "What is needed. It never changes once the claim exists.",
            "status": "The allocation of the claim and its consumers; written by the scheduler, "
            "controllers and drivers.",
        },
        ResourceClaimSpec: {"devices": "Which devices are needed."},
        ResourceClaimTemplate: {
            "spec": "What each claim made from this template will be. It never changes.",
        },
        ResourceClaimTemplateSpec: {
            "metadata": "Labels and annotations that each claim gets; nothing else may be set here.",
            "spec": "The spec that each claim gets, unchanged.",
        },
        DeviceClaim: {
            "requests": "What is needed; all requests must be satisfied. At most 32.",
            "constraints": "Rules that the allocated devices must satisfy together. At most 32.",
            "config": "Configuration for the drivers of the devices. It does not influence the "
            "allocation. At most 32.",
        },
        DeviceRequest: {
            "name": "A DNS label by which containers, constraints and configuration refer to this request. "
            "Required, and unique in the claim.",
            "exactly": "A request without alternatives. Either this or `firstAvailable` must be set.",
            "firstAvailable": "Alternatives in order of preference; the first that can be satisfied is used. "
            "Either this or `exactly` must be set. At most 8.",
        },
        ExactDeviceRequest: {
            "deviceClassName": _CLASS,
            "selectors": _SELECTORS,
            "allocationMode": _MODE,
            "count": _COUNT,
            "adminAccess": "Access for monitoring devices, also those in use by others. Allowed only in "
            'namespaces labelled `resource.kubernetes.io/admin-access: "true"`; such a claim makes no device '
            "unavailable to others.",
            "tolerations": _TOLERATIONS,
            "capacity": _CAPACITY,
        },
        DeviceSubRequest: {
            "name": "A DNS label, unique among the alternatives. Other fields refer to "
            "it as `request/subrequest`. Required.",
            "deviceClassName": _CLASS,
            "selectors": _SELECTORS,
            "allocationMode": _MODE,
            "count": _COUNT,
            "tolerations": _TOLERATIONS,
            "capacity": _CAPACITY,
        },
        DeviceSelector: {"cel": "A CEL expression about the device. Required."},
        CELDeviceSelector: {
            "expression": "True for a device that is suitable. It sees `device.driver`, "
            "`device.attributes[domain].name`, `device.capacity[domain].name` and "
            "`device.allowMultipleAllocations`. Reading an attribute that the device does not have is an "
            'error, so test first: `"x" in device.attributes[domain]`. At most 10 Ki long, and limited in '
            "cost.",
        },
        CapacityRequirements: {
            "requests": "An amount for each capacity, by its name: `memory: 10Gi`. A device that has less, "
            "or lacks the capacity, is not taken.",
        },
        DeviceConstraint: {
            "requests": "The requests whose devices must satisfy the rule, by name or as "
            "`request/subrequest`; all requests when empty.",
            "matchAttribute": "An attribute, with its domain, that must have the same value on all these "
            "devices. A device without it is not chosen.",
            "distinctAttribute": "An attribute, with its domain, that must have a different value on each of "
            "these devices.",
        },
        DeviceClaimConfiguration: {
            "requests": "The requests this applies to, by name or as `request/subrequest`; all when empty.",
            "opaque": _OPAQUE,
        },
        OpaqueDeviceConfiguration: {
            "driver": "The driver that understands the parameters; others ignore them. Required.",
            "parameters": "Any JSON object; usually with `apiVersion` and `kind` of the driver's own. At "
            "most 10 Ki. Required.",
        },
        DeviceToleration: {
            "key": "The key of the taint; empty matches every key and needs the operator `Exists`.",
            "operator": "`Equal` (the default) compares the value, `Exists` accepts any.",
            "value": "The value of the taint; empty when the operator is `Exists`.",
            "effect": "The effect of the taint, `NoSchedule` or `NoExecute`; empty matches every effect.",
            "tolerationSeconds": "How long a taint of effect `NoExecute` is tolerated before pods are "
            "evicted; without it, forever.",
        },
        DeviceClass: {
            "spec": "What a device must be to belong to the class, and how it is set up. It may change; "
            "claims that are allocated keep what they got.",
        },
        DeviceClassSpec: {
            "selectors": "Criteria that every device taken through the class meets, all of them. At most 32.",
            "config": "Configuration for every device taken through the class. At most 32.",
        },
        DeviceClassConfiguration: {"opaque": _OPAQUE},
        ResourceClaimStatus: {
            "allocation": "The devices that were chosen. Absent while the claim waits for them.",
            "reservedFor": "Consumers of the devices, usually pods; the devices are released only when none "
            "is left. At most 256.",
            "devices": "What drivers report about the devices of this claim.",
        },
        AllocationResult: {
            "devices": "The devices and their configuration.",
            "nodeSelector": "The nodes where the devices can be used; every node when absent.",
            "allocationTimestamp": "When the devices were allocated, where that matters.",
        },
        DeviceAllocationResult: {
            "results": "One entry for each device or share. At most 32.",
            "config": "All configuration of classes and claim that concerns these devices. At most 64.",
        },
        DeviceRequestAllocationResult: {
            "request": "The request this device was chosen for, as `request/subrequest` for an alternative.",
            "driver": _DRIVER,
            "pool": _POOL,
            "device": "The name of the device in its pool.",
            "adminAccess": "Whether this is access for monitoring, which does not make the device "
            "unavailable.",
            "tolerations": "The tolerations of the request, as they were when the device was chosen.",
            "bindingConditions": "Conditions that the driver must report as true before the pod is bound "
            "to the node. Copied from the device.",
            "bindingFailureConditions": "Conditions that, once true, mean that the device cannot be made "
            "ready and another must be found. Copied from the device.",
            "shareID": _SHARE,
            "consumedCapacity": "How much of each capacity this share takes, after rounding by the device's "
            "policy. Only for devices that several may share.",
        },
        DeviceAllocationConfiguration: {
            "source": "Where this comes from: `FromClass` or `FromClaim`.",
            "requests": "The requests this applies to; all when empty.",
            "opaque": _OPAQUE,
        },
        ConsumerReference: {
            "apiGroup": "The API group of the consumer; empty for the core group.",
            "resource": "The resource of the consumer, usually `pods`.",
            "name": "The name of the consumer, in the namespace of the claim.",
            "uid": "The uid of the consumer; a later one of the same name is another consumer.",
        },
        AllocatedDeviceStatus: {
            "driver": _DRIVER,
            "pool": _POOL,
            "device": "The name of the device in its pool.",
            "shareID": _SHARE,
            "conditions": "Conditions of the device; `Ready` means that it is set up. At most 8.",
            "data": "Data of the driver's own. At most 10 Ki.",
            "networkData": "The network interface of the device.",
        },
        NetworkDeviceData: {
            "interfaceName": "The name of the interface in the pod. At most 256 characters.",
            "ips": "Addresses of the interface with their prefix, such as `192.0.2.5/24`. At most 16.",
            "hardwareAddress": "The hardware address, such as a MAC. At most 128 characters.",
        },
    }
)
