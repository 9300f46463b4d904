"""Field documentation of slices, devices and taint rules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
    ListAttribute,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

_ONE_OF = "Exactly one of `nodeName`, `nodeSelector`, `allNodes` and `perDeviceNodeSelection` must be set."
_ONE_EACH = "Only with `perDeviceNodeSelection`; exactly one of the three must then be set."

SLICES: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        ResourceSlice: {
            "spec": "The devices or shared counters of this slice, as their driver publishes them.",
        },
        ResourceSliceSpec: {
            "driver": "The name of the driver that publishes the slice, a DNS subdomain. It never changes, "
            "and slices can be listed by it.",
            "pool": "The pool this slice is a part of.",
            "nodeName": f"The one node that reaches the devices. It never changes. {_ONE_OF}",
            "nodeSelector": f"The nodes that reach the devices, in exactly one term. {_ONE_OF}",
            "allNodes": f"Every node reaches the devices. {_ONE_OF}",
            "devices": "Devices of the pool. At most 128, or 64 when one of them has taints, draws from "
            "counters or has attributes that are lists. Not together with `sharedCounters`.",
            "perDeviceNodeSelection": f"Each device selects the nodes that reach it. {_ONE_OF}",
            "sharedCounters": "Budgets that devices of the pool draw from. At most 8. Not together with "
            "`devices`.",
            "priority": "Within the pool, slices of a higher priority are tried first; zero where it is "
            "absent.",
        },
        ResourcePool: {
            "name": "The name of the pool, often that of the node. One or more DNS subdomains with slashes "
            "between them. It never changes.",
            "generation": "Incremented whenever the driver changes the pool. Only slices of the highest "
            "generation count.",
            "resourceSliceCount": "How many slices of this generation the pool has; until all are there "
            "the pool is incomplete and is not used.",
            "priority": "Pools of a higher priority are tried first; zero where it is absent.",
        },
        Device: {
            "name": "A DNS label that is unique in the pool. Required.",
            "attributes": "Attributes of the device, by name; a name without a domain belongs to the "
            "driver's own. At most 32 together with the capacities.",
            "capacity": "Amounts the device has, by name. At most 32 together with the attributes.",
            "consumesCounters": "What the device draws from the counter sets of its pool while it is "
            "allocated. At most 2 sets.",
            "nodeName": f"The one node that reaches the device. {_ONE_EACH}",
            "nodeSelector": f"The nodes that reach the device, in exactly one term. {_ONE_EACH}",
            "allNodes": f"Every node reaches the device. {_ONE_EACH}",
            "taints": "Reasons not to use the device. At most 16.",
            "bindsToNode": "An allocation with this device is bound to the node it was made for.",
            "bindingConditions": "Conditions that must be reported as true before a pod with this device "
            "is bound to its node. At most 4.",
            "bindingFailureConditions": "Conditions that, once true, mean that the device cannot be made "
            "ready. At most 4.",
            "allowMultipleAllocations": "Several claims may share the device; each takes a part of its "
            "capacities.",
        },
        DeviceAttribute: {
            "int": "A number.",
            "bool": "True or false.",
            "string": "A text of at most 64 characters.",
            "version": "A version by semver 2.0.0, at most 64 characters.",
            "ints": "Several numbers.",
            "bools": "Several values of true or false.",
            "strings": "Several texts.",
            "versions": "Several versions.",
            "list": "Several values of one type, in the spelling of KEP-5491.",
        },
        ListAttribute: {
            "int": "Numbers.",
            "bool": "Values of true or false.",
            "string": "Texts of at most 64 characters each.",
            "version": "Versions by semver 2.0.0.",
        },
        DeviceCapacity: {
            "value": "How much the device has. Required.",
            "requestPolicy": "How much one share may take. Only for devices that several may share; "
            "without it a share may take any amount, and takes all when it requests none.",
        },
        CapacityRequestPolicy: {
            "default": "The amount of a share that requests none.",
            "validValues": "The amounts a share may take, in ascending order; requests are rounded up "
            "to the next. At most 10. Not together with `validRange`.",
            "validRange": "The range of amounts a share may take. Not together with `validValues`.",
        },
        CapacityRequestPolicyRange: {
            "min": "The minimum of a share; less is rounded up to it. Required.",
            "max": "The maximum of a share.",
            "step": "Shares take `min` plus a multiple of this; requests are rounded up.",
        },
        DeviceCounterConsumption: {
            "counterSet": "The counter set of the pool that is drawn from. Required.",
            "counters": "How much of each counter is drawn, by name. At most 32. Required.",
        },
        CounterSet: {
            "name": "A DNS label that is unique in the pool. Required.",
            "counters": "The counters of the budget, by name. At most 32. Required.",
        },
        Counter: {"value": "The amount of the budget, or the amount drawn from it. Required."},
        DeviceTaint: {
            "key": "The name of the taint, with the syntax of a label key. Required.",
            "value": "The value of the taint, with the syntax of a label value.",
            "effect": "`NoSchedule` keeps new claims away, `NoExecute` also evicts pods that use the device, "
            "`None` only informs. Required.",
            "timeAdded": "When the taint was added; set where it is missing, and again when the effect of a "
            "DeviceTaintRule changes.",
        },
        DeviceTaintRule: {
            "spec": "A taint, and the devices that get it.",
            "status": "What the rule has done to pods, or would do.",
        },
        DeviceTaintRuleSpec: {
            "deviceSelector": "The devices that get the taint: those that match every field set. An empty "
            "selector selects every device, none at all selects no device.",
            "taint": "The taint. Of the effect `None` it only shows, in the status, what `NoExecute` would "
            "do. Required.",
        },
        DeviceTaintSelector: {
            "driver": "Only devices of this driver.",
            "pool": "Only devices of pools of this name; several drivers may have one.",
            "device": "Only devices of this name; several pools may have one.",
        },
        DeviceTaintRuleStatus: {
            "conditions": "`EvictionInProgress` says whether pods still have to be evicted, how many, and "
            "how many were. At most 8.",
        },
    }
)
