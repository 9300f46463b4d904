"""Columns of claims, slices and related kinds."""

from __future__ import annotations

from typing import Any

import pytest

from dray.claims.ledger.rows import DeviceId, build_device_key
from dray.server.tables import device_columns
from tests.unit.server.tables.stored_objects import cache_of, cells, thing

CLAIM = ("resource.k8s.io/v1", "ResourceClaim")
ON_NODE = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]
}


def result(device: str, pool: str = "pool") -> dict[str, Any]:
    return {"request": "r", "driver": "gpu.example.com", "pool": pool, "device": device}


def allocated(*names: str, **rest: Any) -> dict[str, Any]:
    return {"devices": {"results": [result(name) for name in names]}, **rest}


POD = {"resource": "pods", "name": "p", "uid": "u"}


@pytest.mark.parametrize(
    ("metadata", "status", "state"),
    [
        ({}, {}, "pending"),
        ({}, {"allocation": allocated("a")}, "allocated"),
        ({}, {"allocation": allocated("a"), "reservedFor": [POD]}, "allocated,reserved"),
        ({"deletionTimestamp": "2027-01-15T07:30:00Z"}, {}, "deleted"),
        (
            {"deletionTimestamp": "2027-01-15T07:30:00Z"},
            {"allocation": allocated("a"), "reservedFor": [POD]},
            "deleted,allocated,reserved",
        ),
    ],
)
def test_the_state_of_a_claim_is_worded_as_in_kubernetes(metadata, status, state):
    assert cells(thing(*CLAIM, metadata=metadata, status=status))["State"] == state


def test_a_claim_shows_node_devices_and_consumers():
    status = {
        "allocation": allocated("gpu-0", "gpu-1", nodeSelector=ON_NODE),
        "reservedFor": [POD, {**POD, "name": "q", "uid": "v"}],
    }
    assert cells(thing(*CLAIM, status=status)) == {
        "Name": "a",
        "State": "allocated,reserved",
        "Node": "node-a",
        "Devices": "gpu-0,gpu-1",
        "Consumers": "p,q",
        "Age": "60m",
        "Reason": "",
    }


def test_an_unallocated_claim_shows_no_node_devices_or_consumers():
    shown = cells(thing(*CLAIM))
    assert (shown["Node"], shown["Devices"], shown["Consumers"]) == ("<none>", "<none>", "<none>")


def test_many_devices_are_counted_and_one_device_is_named_once():
    many = allocated("a", "a", "b", "c", "d", "e")
    assert cells(thing(*CLAIM, status={"allocation": many}))["Devices"] == "a,b,c,+2 more"


@pytest.mark.parametrize(
    ("selector", "node"),
    [
        ({}, "<any>"),
        ({"nodeSelector": ON_NODE}, "node-a"),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                }
            },
            "<some>",
        ),
        ({"nodeSelector": {"nodeSelectorTerms": [*ON_NODE["nodeSelectorTerms"]] * 2}}, "<some>"),
    ],
)
def test_the_node_of_a_claim_is_named_when_there_is_one(selector, node):
    assert cells(thing(*CLAIM, status={"allocation": allocated("a", **selector)}))["Node"] == node


def waiting_pod(**spec: Any) -> dict[str, Any]:
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no GPU is free",
    }
    return thing("v1", "Pod", metadata={"name": "p"}, spec=spec, status={"conditions": [unplaced]})


def test_a_pending_claim_shows_why_its_pod_is_not_scheduled():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    made = thing(*CLAIM, metadata={"ownerReferences": [owner]})
    assert cells(made, cache_of([waiting_pod()]))["Reason"] == "no GPU is free"
    assert cells(made, cache_of([]))["Reason"] == ""


def test_a_pending_claim_named_by_a_pod_shows_the_same(monkeypatch):
    cache = cache_of([waiting_pod(resourceClaims=[{"name": "g", "resourceClaimName": "a"}])])
    assert cells(thing(*CLAIM), cache)["Reason"] == "no GPU is free"
    assert cells(thing(*CLAIM, metadata={"name": "other"}), cache)["Reason"] == ""
    monkeypatch.setattr(device_columns, "MAX_PODS_SCANNED", 0)
    assert cells(thing(*CLAIM), cache)["Reason"] == ""


def test_a_claim_that_cannot_be_deleted_shows_why():
    gone = {"deletionTimestamp": "2027-01-15T07:30:00Z", "finalizers": ["x/protect"]}
    used = {"allocation": allocated("a"), "reservedFor": [POD]}
    assert cells(thing(*CLAIM, metadata=gone, status=used))["Reason"] == "in use by p"
    assert cells(thing(*CLAIM, metadata=gone))["Reason"] == "waits for x/protect"


