"""What nodes see: shapes that are shared, and views that change only when they must."""

from __future__ import annotations

from typing import Any

import pytest

import dray.allocator.inventory.node_shapes as node_shapes
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from tests.brute.builders import (
    attribute,
    budget,
    capacity,
    device,
    devices,
    draws,
    holding,
    labelled,
    node,
    partitioned,
    published,
    result,
)
from tests.brute.toy_selectors import ToyEvaluator, evaluate_toy


def inventory(*slices, held=()):
    return DeviceInventory(slices, [], DeviceUsage.from_claims(held), evaluate_toy)


def local(profile, number, **more):
    """The same content as a pool of its own on a node of its own."""
    return published(*profile, name=f"s{number}", pool=f"p{number}", node_name=f"n{number}", **more)


def same_shape(there: DeviceInventory, *names: str) -> bool:
    return len({id(there.get_node_view(node(name)).shape) for name in names}) == 1


def test_nodes_with_the_same_devices_have_one_shape():
    two = inventory(local(devices("a", "b", numa=1), 1), local(devices("x", "y", numa=1), 2))
    assert same_shape(two, "n1", "n2")


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "attributes": (device("a", numa=1), device("a", numa=2)),
    "types": (device("a", numa=1), device("a", attributes={"numa": attribute("1")})),
    "capacity": (device("a", capacity={"mem": 1}), device("a", capacity={"mem": 2})),
    "sharing": (device("a", capacity={"mem": 1}), device("a", shared=True, capacity={"mem": 1})),
    "binding": (device("a"), device("a", binding_conditions=("Attached",))),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_nodes_with_different_devices_do_not(what):
    one, other = DIFFERENT[what]
    assert not same_shape(inventory(local([one], 1), local([other], 2)), "n1", "n2")


def test_nodes_with_devices_in_another_order_do_not():
    first, second = device("a", numa=1), device("b", numa=2)
    assert not same_shape(inventory(local([first, second], 1), local([second, first], 2)), "n1", "n2")


def test_drivers_and_pools_tell_shapes_apart():
    one = published(device("a"), name="1", pool="p1", driver="one.example", node_name="n1")
    two = published(device("a"), name="2", pool="p2", driver="two.example", node_name="n2")
    assert not same_shape(inventory(one, two), "n1", "n2")
    split = [
        published(device("a"), name="1", pool="p1", node_name="n1"),
        published(device("b"), name="2", pool="p2", node_name="n1"),
        published(*devices("a", "b"), name="3", pool="p3", node_name="n2"),
    ]
    assert not same_shape(inventory(*split), "n1", "n2")


@pytest.mark.parametrize(
    "held",
    [
        result("a", pool="p1"),
        result("a", pool="p1", share="id"),
        result("a", pool="p1", share="id", consumed={"mem": 1}),
    ],
    ids=["whole", "share", "amount"],
)
def test_usage_distinguishes_shapes(held):
    profile = [device("a", shared=True, capacity={"mem": 4}), device("b")]
    assert same_shape(inventory(local(profile, 1), local(profile, 2)), "n1", "n2")
    assert not same_shape(inventory(local(profile, 1), local(profile, 2), held=[holding(held)]), "n1", "n2")


def test_nodes_with_the_same_devices_taken_the_same_have_one_shape_again():
    profile = devices("a", "b")
    held = [holding(result("a", pool=pool), name=pool) for pool in ("p1", "p2")]
    assert same_shape(inventory(local(profile, 1), local(profile, 2), held=held), "n1", "n2")


def test_counters_left_tell_shapes_apart():
    def pool(number, slots):
        parts = [device("a", consumes_counters=(draws(slots=1),))]
        where = {"pool": f"p{number}", "name": f"s{number}", "node_name": f"n{number}"}
        return partitioned(budget(slots=slots), *parts, **where)

    assert same_shape(inventory(*pool(1, 2), *pool(2, 2)), "n1", "n2")
    assert not same_shape(inventory(*pool(1, 2), *pool(2, 3)), "n1", "n2")


def test_a_selector_of_several_terms_distinguishes_shapes():
    one = published(device("a"), name="1", pool="p1", node_name="n1")
    two = published(device("a"), name="2", pool="p2", node_selector=labelled({"zone": "z2"}, {"rack": "r2"}))
    there = inventory(one, two)
    assert there.get_node_view(node("n1")).shape is not there.get_node_view(node("n2", zone="z2")).shape


def test_a_view_is_kept_until_something_in_it_changes():
    first = inventory(local(devices("a"), 1), local(devices("a"), 2))
    before = {name: first.get_node_view(node(name)) for name in ("n1", "n2")}
    assert first.get_node_view(node("n1")) is before["n1"]
    second = first.replace_usage(first.usage.add_claims([holding(result("a", pool="p2"))]))
    assert second.get_node_view(node("n1")) is before["n1"]
    changed = second.get_node_view(node("n2"))
    assert changed is not before["n2"]
    assert changed.pool_views == before["n2"].pool_views
    assert (before["n2"].shape.taken, changed.shape.taken) == (0, 1)


def test_inventories_over_one_set_of_slices_are_independent():
    first = inventory(local(devices("a"), 1))
    second = first.replace_usage(DeviceUsage.from_claims([holding(result("a", pool="p1"))]))
    taken = [here.get_node_view(node("n1")).shape.taken for here in (first, second, first, second)]
    assert taken == [0, 1, 0, 1]


