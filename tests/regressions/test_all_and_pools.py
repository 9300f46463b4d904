# ruff: noqa: N802 - a test bears the id of its row
"""Faults around `All`, pools and nodes: rows A10, A11, A13, A14, A24 to A26."""

from __future__ import annotations

from typing import Any

import pytest

from dray.allocator.allocate import search_nodes
from dray.allocator.inventory.pool_views import PreparedSlice
from dray.allocator.refusals import RefusalReason
from dray.allocator.search.trace import Exhausted, Solved
from dray.api.codec import encode
from dray.gates import GateSet
from dray.lint import crosscheck, inspect_document
from dray.manifests import ManifestSource, read_documents
from tests.brute.builders import (
    asking,
    claim,
    device,
    device_class,
    devices,
    first_of,
    holding,
    labelled,
    node,
    published,
    request,
)
from tests.brute.laws import Bench, inventory_of
from tests.brute.outcome import ending, picked, shortages, world

ALL = claim(request("r", "All"))


def test_A10a_all_honours_the_selectors_of_its_class():
    slices = published(device("a", kind="gpu"), device("b", kind="nic"))
    asked = claim(request("r", "All", device_class="gpu"))
    assert picked(world(slices, asked, classes=[device_class("gpu", "attr:kind=gpu")])) == ["r=a"]


def test_A10b_all_beside_another_request_or_claim_is_solved():
    slices = published(device("a", kind="gpu"), device("b", kind="nic"))
    gpus, nic = request("gpus", "All", "attr:kind=gpu"), request("nic")
    assert picked(world(slices, claim(gpus, nic))) == ["gpus=a", "nic=b"]
    assert picked(world(slices, claim(nic, gpus))) == ["nic=b", "gpus=a"]
    assert picked(world(slices, claim(nic, name="c0"), claim(gpus, name="c1"))) == ["nic=b", "gpus=a"]


def test_A11_all_means_at_least_one():
    assert picked(world([], ALL)) is None
    problem = world(published(device("a")), claim(request("r", "All", "never")))
    assert picked(problem) is None
    assert [short.reason for short in shortages(problem)] == [RefusalReason.NOTHING_MATCHES]
    none_is_fine = claim(first_of("r", ("all", asking("All", "never")), ("none", asking(0))))
    assert picked(world(published(device("a")), none_is_fine)) == []


def many_nodes(number):
    """A pool with one slice on each of many nodes."""
    return [published(device(f"d{i}"), name=f"s{i}", count=number, node_name=f"n{i}") for i in range(number)]


def test_A13_a_pool_over_several_nodes_is_judged_as_a_whole_without_looking_at_each(monkeypatch):
    looked_at = []
    real = PreparedSlice.find_reachable

    def seen_by(page, where):
        looked_at.append(page.slice.metadata.name)
        return real(page, where)

    monkeypatch.setattr(PreparedSlice, "find_reachable", seen_by)
    assert picked(world(many_nodes(3), ALL)) == ["r=d1"]
    assert picked(world(many_nodes(3)[:2], ALL)) is None
    problem = world(many_nodes(200), ALL)
    stock = inventory_of(problem)
    looked_at.clear()
    stock.get_node_view(node("n7"))
    assert looked_at == ["s7"]


def test_A14_all_is_refused_where_the_pool_is_broken_and_granted_elsewhere():
    slices = [
        published(device("a"), name="1", pool="p1", count=2, node_name="n1"),
        published(*devices("b", "b"), name="2", pool="p2", node_name="n2"),
        published(device("c"), name="3", pool="p3", node_name="n3"),
    ]
    problem = world(slices, ALL, nodes=[node("n1"), node("n2"), node("n3")])
    bench = Bench(problem)
    found = {
        view.node.metadata.name: end for view, end in search_nodes(bench.inventory, bench.ask, problem.nodes)
    }
    assert [type(found[name]) for name in ("n1", "n2", "n3")] == [Exhausted, Exhausted, Solved]
    reasons = [shortages(problem.seen_from(node(name)))[0].reason for name in ("n1", "n2")]
    assert reasons == [RefusalReason.POOL_INCOMPLETE, RefusalReason.POOL_INVALID]


@pytest.mark.req("K5773-026")
def test_A24_slices_that_disagree_on_their_number_make_the_pool_invalid():
    slices = [published(device("a"), name="1", count=1), published(device("b"), name="2", count=2)]
    asked = claim(request("r"))
    for order in (slices, slices[::-1]):
        (shelf,) = inventory_of(world(order)).get_node_view(node()).pool_views
        assert shelf.flaw is not None
        assert shelf.flaw.reason is RefusalReason.POOL_INVALID
        assert shelf.flaw.detail == "its slices disagree on pool.resourceSliceCount: 1 and 2"
        assert picked(world(order, asked)) is None
    newer = published(device("c"), name="3", generation=2)
    assert picked(world([*slices, newer], asked)) == ["r=c"]


def test_A25_a_device_bound_in_two_ways_is_refused_on_its_node_only():
    two: dict[str, Any] = {"node_selector": labelled({"zone": "z1"}, {"rack": "r1"})}
    slices = [
        published(device("tangled"), name="1", pool="p1", **two),
        published(device("plain"), name="2", pool="p2", node_name="n2"),
    ]
    asked = claim(request("r"))
    problem = world(slices, asked, nodes=[node("n1", zone="z1"), node("n2", zone="z1")])
    assert picked(problem) is None
    assert picked(problem.seen_from(problem.nodes[1])) == ["r=plain"]
    assert isinstance(ending(problem), Exhausted)
    # Beside a device that is bound to the node alone, in either order, nothing changes.
    for pools in (("p1", "p2"), ("p2", "p1")):
        pair = [
            published(device("tangled"), name="1", pool=pools[0], **two),
            published(device("plain"), name="2", pool=pools[1], node_name="n1"),
        ]
        assert picked(world(pair, claim(request("r", 2)), nodes=[node("n1", zone="z1")])) is None
        assert picked(world(pair, asked, nodes=[node("n1", zone="z1")])) == ["r=plain"]


TWICE = [
    published(device("a"), name="1", count=2, node_name="n1"),
    published(device("a"), name="2", count=2, node_name="n2"),
]


def test_A26a_a_device_is_driver_pool_and_name_wherever_it_is_published():
    problem = world(TWICE, claim(request("r")), held=[holding("a")], nodes=[node("n1"), node("n2")])
    assert picked(problem) is None
    assert picked(problem.seen_from(node("n2"))) is None


def test_A26b_lint_flags_the_second_publisher():
    text = "\n".join(encode(item).decode() for item in TWICE)
    documents = read_documents(ManifestSource.decode("slices.yaml", text.encode()))
    inspected = [
        inspect_document(item, GateSet.from_defaults(), now="2026-01-01T00:00:00Z") for item in documents
    ]
    found = crosscheck([fact for one in inspected for fact in one.facts])
    assert "device-twice" in {charge.finding.rule for charge in found}