def test_an_allocated_claim_shows_failing_conditions_of_its_devices():
    ill = {**result("gpu-0"), "conditions": [{"type": "Ready", "status": "False", "message": "link down"}]}
    status = {"allocation": allocated("gpu-0"), "devices": [ill]}
    assert cells(thing(*CLAIM, status=status))["Reason"] == "gpu-0: Ready is False: link down"


def slice_of(*names: str, **where: Any) -> dict[str, Any]:
    spec = {
        "driver": "gpu.example.com",
        "pool": {"name": "a/b", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": {"x": {"int": 1}}} for name in names],
        **(where or {"nodeName": "node-a"}),
    }
    return thing("resource.k8s.io/v1", "ResourceSlice", metadata={"namespace": ""}, spec=spec)


def test_a_slice_shows_its_free_devices():
    taken = (build_device_key(DeviceId("gpu.example.com", "a/b", "two")), b"{}")
    elsewhere = (build_device_key(DeviceId("gpu.example.com", "b", "one")), b"{}")
    shown = cells(slice_of("one", "two", "three"), cache_of([], [taken, elsewhere]))
    assert shown == {
        "Name": "a",
        "Node": "node-a",
        "Driver": "gpu.example.com",
        "Pool": "a/b",
        "Devices": 3,
        "Free": 2,
        "Age": "60m",
    }


@pytest.mark.parametrize(
    ("where", "node"),
    [
        ({"allNodes": True}, "<any>"),
        ({"nodeSelector": ON_NODE}, "<some>"),
        ({"perDeviceNodeSelection": True}, "<some>"),
    ],
)
def test_a_slice_shows_the_node_or_how_many_nodes_reach_it(where, node):
    assert cells(slice_of(**where))["Node"] == node


def test_classes_and_templates_show_selectors_and_requests():
    selectors = [{"cel": {"expression": "device.driver == 'x'"}}, {"cel": {"expression": "true"}}]
    shown = cells(thing("resource.k8s.io/v1", "DeviceClass", spec={"selectors": selectors}))
    assert shown["Selectors"] == "device.driver == 'x' && true"
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": "big", "count": 2}},
        {"name": "any", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        {
            "name": "alt",
            "firstAvailable": [{"name": "x", "deviceClassName": "b"}, {"name": "y", "deviceClassName": "s"}],
        },
    ]
    spec = {"spec": {"devices": {"requests": requests}}}
    shown = cells(thing("resource.k8s.io/v1", "ResourceClaimTemplate", spec=spec))
    assert shown["Requests"] == "gpu=2×big,any=all×nic,alt=1×b|1×s"


def test_a_classic_claim_shows_the_state_of_its_allocation():
    waiting = {"scheduling": {"scheduler": {"selectedNode": "node-a"}}}
    classic = ("cdi.k8s.io/v1alpha1", "ResourceClaim")
    shown = cells(thing(*classic, spec={"resourceClassName": "big"}, status=waiting))
    assert (shown["State"], shown["Class"], shown["Node"]) == ("pending", "big", "node-a")
    done = {"phase": "Allocated", "driverName": "d", "availableOnNodes": ON_NODE}
    shown = cells(thing(*classic, status=done))
    assert (shown["State"], shown["Driver"], shown["Node"]) == ("allocated", "d", "node-a")


def test_a_preparation_shows_node_and_claim():
    spec = {"nodeName": "n", "claim": {"namespace": "ns", "name": "c", "uid": "u"}}
    shown = cells(thing("dray.dev/v1alpha1", "Preparation", metadata={"namespace": ""}, spec=spec))
    assert shown == {"Name": "a", "Node": "n", "Claim": "ns/c", "Age": "60m"}


@pytest.mark.parametrize(
    ("selector", "devices"),
    [(None, "<none>"), ({}, "*/*/*"), ({"driver": "gpu.example.com", "device": "a"}, "gpu.example.com/*/a")],
)
def test_a_taint_rule_shows_its_selector_and_taint(selector, devices):
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    spec = {"taint": taint} | ({} if selector is None else {"deviceSelector": selector})
    said = {"type": "EvictionInProgress", "status": "True", "message": "1 pod to be evicted"}
    rule = ("resource.k8s.io/v1", "DeviceTaintRule")
    shown = cells(thing(*rule, metadata={"namespace": ""}, spec=spec, status={"conditions": [said]}))
    assert shown == {
        "Name": "a",
        "Devices": devices,
        "Taint": "k=v:NoExecute",
        "Evicting": "True",
        "Age": "60m",
        "Reach": "1 pod to be evicted",
    }
    shown = cells(thing(*rule, metadata={"namespace": ""}, spec=spec))
    assert (shown["Evicting"], shown["Reach"]) == ("Unknown", "<none>")
