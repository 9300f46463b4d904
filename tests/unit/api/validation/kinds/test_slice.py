"""Slices: pool, nodes, shared counters, and how many devices there may be."""

from __future__ import annotations

import pytest

from dray.api.codec import decode_document
from dray.api.validation import validate_create, validate_update
from dray.errors import DecodeError
from tests.unit.api.validation.building import cluster_metadata, device, found, slice_of

POOL = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
HERE = {"key": "zone", "operator": "In", "values": ["a"]}
ONE_TERM = {"nodeSelectorTerms": [{"matchExpressions": [HERE]}]}
COUNTERS = [{"name": "memory", "counters": {"gib": {"value": "40"}}}]


def judged(*devices, **spec):
    return found(validate_create(slice_of(*devices, **spec)))


def pool(**fields):
    return {"pool": {**POOL, **fields}}


SPECS = {
    "a sound one": ({}, []),
    "no driver": ({"driver": ""}, ["Required spec.driver"]),
    "driver in upper case": ({"driver": "GPU.example.com"}, []),
    "bad driver": ({"driver": "a b"}, ["Invalid spec.driver"]),
    "no pool name": (pool(name=""), ["Required spec.pool.name"]),
    "pool name of several parts": (pool(name="rack-1/node.a"), []),
    "bad part of a pool name": (pool(name="rack-1//x"), ["Invalid spec.pool.name"]),
    "generation 0": (pool(generation=0), []),
    "negative generation": (pool(generation=-1), ["Invalid spec.pool.generation"]),
    "no slices in the pool": (pool(resourceSliceCount=0), ["Invalid spec.pool.resourceSliceCount"]),
    "nowhere": ({"nodeName": None}, ["Required spec"]),
    "everywhere": ({"nodeName": None, "allNodes": True}, []),
    "some nodes": ({"nodeName": None, "nodeSelector": ONE_TERM}, []),
    "two ways": ({"allNodes": True}, ["Invalid spec"]),
    "an empty node name": (
        {"nodeName": "", "allNodes": True},
        ["Invalid spec.nodeName"],
    ),
    "bad node name": ({"nodeName": "a_b"}, ["Invalid spec.nodeName"]),
    "not everywhere": ({"allNodes": False}, ["Invalid spec.allNodes"]),
    "not per device": ({"perDeviceNodeSelection": False}, ["Invalid spec.perDeviceNodeSelection"]),
    "a selector of two terms": (
        {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [HERE]}] * 2}},
        ["Invalid spec.nodeSelector.nodeSelectorTerms"],
    ),
    "a selector with a bad operator": (
        {
            "nodeName": None,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{**HERE, "operator": "Is"}]}]},
        },
        ["Invalid spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator"],
    ),
    "counters": ({"devices": None, "sharedCounters": COUNTERS}, []),
    "counters without a name": (
        {"devices": None, "sharedCounters": [{**COUNTERS[0], "name": ""}]},
        ["Required spec.sharedCounters[0].name"],
    ),
    "counters without counters": (
        {"devices": None, "sharedCounters": [{"name": "memory"}]},
        ["Required spec.sharedCounters[0].counters"],
    ),
    "the same counters twice": (
        {"devices": None, "sharedCounters": COUNTERS * 2},
        ["Duplicate spec.sharedCounters[1]"],
    ),
    "a counter without a value": (
        {"devices": None, "sharedCounters": [{"name": "memory", "counters": {"gib": {}}}]},
        ["Required spec.sharedCounters[0].counters[gib].value"],
    ),
    "a negative counter": (
        {"devices": None, "sharedCounters": [{"name": "memory", "counters": {"gib": {"value": "-1"}}}]},
        ["Invalid spec.sharedCounters[0].counters[gib].value"],
    ),
    "a bad name of a counter": (
        {"devices": None, "sharedCounters": [{"name": "memory", "counters": {"GiB": {"value": "1"}}}]},
        ["Invalid spec.sharedCounters[0].counters"],
    ),
}


@pytest.mark.parametrize(("spec", "expected"), SPECS.values(), ids=SPECS)
def test_specs(spec, expected):
    assert judged(**spec) == expected


def test_counters_and_devices_are_in_slices_of_their_own():
    assert judged(device(), sharedCounters=COUNTERS) == ["Invalid spec"]


def test_device_names_differ():
    assert judged(device("a"), device("b"), device("a")) == ["Duplicate spec.devices[2]"]


@pytest.mark.req("K5773-011", "K5773-016")
@pytest.mark.parametrize("priority", [None, 0, 1, -1, 2**63 - 1, -(2**63)])
def test_priorities_are_optional_integers_of_64_bits(priority):
    assert judged(device(), priority=priority) == []
    assert judged(device(), **pool(priority=priority)) == []


@pytest.mark.req("K5773-011", "K5773-016")
@pytest.mark.parametrize("spec", [{"priority": 2**63}, {"priority": "high"}, pool(priority=2**63)])
def test_other_priorities_cannot_even_be_read(spec):
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}
    with pytest.raises(DecodeError, match="priority"):
        decode_document(document)


# --- nodes per device ---

PER_DEVICE = {"nodeName": None, "perDeviceNodeSelection": True}
NODES = {
    "name": ({"nodeName": "node-a"}, []),
    "selector": ({"nodeSelector": ONE_TERM}, []),
    "everywhere": ({"allNodes": True}, []),
    "none": ({}, ["Required spec.devices[0]"]),
    "two": ({"nodeName": "node-a", "allNodes": True}, ["Invalid spec.devices[0]"]),
    "not everywhere": ({"nodeName": "node-a", "allNodes": False}, ["Invalid spec.devices[0].allNodes"]),
    "empty name": ({"nodeName": "", "allNodes": True}, ["Invalid spec.devices[0].nodeName"]),
    "selector of two terms": (
        {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [HERE]}] * 2}},
        ["Invalid spec.devices[0].nodeSelector.nodeSelectorTerms"],
    ),
}


@pytest.mark.parametrize(("fields", "expected"), NODES.values(), ids=NODES)
def test_devices_that_choose_their_nodes(fields, expected):
    assert judged(device(**fields), **PER_DEVICE) == expected


@pytest.mark.parametrize("fields", [{"nodeName": "a"}, {"nodeSelector": ONE_TERM}, {"allNodes": True}])
def test_devices_choose_nodes_only_where_the_slice_says_so(fields):
    assert judged(device(**fields)) == ["Invalid spec.devices[0]"]


# --- updates ---

IMMUTABLE = {
    "driver": ({"driver": "other.example.com"}, ["Invalid spec.driver"]),
    "pool": (pool(name="node-b"), ["Invalid spec.pool.name"]),
    "node": ({"nodeName": "node-b"}, ["Invalid spec.nodeName"]),
    "node gone": ({"nodeName": None, "allNodes": True}, ["Invalid spec.nodeName"]),
    "generation": (pool(generation=2), []),
    "priority": ({"priority": 3}, []),
}


@pytest.mark.parametrize(("spec", "expected"), IMMUTABLE.values(), ids=IMMUTABLE)
def test_driver_pool_and_node_of_a_slice_never_change(spec, expected):
    assert found(validate_update(slice_of(device(), **spec), slice_of(device()))) == expected


def test_devices_may_change():
    assert not validate_update(slice_of(device("a"), device("b")), slice_of(device("a")))


def test_metadata_of_slices_has_no_namespace():
    spoiled = slice_of(device(), meta=cluster_metadata(namespace="x"))
    assert found(validate_create(spoiled)) == ["Forbidden metadata.namespace"]
