"""The devices of the suite: free ones of complete pools, exclusive before shared, none that overlap."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.codec import decode_document
from dray.driver.conformance.free_devices import find_free_devices, find_incomplete_pools, resolve_node
from dray.errors import InputError

DRIVER = "plain.example.com"


def published(
    *devices: dict[str, Any], name: str = "s", generation: int = 1, count: int = 1, **spec: Any
) -> Any:
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": "pool", "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
            **({} if "allNodes" in spec else {"nodeName": "node-0"}),
            **spec,
        },
    }
    return decode_document(document).object


def holding(device: str) -> Any:
    result = {"request": "r", "driver": DRIVER, "pool": "pool", "device": device}
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    return decode_document(document).object


def names(slices: list[Any], *claims: Any, node: str = "node-0") -> list[str]:
    return [each.name for each in find_free_devices(slices, claims, DRIVER, node)]


def part(name: str, card: str) -> dict[str, Any]:
    return {"name": name, "consumesCounters": [{"counterSet": card, "counters": {"m": {"value": "1"}}}]}


def test_exclusive_devices_come_first_and_held_ones_not_at_all():
    shared = {"name": "shared", "allowMultipleAllocations": True}
    page = published(shared, {"name": "held"}, {"name": "free"})
    assert names([page], holding("held"), holding("shared")) == ["free", "shared"]


def test_what_overlaps_with_a_device_in_use_is_left_alone():
    page = published(part("whole-0", "card-0"), part("part-0", "card-0"), part("whole-1", "card-1"))
    assert names([page], holding("part-0")) == ["whole-1"]


def test_devices_with_taints_are_left_alone():
    taint = {"key": "ill", "effect": "NoSchedule"}
    assert names([published({"name": "ill", "taints": [taint]}, {"name": "well"})]) == ["well"]


def test_only_the_newest_generation_of_a_complete_pool_counts():
    old = published({"name": "old"}, name="old", generation=1)
    new = published({"name": "new"}, name="new", generation=2)
    half = published({"name": "half"}, name="half", generation=3, count=2)
    assert names([old, new]) == ["new"]
    assert names([old, new, half]) == []
    assert find_incomplete_pools([old, new], DRIVER) == []
    assert find_incomplete_pools([old, new, half], DRIVER) == [
        "pool `pool` has 1 of 2 slices of generation 3"
    ]


def test_devices_of_other_nodes_are_left_alone():
    assert names([published({"name": "there"}, nodeName="node-1")]) == []
    assert names([published({"name": "anywhere"}, allNodes=True)]) == ["anywhere"]


def test_the_smallest_share_is_taken():
    policy = {"default": "2", "validRange": {"min": "1", "step": "1"}}
    capacity = {"value": "10", "requestPolicy": policy}
    device = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"band": capacity}}
    (spare,) = find_free_devices([published(device)], [], DRIVER, "node-0")
    assert [(name, str(amount)) for name, amount in spare.min_share] == [("band", "1")]


def test_the_node_is_found_when_there_is_one():
    here, there = (published({"name": "d"}, name=n, nodeName=n) for n in ("node-0", "node-1"))
    everywhere = published({"name": "d"}, name="e", allNodes=True)
    assert resolve_node([here, everywhere], DRIVER, "") == "node-0"
    assert resolve_node([here, there], DRIVER, "node-1") == "node-1"
    assert resolve_node([everywhere], DRIVER, "") == ""
    with pytest.raises(InputError, match="publishes no devices"):
        resolve_node([], DRIVER, "")
    with pytest.raises(InputError, match="devices of 2 nodes"):
        resolve_node([here, there], DRIVER, "")
