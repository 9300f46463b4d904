"""The table of gated fields: no typo in it, no field of the gates missing from it, no new field forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dray.api.kinds import KINDS, Kind
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.gates import GATES
from tests.fieldtree import Field, fields_of

BY_NAME = {kind.qualified_name: kind for kind in KINDS}
ROWS = [
    (gate, kind, pattern) for gate, rows in GATED_FIELDS.items() for kind in rows for pattern in rows[kind]
]


@pytest.mark.parametrize(("gate", "kind", "pattern"), ROWS)
def test_a_row_names_a_gate_a_kind_and_a_field_that_exist(gate, kind, pattern):
    assert gate in GATES
    assert pattern in fields_of(BY_NAME[kind].type)


def test_no_field_stands_in_the_table_twice():
    assert len(ROWS) == len({(kind, pattern) for _, kind, pattern in ROWS})


BEHIND = {
    "DynamicResourceAllocation": {
        "PodSpec.resourceClaims",
        "PodStatus.resourceClaimStatuses",
        "ContainerResources.claims",
    },
    "DRAPrioritizedList": {"DeviceRequest.firstAvailable"},
    "DRAConsumableCapacity": {
        "Device.allowMultipleAllocations",
        "DeviceCapacity.requestPolicy",
        "ExactDeviceRequest.capacity",
        "DeviceSubRequest.capacity",
        "DeviceConstraint.distinctAttribute",
        "DeviceRequestAllocationResult.shareID",
        "DeviceRequestAllocationResult.consumedCapacity",
        "AllocatedDeviceStatus.shareID",
    },
    "DRAListTypeAttributes": {
        "DeviceAttribute.list",
        "DeviceAttribute.ints",
        "DeviceAttribute.bools",
        "DeviceAttribute.strings",
        "DeviceAttribute.versions",
    },
    "DRAResourceSlicePriority": {"ResourceSliceSpec.priority", "ResourcePool.priority"},
    "DRAPartitionableDevices": {
        "ResourceSliceSpec.sharedCounters",
        "ResourceSliceSpec.perDeviceNodeSelection",
        "Device.consumesCounters",
        "Device.nodeName",
        "Device.nodeSelector",
        "Device.allNodes",
    },
    "DRAAdminAccess": {"ExactDeviceRequest.adminAccess", "DeviceRequestAllocationResult.adminAccess"},
    "DRADeviceTaints": {
        "Device.taints",
        "ExactDeviceRequest.tolerations",
        "DeviceSubRequest.tolerations",
        "DeviceRequestAllocationResult.tolerations",
    },
    "DRADeviceTaintRules": set(),
    "DRAResourceClaimDeviceStatus": {"ResourceClaimStatus.devices"},
    "DRADeviceBindingConditions": {
        "Device.bindsToNode",
        "Device.bindingConditions",
        "Device.bindingFailureConditions",
        "AllocationResult.allocationTimestamp",
        "DeviceRequestAllocationResult.bindingConditions",
        "DeviceRequestAllocationResult.bindingFailureConditions",
    },
    "DRAControlPlaneController": {"PodResourceClaim.template"},
}
"""What the specification puts behind each gate, by the struct that holds it."""

UNGATED = {
    "AllocationResult": "devices nodeSelector",
    "CELDeviceSelector": "expression",
    "Condition": "lastTransitionTime message observedGeneration reason status type",
    "ConsumerReference": "apiGroup name resource uid",
    "Device": "attributes capacity name",
    "DeviceAllocationConfiguration": "opaque requests source",
    "DeviceAllocationResult": "config results",
    "DeviceAttribute": "bool int string version",
    "DeviceCapacity": "value",
    "DeviceClaim": "config constraints requests",
    "DeviceClaimConfiguration": "opaque requests",
    "DeviceClass": "apiVersion kind metadata spec",
    "DeviceClassConfiguration": "opaque",
    "DeviceClassSpec": "config selectors",
    "DeviceConstraint": "matchAttribute requests",
    "DeviceRequest": "exactly name",
    "DeviceRequestAllocationResult": "device driver pool request",
    "DeviceSelector": "cel",
    "DeviceTaint": "effect key timeAdded value",
    "DeviceTaintRule": "apiVersion kind metadata spec status",
    "DeviceTaintRuleSpec": "deviceSelector taint",
    "DeviceTaintRuleStatus": "conditions",
    "DeviceTaintSelector": "device driver pool",
    "ExactDeviceRequest": "allocationMode count deviceClassName selectors",
    "NodeSelector": "nodeSelectorTerms",
    "NodeSelectorRequirement": "key operator values",
    "NodeSelectorTerm": "matchExpressions matchFields",
    "ObjectMeta": "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers "
    "generateName generation labels managedFields name namespace ownerReferences resourceVersion "
    "selfLink uid",
    "OpaqueDeviceConfiguration": "driver parameters",
    "OwnerRef": "apiVersion blockOwnerDeletion controller kind name uid",
    "ResourceClaim": "apiVersion kind metadata spec status",
    "ResourceClaimSpec": "devices",
    "ResourceClaimStatus": "allocation reservedFor",
    "ResourceClaimTemplate": "apiVersion kind metadata spec",
    "ResourceClaimTemplateSpec": "metadata spec",
    "ResourcePool": "generation name resourceSliceCount",
    "ResourceSlice": "apiVersion kind metadata spec",
    "ResourceSliceSpec": "allNodes devices driver nodeName nodeSelector pool",
}
"""Fields of `resource.k8s.io` that stay with every gate off but the first; a new one must choose a side."""


@pytest.mark.req("K5075-153", "K5773-036", "K5491-041")
@pytest.mark.parametrize("gate", GATES)
def test_each_gate_controls_its_fields_wherever_they_appear(gate):
    gated: set[str] = set()
    for name, patterns in GATED_FIELDS[gate].items():
        known = fields_of(BY_NAME[name].type)
        gated |= {_named(known[pattern]) for pattern in patterns}
    assert gated == BEHIND[gate]
    for kind in KINDS:
        for field in _outside(kind):
            assert _named(field) not in BEHIND[gate], f"{kind.qualified_name}: {field.pattern} has no gate"


def test_every_field_is_behind_a_gate_or_on_the_list_of_those_that_are_not():
    free: dict[str, set[str]] = {}
    for kind in KINDS:
        if kind.group == "resource.k8s.io" and not kind.is_opaque:
            for field in _outside(kind):
                free.setdefault(field.holder.__name__, set()).add(field.name)
    assert free == {holder: set(names.split()) for holder, names in UNGATED.items()}


def _outside(kind: Kind) -> Iterator[Field]:
    """The fields of a kind that stand behind no gate."""
    gated = [pattern for rows in GATED_FIELDS.values() for pattern in rows.get(kind.qualified_name, ())]
    for pattern, field in fields_of(kind.type).items():
        if not any(
            pattern == gate or pattern.startswith((f"{gate}.", f"{gate}[", f"{gate}{{")) for gate in gated
        ):
            yield field


def _named(field: Field) -> str:
    return f"{field.holder.__name__}.{field.name}"
