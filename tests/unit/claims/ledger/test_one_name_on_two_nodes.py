"""The ledger and a pool that has devices of one name on several nodes."""

from __future__ import annotations

import pytest

from dray.api.json_text import write_json
from dray.claims.ledger.published_devices import read_slice
from tests.unit.claims.ledger_objects import Ledger, device, result, seen, slice_of

A, B = result("a"), result("b")


def pool(total):
    """A device `a` on each of two nodes, and `b` beside the first of them."""
    return [
        slice_of(counters={"c": str(total)}, count=3, node="n1"),
        slice_of([device("a", draws={"c": "4"}), device("b", draws={"c": "3"})], count=3, node="n1"),
        slice_of([device("a", draws={"c": "1"})], count=3, node="n2"),
    ]


@pytest.mark.parametrize("node", ["n1", "n2", ""])
def test_whoever_holds_the_name_is_charged_for_every_device_of_it(node):
    books = Ledger(*pool(8))
    assert books.grant("one", A, node=node) == []
    assert books.charged() == "5"
    assert books.grant("two", B) == []
    books.release("one", A)
    books.release("two", B)
    assert books.rows == {}


def test_what_both_draw_is_not_there_for_others():
    books = Ledger(*pool(7))
    assert books.grant("one", A, node="n2") == []
    (denied,) = books.grant("two", B, node="n1")
    assert "counter" in denied
    assert "2" in denied


@pytest.mark.parametrize(("node", "granted"), [("n1", False), ("n2", True), ("", False)])
def test_only_the_device_that_is_given_out_must_find_what_it_draws(node, granted):
    """As in the allocator: three are left, enough for the device on the second node alone."""
    books = Ledger(*pool(6))
    assert books.grant("two", B) == []
    assert (books.grant("one", A, node=node) == []) is granted


@pytest.mark.parametrize(("total", "granted"), [(7, True), (6, False)])
def test_the_devices_of_one_allocation_draw_for_themselves(total, granted):
    """As in the allocator: only what is held already draws on every node."""
    books = Ledger(*pool(total))
    assert (books.grant("one", A, B, node="n1") == []) is granted
    assert books.charged() == ("8" if granted else "0")
    assert (Ledger(*pool(total)).grant("one", B, A, node="n1") == []) is granted


def test_a_name_has_one_holder_on_all_nodes():
    books = Ledger(*pool(99))
    assert books.grant("one", A, node="n1") == []
    assert books.grant("two", A, node="n2") == ["device gpu.example.com/pool/a is held by claim default/one"]


def test_shares_are_those_of_the_device_on_the_node():
    books = Ledger(
        slice_of([device("a", memory="4Gi", shared=True)], count=2, node="n1"),
        slice_of([device("a")], count=2, node="n2"),
    )
    share = result("a", share="s1", memory="3Gi")
    assert len(books.grant("one", share, node="n2")) == 1
    assert books.grant("one", share, node="n1") == []
    assert len(books.grant("two", result("a", share="s2", memory="2Gi"), node="n1")) == 1


def facts(*slices):
    return seen(*slices).devices["a"]


def test_the_only_node_of_a_device_is_known_when_there_is_one():
    one, other = slice_of([device("a")], count=2, node="n1"), slice_of([device("b")], count=2, node="n2")
    assert facts(one, other).node == "n1"
    assert facts(one, slice_of([device("a")], count=2, node="n2")).node == ""
    own = slice_of([{"name": "a", "nodeName": "n1"}, {"name": "b", "nodeName": "n2"}])
    del own["spec"]["allNodes"]
    own["spec"]["perDeviceNodeSelection"] = True
    assert read_slice(write_json(own)).spec.devices[0].node_name == "n1"
    assert facts(own).node == "n1"


@pytest.mark.parametrize(
    ("slices", "usable"),
    [
        (pool(9), True),
        ([slice_of([device("a"), device("a")])], False),
        ([slice_of([device("a")], count=2, node="n1"), slice_of([device("a")], count=2, node="n1")], False),
        ([slice_of([device("a")], count=2, node="n1"), slice_of([device("a")], count=2)], False),
        ([slice_of([device("a")], count=2), slice_of([device("a")], count=2, node="n1")], False),
    ],
)
def test_a_generation_is_unsound_when_a_node_sees_a_name_twice(slices, usable):
    """An unsound generation counts for the names it has; those of older ones are still known beside it."""
    old = slice_of([device("z")], generation=0)
    assert ("z" not in seen(*slices, old).devices) is usable


def test_negative_draws_add_nothing_to_what_is_left():
    books = Ledger(
        slice_of(counters={"c": "2"}, count=2),
        slice_of([device("a", draws={"c": "-2"}), device("b", draws={"c": "3"})], count=2),
    )
    assert books.grant("one", A) == []
    assert len(books.grant("two", B)) == 1
