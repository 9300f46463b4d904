"""The bulk check confirms only devices without errors, and its caches are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.fields import ROOT
from dray.api.validation.kinds import bulk_device_check
from dray.api.validation.kinds.device import validate_device as careful
from dray.api.validation.validation_cache import ValidValueCache
from dray.values.cache_bounds import CACHE_BOUNDS, CacheBound
from tests.unit.api.validation.building import device, slice_of

names = st.sampled_from(["a", "b", "gpu-0", "", "A", "x" * 63, "x" * 64, "a\nb", "a\n", "é", "-a"])
keys = st.sampled_from(["foo", "bar", "example.com/foo", "a/b/c", "-", "x" * 33])
scalars = st.sampled_from(
    [
        {"int": 1},
        {"bool": True},
        {"string": "s"},
        {"string": "x" * 65},
        {"version": "1.2.3"},
        {"version": "1"},
        {"string": ""},
        {"string": "é" * 32},
        {"string": "é" * 33},
        {"version": ""},
        {"version": "1.2.3\n"},
        {"version": "1.2.3-rc.1+b"},
        {"version": "1.2.3-" + "x" * 60},
        {"version": "01.2.3"},
        {"version": "1.2." + "9" * 19},
        {"version": "1.2." + "9" * 20},
        {},
        {"int": 1, "bool": True},
    ]
)
lists = st.sampled_from(
    [{"ints": [1, 2]}, {"ints": []}, {"ints": [1] * 47}, {"list": {"string": ["a"]}}, {"list": {}}]
)
policies = st.sampled_from([{}, {"default": "1"}, {"default": "-1"}, {"validValues": ["1"]}])
capacities = st.fixed_dictionaries(
    {}, optional={"value": st.sampled_from(["1", "1000m", "0", "-1"]), "requestPolicy": policies}
)
devices = st.fixed_dictionaries(
    {"name": names},
    optional={
        "attributes": st.dictionaries(keys, scalars | lists, max_size=3),
        "capacity": st.dictionaries(keys, capacities, max_size=2),
        "allowMultipleAllocations": st.booleans(),
        "taints": st.just([{"key": "a", "effect": "None"}]),
        "nodeName": st.sampled_from(["", "node-a"]),
    },
)


@given(st.lists(devices, max_size=4))
def test_the_bulk_check_agrees_with_the_complete_check(documents):
    found = slice_of(*documents).spec.devices
    sound, plain = bulk_device_check.check_devices(found)
    nothing_wrong = not any(error for item in found for error in careful(item, ROOT, chooses_nodes=False))
    if sound and plain:
        assert nothing_wrong
    if nothing_wrong and found and len({item.name for item in found}) == len(found):
        assert sound, "the lane refuses what is sound, and everything becomes slow"


def test_invalid_devices_are_never_confirmed():
    for extra in (
        device("b", taints=[{}]),
        device("b", nodeName=""),
        device("b", allNodes=False),
        device("b", bindingConditions=["a"]),
    ):
        assert not bulk_device_check.check_devices(
            slice_of(device("a"), extra).spec.devices
        ).without_optional_fields


def test_empty_and_overlong_slices_are_not_confirmed_in_bulk():
    assert bulk_device_check.check_devices(()) == (False, False)
    assert not bulk_device_check.check_devices(
        slice_of(*(device(f"d{n}") for n in range(129))).spec.devices
    ).valid


@pytest.fixture
def bound():
    made = CacheBound("numbers of a test", 10, "a test")
    yield made
    del CACHE_BOUNDS[made.name]


def test_the_cache_is_bounded(bound):
    proven = ValidValueCache[int](bound)
    looked_at = []

    def is_sound(value):
        looked_at.append(value)
        return value < 100

    assert proven.are_all_valid([1, 2, 3], is_sound)
    assert proven.are_all_valid([3, 2, 1, 1], is_sound)
    assert sorted(looked_at) == [1, 2, 3]
    assert not proven.are_all_valid([4, 100], is_sound)
    assert 4 not in proven, "nothing is remembered of a round that failed"
    assert proven.are_all_valid(range(50), is_sound)
    assert proven.are_all_valid([60], is_sound)
    assert len(proven) <= 10
    assert 60 in proven


def test_values_in_constant_use_stay_in_the_cache(bound):
    proven = ValidValueCache[int](bound)
    proven.add([-1])
    for number in range(100):
        assert not proven.filter_unknown([-1])
        proven.add([number])
        assert len(proven) <= 10
    assert 0 not in proven


def test_equal_values_of_different_types_are_not_mixed_up():
    """`1` and `true` are equal in Python; as attributes they are not."""
    document = {"a": {"int": 1}, "b": {"bool": True}, "c": {"ints": [1]}, "d": {"bools": [True]}}
    values = list(slice_of(device(attributes=document)).spec.devices[0].attributes.values())
    assert len(set(values)) == 4