def test_a_node_that_changes_its_labels_sees_something_else():
    there = inventory(published(device("a"), node_selector=labelled({"zone": "z1"})))
    assert [len(there.get_node_view(node("n1", zone=zone)).pool_views) for zone in ("z1", "z2", "z1")] == [
        1,
        0,
        1,
    ]


def test_devices_that_only_differ_in_name_are_evaluated_once():
    evaluator = ToyEvaluator()
    profile = DeviceInventory(
        [local(devices("a", "b", numa=1), 1), local(devices("c", numa=1), 2)], [], DeviceUsage(), evaluator
    )
    contents = {id(c) for name in ("n1", "n2") for c in profile.get_node_view(node(name)).shape.profiles}
    assert len(contents) == 1
    (one,) = {c for name in ("n1", "n2") for c in profile.get_node_view(node(name)).shape.profiles}
    assert [one.evaluate("any"), one.evaluate("any")] == [True, True]
    assert len(evaluator.asked) == 1


def test_candidates_know_their_names_again():
    view = inventory(
        published(*devices("a", "b"), name="1", pool="p1"), published(device("c"), name="2", pool="p2")
    ).get_node_view(node())
    found = [view.locate_device(candidate) for candidate in range(3)]
    assert [(pool_view.pool[1], pool_view.names[position]) for pool_view, position in found] == [
        ("p1", "a"),
        ("p1", "b"),
        ("p2", "c"),
    ]
    with pytest.raises(IndexError):
        view.locate_device(3)


def test_values_of_an_attribute_are_masks():
    shape = (
        inventory(published(device("a", numa=1), device("b", numa=[1, 2]), device("c")))
        .get_node_view(node())
        .shape
    )
    assert shape.get_value_masks("gpu.example/numa") == (0b011, {("int", 1): 0b011, ("int", 2): 0b010})


def test_what_is_left_of_shares():
    held = [holding(result("a", share="id", consumed={"mem": 1, "gone": 5}))]
    shape = (
        inventory(
            published(device("a", shared=True, capacity={"mem": capacity(4), "bw": 2}), device("b")),
            held=held,
        )
        .get_node_view(node())
        .shape
    )
    assert {name: left // 10**9 for name, left in shape.capacity_left[0].items()} == {"mem": 3, "bw": 2}
    assert (shape.taken, shape.shared, shape.shareable) == (0, 1, 1)


def test_an_inventory_keeps_a_bounded_number_of_shapes(monkeypatch):
    monkeypatch.setattr(node_shapes.RECENT_SHAPES, "max_entries", 27)  # three shapes of eight devices
    there = inventory(local(devices(*"abcdefgh"), 1))
    seen = []
    for name in "abcdefgh":
        there = there.replace_usage(there.usage.add_claims([holding(result(name, pool="p1"), name=name)]))
        seen.append(there.get_node_view(node("n1")).shape.taken)
        assert len(there._cache._shapes) <= 3
    assert seen == [2**i - 1 for i in range(1, 9)]


def test_a_shape_that_comes_back_is_the_same_one():
    free = inventory(local(devices("a", "b"), 1))
    shape = free.get_node_view(node("n1")).shape
    shape.candidate_sets["kept"] = True
    del shape
    taken = free.replace_usage(free.usage.add_claims([holding(result("a", pool="p1"))]))
    assert taken.get_node_view(node("n1")).shape.candidate_sets == {}
    assert free.replace_usage(DeviceUsage()).get_node_view(node("n1")).shape.candidate_sets == {"kept": True}


def test_a_shape_in_use_is_found_however_many_were_seen_since(monkeypatch):
    monkeypatch.setattr(node_shapes.RECENT_SHAPES, "max_entries", 1)
    there = inventory(local(devices("a", "b"), 1), local(devices("a", "b"), 2))
    shape = there.get_node_view(node("n1")).shape
    assert there.get_node_view(node("n2")).shape is shape


def test_nothing_is_kept_of_slices_that_were_replaced(monkeypatch):
    monkeypatch.setattr(node_shapes.RECENT_SHAPES, "max_entries", 30)
    there = inventory(local(devices("a"), 1), local(devices("a"), 2))
    prepared = there._cache
    contents, shapes, keys = prepared._profile_table._known, prepared._shapes, prepared._view_keys
    for version in range(50):
        changed = local([device("a", version=version)], 1)
        there = there.replace_slices([changed, local(devices("a"), 2)])
        for name in ("n1", "n2"):
            there.get_node_view(node(name))
    # Fifteen recent shapes of one device and those in use.
    assert len(contents) <= 17
    assert len(shapes) <= 17
    assert len(keys) <= 17


def test_nothing_is_kept_of_a_node_that_is_gone():
    there = inventory(published(device("a"), all_nodes=True))
    for number in range(20):
        there.get_node_view(node(f"n{number}"))
        there.forget_node(f"n{number}")
    prepared = there._cache
    assert not prepared._views
    assert not prepared._current_views[1]


def test_cache_sizes_are_reported():
    there = inventory(local(devices("a", "b"), 1), local([device("c", numa=3)], 2))
    assert there.count_cached() == {"device_contents": 2, "shapes": 0, "views": 0}
    views = [there.get_node_view(node(name)) for name in ("n1", "n2")]
    assert there.count_cached() == {"device_contents": 2, "shapes": len(views), "views": 2}
