"""Field patterns: finding what they name in structs and documents, changing it, leaving the rest alone."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import field_patterns
from dray.api.resource import (
    Device,
    DeviceAttribute,
    DeviceTaint,
    ListAttribute,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

TAINT = DeviceTaint(key="broken", effect="NoSchedule")
SLICE = ResourceSlice(
    spec=ResourceSliceSpec(
        pool=ResourcePool(name="p", priority=0),
        all_nodes=False,
        devices=(
            Device(name="a", taints=(TAINT, DeviceTaint())),
            Device(
                name="b",
                attributes={"x": DeviceAttribute(int_values=()), "y.z/w": DeviceAttribute(int_value=0)},
            ),
            Device(name="c", attributes={"x": DeviceAttribute(list_value=ListAttribute())}),
        ),
    )
)
POD: dict[str, Any] = {
    "spec": {
        "containers": [
            {"name": "a", "resources": {"claims": [{"name": "gpu"}]}},
            {"name": "b"},
            None,
            "junk",
        ],
        "initContainers": {},
        "ephemeralContainers": "junk",
        "resourceClaims": [],
    },
    "status": None,
}


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("spec", ("spec",)),
        ("metadata", ()),
        ("spec.driver", ()),
        ("spec.priority", ()),
        ("spec.pool.priority", ("spec.pool.priority",)),
        ("spec.allNodes", ("spec.allNodes",)),
        ("spec.devices[].name", ("spec.devices[0].name", "spec.devices[1].name", "spec.devices[2].name")),
        ("spec.devices[].taints", ("spec.devices[0].taints",)),
        ("spec.devices[].taints[].key", ("spec.devices[0].taints[0].key",)),
        ("spec.devices[].attributes{}.int", ("spec.devices[1].attributes[y.z/w].int",)),
        ("spec.devices[].attributes{}.ints", ("spec.devices[1].attributes[x].ints",)),
        ("spec.devices[].attributes{}.list", ("spec.devices[2].attributes[x].list",)),
        ("spec.sharedCounters[].counters{}.value", ()),
    ],
)
def test_a_field_is_found_where_it_is_set(pattern, places):
    assert field_patterns.find_fields(SLICE, pattern) == places


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("spec.containers[].resources.claims", ("spec.containers[0].resources.claims",)),
        ("spec.initContainers[].resources.claims", ()),
        ("spec.ephemeralContainers[].resources.claims", ()),
        ("spec.resourceClaims", ()),
        ("spec.resourceClaims[].template", ()),
        ("status.resourceClaimStatuses", ()),
        ("metadata.labels{}.a", ()),
    ],
)
def test_documents_are_searched_whatever_they_contain(pattern, places):
    assert field_patterns.find_fields(POD, pattern) == places
    assert field_patterns.find_fields(field_patterns.clear_fields(POD, pattern), pattern) == ()


@pytest.mark.parametrize("junk", [None, 1, "x", [], [1]])
def test_there_is_nothing_to_find_in_what_has_no_fields(junk):
    assert field_patterns.find_fields(junk, "spec.devices[].taints") == ()
    assert field_patterns.clear_fields(junk, "spec.devices[].taints") is junk


def test_clearing_takes_out_the_field_and_nothing_else():
    cleared = field_patterns.clear_fields(SLICE, "spec.devices[].taints")
    assert [device.taints for device in cleared.spec.devices] == [(), (), ()]
    assert cleared.spec.devices[1] is SLICE.spec.devices[1]
    assert cleared.spec.pool is SLICE.spec.pool
    assert SLICE.spec.devices[0].taints[0] is TAINT


def test_clearing_a_map_leaves_an_empty_map():
    assert field_patterns.clear_fields(SLICE, "spec.devices[].attributes").spec.devices[1].attributes == {}


def test_an_empty_list_that_was_given_is_cleared_where_none_means_not_given():
    cleared = field_patterns.clear_fields(SLICE, "spec.devices[].attributes{}.ints")
    assert cleared.spec.devices[1].attributes["x"] == DeviceAttribute()


@pytest.mark.parametrize(
    "pattern", ["spec.sharedCounters", "spec.devices[].consumesCounters", "metadata.labels"]
)
def test_nothing_to_clear_is_the_same_object(pattern):
    assert field_patterns.clear_fields(SLICE, pattern) is SLICE


def test_clearing_a_document_removes_the_key():
    cleared = field_patterns.clear_fields(POD, "spec.containers[].resources.claims")
    assert cleared["spec"]["containers"] == [{"name": "a", "resources": {}}, {"name": "b"}, None, "junk"]
    assert POD["spec"]["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}


def test_changing_visits_every_holder_and_keeps_what_did_not_change():
    seen: list[str] = []

    def note(device: Device) -> Device:
        seen.append(device.name)
        return device

    assert field_patterns.change_holders(SLICE, "spec.devices[].name", note) is SLICE
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    "pattern", ["", "spec.", "spec..devices", "spec devices", "spec.devices[0]", "[].a", "a{}{}"]
)
def test_a_pattern_that_is_none_is_an_error(pattern):
    with pytest.raises(ValueError, match="is not a field pattern"):
        field_patterns.find_fields(SLICE, pattern)


def test_a_pattern_with_a_field_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError):
        field_patterns.find_fields(SLICE, "spec.device")
