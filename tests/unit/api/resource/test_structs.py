"""The structs of the API groups: optional fields, attributes in two spellings, reachable nodes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dray.api import codec
from dray.api.classic.resource_claim import ClassicClaimStatus, DriverSchedulingStatus, SchedulingStatus
from dray.api.json_text import write_json
from dray.api.kinds import KINDS
from dray.api.meta import Projection
from dray.api.resource import (
    CapacityRequirements,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceRequestAllocationResult,
    ListAttribute,
    ResourcePool,
    ResourceSliceSpec,
)
from dray.api.resource.device import SCALAR_TYPES
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.values.node_selectors import NodeSelector, build_node_name_selector
from tests.fieldtree import Field, fields_of

ALWAYS_WRITTEN = {"apiVersion", "kind", "generation", "resourceSliceCount", "reason", "message"}
CLOSED = [kind for kind in KINDS if not kind.open]
HOLDERS = sorted(
    {field.holder for kind in CLOSED for field in fields_of(kind.type).values()}
    | {kind.type for kind in CLOSED},
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", HOLDERS, ids=lambda cls: cls.__name__)
def test_every_struct_can_be_empty_and_encodes_to_nothing(cls):
    assert not issubclass(cls, Projection)
    written = json.loads(write_json(cls()))
    assert set(written) <= ALWAYS_WRITTEN
    assert msgspec.convert(written, cls) == cls()


@pytest.mark.req("K5075-147")
def test_the_fields_of_shared_capacity_are_optional_and_not_written_when_empty():
    gated: list[Field] = []
    for kind in CLOSED:
        known = fields_of(kind.type)
        gated += [known[p] for p in GATED_FIELDS["DRAConsumableCapacity"].get(kind.qualified_name, ())]
    assert len(gated) >= 8
    for field in gated:
        assert field.name not in json.loads(write_json(field.holder()))
        assert msgspec.json.decode(b"{}", type=field.holder) == field.holder()


@pytest.mark.req("K5773-011", "K5773-016")
@pytest.mark.parametrize("priority", [None, 0, -(2**63), 2**63 - 1])
def test_priorities_are_optional_integers_of_64_bits(priority):
    for cls in (ResourceSliceSpec, ResourcePool):
        read: Any = msgspec.json.decode(json.dumps({"priority": priority}), type=cls)
        assert read.priority == priority
        assert json.loads(write_json(read)).get("priority") == priority
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"priority": 9223372036854775808}', type=ResourcePool)


@pytest.mark.req("K5075-025", "K5075-039", "K5075-065", "K5075-079", "K5075-081")
@pytest.mark.parametrize(
    ("cls", "written"),
    [
        (Device, {"allowMultipleAllocations": True}),
        (Device, {"allowMultipleAllocations": False}),
        (
            DeviceCapacity,
            {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi", "2Gi"]}},
        ),
        (DeviceCapacity, {"requestPolicy": {"validRange": {"min": "1Mi", "max": "1Gi", "step": "8"}}}),
        (DeviceCapacity, {"requestPolicy": {}}),
        (CapacityRequirements, {"requests": {"nic.example.com/bandwidth": "1Gi", "memory": "500m"}}),
        (DeviceRequestAllocationResult, {"shareID": "2b1dd7f7-1f0e-4d3f-8d3f-3c4a1c5ad7a5"}),
        (DeviceRequestAllocationResult, {"consumedCapacity": {"bandwidth": "1Gi", "slots": "0"}}),
    ],
)
def test_shared_capacity_is_read_and_written_as_specified(cls, written):
    read = codec._get_cached_decoder(cls).decode(json.dumps(written))
    assert read != cls()
    assert json.loads(write_json(read)) == written


VALUES: dict[str, tuple[Any, ...]] = {
    "int": (1, 2**63 - 1),
    "bool": (True, False),
    "string": ("a", "b"),
    "version": ("1.0.0", "2.0.0-rc.1"),
}


@pytest.mark.req("K5491-002", "K5491-012")
@pytest.mark.parametrize("name", VALUES)
def test_attributes_are_scalars_or_lists_in_two_spellings(name):
    values = VALUES[name]
    spellings: list[dict[str, Any]] = [{f"{name}s": list(values)}, {"list": {name: list(values)}}]
    for written in spellings:
        attribute = msgspec.json.decode(json.dumps(written), type=DeviceAttribute)
        assert attribute.get_typed_values() == (name, values)
        assert attribute.is_list
        assert json.loads(write_json(attribute)) == written
    scalar = msgspec.json.decode(json.dumps({name: values[0]}), type=DeviceAttribute)
    assert scalar.get_typed_values() == (name, values[:1])
    assert not scalar.is_list


@pytest.mark.parametrize(
    "attribute",
    [
        DeviceAttribute(),
        DeviceAttribute(int_value=1, bool_value=True),
        DeviceAttribute(int_value=1, int_values=(1,)),
        DeviceAttribute(int_values=(1,), list_value=ListAttribute(int_values=(1,))),
        DeviceAttribute(list_value=ListAttribute()),
        DeviceAttribute(int_value=1, list_value=ListAttribute()),
        DeviceAttribute(list_value=ListAttribute(int_values=(1,), string_values=("a",))),
    ],
    ids=repr,
)
def test_an_attribute_with_none_or_several_members_holds_nothing(attribute):
    assert attribute.get_typed_values() is None


def test_members_stand_in_the_order_that_reading_them_relies_on():
    scalars = tuple(f"{name}_value" for name in SCALAR_TYPES)
    lists = tuple(f"{name}_values" for name in SCALAR_TYPES)
    assert DeviceAttribute.__struct_fields__ == (*scalars, *lists, "list_value")
    assert ListAttribute.__struct_fields__ == lists


def test_an_empty_list_is_held_as_one():
    assert DeviceAttribute(int_values=()).get_typed_values() == ("int", ())
    assert DeviceAttribute(int_values=()).is_list


@pytest.mark.parametrize("value", [0, False, ""])
def test_a_zero_scalar_counts_as_set(value):
    name = {int: "int", bool: "bool", str: "string"}[type(value)]
    assert DeviceAttribute(**{f"{name}_value": value}).get_typed_values() == (name, (value,))


def test_where_a_classic_resource_can_be_used_is_read_from_both_places():
    here, there = build_node_name_selector("a"), build_node_name_selector("b")
    inner = SchedulingStatus(driver=DriverSchedulingStatus(available_on_nodes=there))
    expected: list[tuple[ClassicClaimStatus, NodeSelector | None]] = [
        (ClassicClaimStatus(), None),
        (ClassicClaimStatus(available_on_nodes=here), here),
        (ClassicClaimStatus(scheduling=inner), there),
        (ClassicClaimStatus(available_on_nodes=here, scheduling=inner), here),
    ]
    assert [status.get_reachable_nodes() for status, _ in expected] == [
        reachable for _, reachable in expected
    ]
