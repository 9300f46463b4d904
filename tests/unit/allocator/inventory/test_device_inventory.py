"""What nodes see: shapes that are shared, and views that change only when they must."""

from __future__ import annotations

from typing import Any

import pytest

import dray.allocator.inventory.device_inventory as stocking
from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.inventory.usage import Usage
from tests.brute.making import (
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
from tests.brute.toyjudge import ToyJudge, judged


def stock(*slices, held=()):
    return Stock(slices, [], Usage.of(held), judged)


def local(content, number, **more):
    """The same content as a pool of its own on a node of its own."""
    return published(*content, name=f"s{number}", pool=f"p{number}", node_name=f"n{number}", **more)


def same_shape(there: Stock, *names: str) -> bool:
    return len({id(there.seen_from(node(name)).shape) for name in names}) == 1


def test_nodes_with_the_same_devices_have_one_shape():
    two = stock(local(devices("a", "b", numa=1), 1), local(devices("x", "y", numa=1), 2))
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
    assert not same_shape(stock(local([one], 1), local([other], 2)), "n1", "n2")


def test_nodes_with_devices_in_another_order_do_not():
    first, second = device("a", numa=1), device("b", numa=2)
    assert not same_shape(stock(local([first, second], 1), local([second, first], 2)), "n1", "n2")


def test_drivers_and_pools_tell_shapes_apart():
    one = published(device("a"), name="1", pool="p1", driver="one.example", node_name="n1")
    two = published(device("a"), name="2", pool="p2", driver="two.example", node_name="n2")
    assert not same_shape(stock(one, two), "n1", "n2")
    split = [
        published(device("a"), name="1", pool="p1", node_name="n1"),
        published(device("b"), name="2", pool="p2", node_name="n1"),
        published(*devices("a", "b"), name="3", pool="p3", node_name="n2"),
    ]
    assert not same_shape(stock(*split), "n1", "n2")


@pytest.mark.parametrize(
    "held",
    [
        result("a", pool="p1"),
        result("a", pool="p1", share="id"),
        result("a", pool="p1", share="id", consumed={"mem": 1}),
    ],
    ids=["whole", "share", "amount"],
)
def test_what_is_taken_tells_shapes_apart(held):
    content = [device("a", shared=True, capacity={"mem": 4}), device("b")]
    assert same_shape(stock(local(content, 1), local(content, 2)), "n1", "n2")
    assert not same_shape(stock(local(content, 1), local(content, 2), held=[holding(held)]), "n1", "n2")


def test_nodes_with_the_same_devices_taken_the_same_have_one_shape_again():
    content = devices("a", "b")
    held = [holding(result("a", pool=pool), name=pool) for pool in ("p1", "p2")]
    assert same_shape(stock(local(content, 1), local(content, 2), held=held), "n1", "n2")


def test_counters_left_tell_shapes_apart():
    def pool(number, slots):
        parts = [device("a", consumes_counters=(draws(slots=1),))]
        where = {"pool": f"p{number}", "name": f"s{number}", "node_name": f"n{number}"}
        return partitioned(budget(slots=slots), *parts, **where)

    assert same_shape(stock(*pool(1, 2), *pool(2, 2)), "n1", "n2")
    assert not same_shape(stock(*pool(1, 2), *pool(2, 3)), "n1", "n2")


def test_a_selector_of_several_terms_tells_shapes_apart():
    one = published(device("a"), name="1", pool="p1", node_name="n1")
    two = published(device("a"), name="2", pool="p2", node_selector=labelled({"zone": "z2"}, {"rack": "r2"}))
    there = stock(one, two)
    assert there.seen_from(node("n1")).shape is not there.seen_from(node("n2", zone="z2")).shape


def test_a_view_is_kept_until_something_in_it_changes():
    first = stock(local(devices("a"), 1), local(devices("a"), 2))
    before = {name: first.seen_from(node(name)) for name in ("n1", "n2")}
    assert first.seen_from(node("n1")) is before["n1"]
    second = first.with_usage(first.usage.taking([holding(result("a", pool="p2"))]))
    assert second.seen_from(node("n1")) is before["n1"]
    changed = second.seen_from(node("n2"))
    assert changed is not before["n2"]
    assert changed.shelves == before["n2"].shelves
    assert (before["n2"].shape.taken, changed.shape.taken) == (0, 1)


def test_stocks_over_one_set_of_slices_do_not_disturb_each_other():
    first = stock(local(devices("a"), 1))
    second = first.with_usage(Usage.of([holding(result("a", pool="p1"))]))
    taken = [here.seen_from(node("n1")).shape.taken for here in (first, second, first, second)]
    assert taken == [0, 1, 0, 1]


def test_a_node_that_changes_its_labels_sees_something_else():
    there = stock(published(device("a"), node_selector=labelled({"zone": "z1"})))
    assert [len(there.seen_from(node("n1", zone=zone)).shelves) for zone in ("z1", "z2", "z1")] == [1, 0, 1]


def test_devices_that_only_differ_in_name_are_judged_once():
    judge = ToyJudge()
    content = Stock([local(devices("a", "b", numa=1), 1), local(devices("c", numa=1), 2)], [], Usage(), judge)
    contents = {id(c) for name in ("n1", "n2") for c in content.seen_from(node(name)).shape.contents}
    assert len(contents) == 1
    (one,) = {c for name in ("n1", "n2") for c in content.seen_from(node(name)).shape.contents}
    assert [one.verdict("any"), one.verdict("any")] == [True, True]
    assert len(judge.asked) == 1


def test_candidates_know_their_names_again():
    view = stock(
        published(*devices("a", "b"), name="1", pool="p1"), published(device("c"), name="2", pool="p2")
    ).seen_from(node())
    found = [view.device(candidate) for candidate in range(3)]
    assert [(shelf.pool[1], shelf.names[position]) for shelf, position in found] == [
        ("p1", "a"),
        ("p1", "b"),
        ("p2", "c"),
    ]
    with pytest.raises(IndexError):
        view.device(3)


def test_values_of_an_attribute_are_masks():
    shape = (
        stock(published(device("a", numa=1), device("b", numa=[1, 2]), device("c"))).seen_from(node()).shape
    )
    assert shape.values("gpu.example/numa") == (0b011, {("int", 1): 0b011, ("int", 2): 0b010})


def test_what_is_left_of_shares():
    held = [holding(result("a", share="id", consumed={"mem": 1, "gone": 5}))]
    shape = (
        stock(
            published(device("a", shared=True, capacity={"mem": capacity(4), "bw": 2}), device("b")),
            held=held,
        )
        .seen_from(node())
        .shape
    )
    assert {name: left // 10**9 for name, left in shape.left[0].items()} == {"mem": 3, "bw": 2}
    assert (shape.taken, shape.shared, shape.shareable) == (0, 1, 1)


def test_a_stock_that_lives_long_does_not_remember_every_shape(monkeypatch):
    monkeypatch.setattr(stocking.RECENT, "most", 27)  # three shapes of eight devices
    there = stock(local(devices(*"abcdefgh"), 1))
    seen = []
    for name in "abcdefgh":
        there = there.with_usage(there.usage.taking([holding(result(name, pool="p1"), name=name)]))
        seen.append(there.seen_from(node("n1")).shape.taken)
        assert len(there._prepared._shapes) <= 3
    assert seen == [2**i - 1 for i in range(1, 9)]


def test_a_shape_that_comes_back_is_the_same_one():
    free = stock(local(devices("a", "b"), 1))
    shape = free.seen_from(node("n1")).shape
    shape.memo["kept"] = True
    del shape
    taken = free.with_usage(free.usage.taking([holding(result("a", pool="p1"))]))
    assert taken.seen_from(node("n1")).shape.memo == {}
    assert free.with_usage(Usage()).seen_from(node("n1")).shape.memo == {"kept": True}


def test_a_shape_in_use_is_found_however_many_were_seen_since(monkeypatch):
    monkeypatch.setattr(stocking.RECENT, "most", 1)
    there = stock(local(devices("a", "b"), 1), local(devices("a", "b"), 2))
    shape = there.seen_from(node("n1")).shape
    assert there.seen_from(node("n2")).shape is shape


def test_nothing_is_kept_of_slices_that_were_replaced(monkeypatch):
    monkeypatch.setattr(stocking.RECENT, "most", 30)
    there = stock(local(devices("a"), 1), local(devices("a"), 2))
    prepared = there._prepared
    contents, shapes, keys = prepared._contents._known, prepared._shapes, prepared._keys
    for version in range(50):
        changed = local([device("a", version=version)], 1)
        there = there.with_slices([changed, local(devices("a"), 2)])
        for name in ("n1", "n2"):
            there.seen_from(node(name))
    # Fifteen recent shapes of one device and those in use.
    assert len(contents) <= 17
    assert len(shapes) <= 17
    assert len(keys) <= 17


def test_nothing_is_kept_of_a_node_that_is_gone():
    there = stock(published(device("a"), all_nodes=True))
    for number in range(20):
        there.seen_from(node(f"n{number}"))
        there.forget(f"n{number}")
    prepared = there._prepared
    assert not prepared._views
    assert not prepared._settled[1]


def test_how_much_is_remembered_can_be_told():
    there = stock(local(devices("a", "b"), 1), local([device("c", numa=3)], 2))
    assert there.sizes() == {"device_contents": 2, "shapes": 0, "views": 0}
    views = [there.seen_from(node(name)) for name in ("n1", "n2")]
    assert there.sizes() == {"device_contents": 2, "shapes": len(views), "views": 2}
