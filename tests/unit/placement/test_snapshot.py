"""Photographs: seats, groups, and what stays the same between two of them."""

from __future__ import annotations

from dray.placement.resource_requests import NOTHING, needs_of
from dray.placement.snapshot import traits_of
from tests.unit.placement.seats import STOCK, asking, node, photo

NEEDS = needs_of(asking(cpu="1"))


def test_nodes_that_differ_in_name_and_labels_only_are_one_group() -> None:
    snapshot = photo(node("a", labels={"x": "1"}), node("b"), node("c", unschedulable=True))
    assert sorted(map(sorted, snapshot.groups.values())) == [["a", "b"], ["c"]]


def test_what_pods_need_tells_nodes_apart() -> None:
    snapshot = photo(node("a"), node("b"), needs={"a": NEEDS})
    assert len(snapshot.groups) == 2
    assert snapshot.seats["a"].needs == NEEDS
    assert snapshot.seats["b"].needs == NOTHING


def test_traits_that_are_the_same_are_the_same_object() -> None:
    assert traits_of(node("a", labels={"x": "1"})) is traits_of(node("b"))
    assert traits_of(node("a", {"cpu": "1000m"})) is traits_of(node("a", {"cpu": "1"}))
    assert traits_of(node("a")) is not traits_of(node("a", taints=[{"key": "k", "effect": "NoSchedule"}]))


def test_a_node_that_does_not_say_what_is_left_gives_what_it_has() -> None:
    bare = node("a", {})
    assert traits_of(bare).allocatable == {}


def test_nothing_new_is_the_same_photograph() -> None:
    snapshot = photo(node("a"))
    assert snapshot.changed(STOCK, {}) is snapshot


def test_the_next_photograph_shares_what_stayed() -> None:
    first = photo(node("a"), node("b"), node("c", unschedulable=True))
    second = first.changed(STOCK, {"a": (first.nodes["a"], NEEDS)})
    assert second.seats["c"] is first.seats["c"]
    assert second.nodes is first.nodes
    assert first.seats["a"].needs == NOTHING
    assert sorted(map(sorted, first.groups.values())) == [["a", "b"], ["c"]]
    assert sorted(map(sorted, second.groups.values())) == [["a"], ["b"], ["c"]]


def test_a_node_that_is_gone_leaves_no_empty_group() -> None:
    first = photo(node("a"), node("b", unschedulable=True))
    second = first.changed(STOCK, {"b": None, "ghost": None})
    assert list(second.seats) == ["a"]
    assert len(second.groups) == 1
    assert set(second.nodes) == {"a"}
    assert set(first.nodes) == {"a", "b"}


def test_several_changes_of_one_group_at_once() -> None:
    first = photo(*map(node, "abcd"))
    news = {name: (first.nodes[name], NEEDS) for name in "abc"}
    second = first.changed(STOCK, {**news, "d": None})
    assert sorted(map(sorted, second.groups.values())) == [["a", "b", "c"]]
    back = second.changed(STOCK, {name: (first.nodes[name], NOTHING) for name in "abc"})
    assert sorted(map(sorted, back.groups.values())) == [["a", "b", "c"]]
    assert all(seat.needs == NOTHING for seat in back.seats.values())
