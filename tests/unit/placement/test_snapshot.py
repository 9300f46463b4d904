"""Snapshots: node states, groups, and what two snapshots share."""

from __future__ import annotations

from dray.placement.resource_requests import NO_REQUESTS, compute_requests
from dray.placement.snapshot import read_traits
from tests.unit.placement.pods_and_nodes import STOCK, asking, node, snapshot_of

NEEDS = compute_requests(asking(cpu="1"))


def test_nodes_that_differ_in_name_and_labels_only_are_one_group() -> None:
    snapshot = snapshot_of(node("a", labels={"x": "1"}), node("b"), node("c", unschedulable=True))
    assert sorted(map(sorted, snapshot.groups.values())) == [["a", "b"], ["c"]]


def test_requests_of_pods_distinguish_nodes() -> None:
    snapshot = snapshot_of(node("a"), node("b"), needs={"a": NEEDS})
    assert len(snapshot.groups) == 2
    assert snapshot.node_states["a"].requests == NEEDS
    assert snapshot.node_states["b"].requests == NO_REQUESTS


def test_traits_that_are_the_same_are_the_same_object() -> None:
    assert read_traits(node("a", labels={"x": "1"})) is read_traits(node("b"))
    assert read_traits(node("a", {"cpu": "1000m"})) is read_traits(node("a", {"cpu": "1"}))
    assert read_traits(node("a")) is not read_traits(node("a", taints=[{"key": "k", "effect": "NoSchedule"}]))


def test_a_node_that_does_not_say_what_is_left_gives_what_it_has() -> None:
    bare = node("a", {})
    assert read_traits(bare).allocatable == {}


def test_no_change_gives_the_same_snapshot() -> None:
    snapshot = snapshot_of(node("a"))
    assert snapshot.apply_changes(STOCK, {}) is snapshot


def test_the_next_snapshot_shares_what_is_unchanged() -> None:
    first = snapshot_of(node("a"), node("b"), node("c", unschedulable=True))
    second = first.apply_changes(STOCK, {"a": (first.nodes["a"], NEEDS)})
    assert second.node_states["c"] is first.node_states["c"]
    assert second.nodes is first.nodes
    assert first.node_states["a"].requests == NO_REQUESTS
    assert sorted(map(sorted, first.groups.values())) == [["a", "b"], ["c"]]
    assert sorted(map(sorted, second.groups.values())) == [["a"], ["b"], ["c"]]


def test_a_node_that_is_gone_leaves_no_empty_group() -> None:
    first = snapshot_of(node("a"), node("b", unschedulable=True))
    second = first.apply_changes(STOCK, {"b": None, "ghost": None})
    assert list(second.node_states) == ["a"]
    assert len(second.groups) == 1
    assert set(second.nodes) == {"a"}
    assert set(first.nodes) == {"a", "b"}


def test_several_changes_of_one_group_at_once() -> None:
    first = snapshot_of(*map(node, "abcd"))
    news = {name: (first.nodes[name], NEEDS) for name in "abc"}
    second = first.apply_changes(STOCK, {**news, "d": None})
    assert sorted(map(sorted, second.groups.values())) == [["a", "b", "c"]]
    back = second.apply_changes(STOCK, {name: (first.nodes[name], NO_REQUESTS) for name in "abc"})
    assert sorted(map(sorted, back.groups.values())) == [["a", "b", "c"]]
    assert all(node_state.requests == NO_REQUESTS for node_state in back.node_states.values())
