"""Nodes that pods ask for."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.core import Pod
from dray.placement.framework import PreFilterResult
from dray.placement.plugins import node_affinity
from dray.placement.plugins.node_affinity import NodeAffinityPlugin
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.snapshot import ClusterSnapshot
from tests.unit.placement.pods_and_nodes import (
    node,
    node_state,
    pending_pod,
    pod,
    pre_filter_result,
    scores_of,
    snapshot_of,
)

NODES = (
    node("a", labels={"zone": "1", "disk": "ssd"}),
    node("b", labels={"zone": "1"}),
    node("c", labels={"zone": "2", "disk": "ssd", "cores": "32"}),
)
ELSEWHERE = PluginRejection(
    "NodeAffinity", "no match for the node selector or affinity", frozenset({Signal(Topic.NODES)})
)


def when(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: dict[str, Any], names: tuple[str, ...] = ()) -> dict[str, Any]:
    fields = [when("metadata.name", "In", *names)] if names else []
    return {"matchExpressions": list(expressions), "matchFields": fields}


def choosy(
    *terms: dict[str, Any], preferred: tuple[tuple[int, dict[str, Any]], ...] = (), **selector: str
) -> Pod:
    wishes: dict[str, Any] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "preference": preference} for weight, preference in preferred
        ]
    }
    if terms:
        wishes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": list(terms)}
    return pod(nodeSelector=selector, affinity={"nodeAffinity": wishes})


def names_of(found: PreFilterResult | None) -> set[str] | None:
    return None if found is None or found.node_names is None else set(found.node_names)


MATCHES: dict[str, tuple[Pod, set[str]]] = {
    "one label": (choosy(zone="1"), {"a", "b"}),
    "every label": (choosy(zone="1", disk="ssd"), {"a"}),
    "a label nobody has": (choosy(zone="9"), set()),
    "an empty value is a value": (choosy(disk=""), set()),
    "a term": (choosy(term(when("disk", "Exists"))), {"a", "c"}),
    "one of the terms": (
        choosy(term(when("zone", "In", "2")), term(when("disk", "DoesNotExist"))),
        {"b", "c"},
    ),
    "all conditions of a term": (choosy(term(when("zone", "NotIn", "2"), when("disk", "Exists"))), {"a"}),
    "a number": (choosy(term(when("cores", "Gt", "16"))), {"c"}),
    "labels and terms": (choosy(term(when("zone", "In", "1", "2")), disk="ssd"), {"a", "c"}),
    "an empty term": (choosy(term()), set()),
    "an empty term beside another": (choosy(term(), term(when("zone", "In", "2"))), {"c"}),
    "a name": (choosy(term(names=("b",))), {"b"}),
    "names in all terms": (choosy(term(names=("b", "x")), term(names=("a",))), {"a", "b"}),
    "a name and a condition": (choosy(term(when("disk", "Exists"), names=("a", "b"))), {"a"}),
    "a name in one term": (choosy(term(names=("b",)), term(when("zone", "In", "2"))), {"b", "c"}),
    "a name and labels": (choosy(term(names=("a", "b")), disk="ssd"), {"a"}),
    "not a name": (
        choosy({"matchFields": [when("metadata.name", "NotIn", "a")]}),
        {"b", "c"},
    ),
}


@pytest.mark.parametrize("name", MATCHES)
def test_a_pod_goes_where_selector_and_required_terms_match(name: str) -> None:
    asked, expected = MATCHES[name]
    found = pre_filter_result(NodeAffinityPlugin(), asked, *NODES)
    assert found == PreFilterResult(frozenset(expected), ELSEWHERE)


def test_a_required_selector_without_terms_matches_nothing() -> None:
    nowhere: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    assert (
        names_of(pre_filter_result(NodeAffinityPlugin(), pod(affinity={"nodeAffinity": nowhere}), *NODES))
        == set()
    )


@pytest.mark.parametrize(
    "asked",
    [
        pod(),
        pod(affinity={}),
        pod(affinity={"nodeAffinity": {}}),
        choosy(preferred=((5, term(when("zone", "In", "9"))),)),
        choosy(preferred=((0, term(when("zone", "In", "1"))), (-3, term(when("zone", "In", "1"))))),
    ],
)
def test_a_pod_that_asks_for_nothing_there_is_none_of_its_business(asked: Pod) -> None:
    assert pre_filter_result(NodeAffinityPlugin(), asked, *NODES) is None


def test_weights_of_preferred_terms_add_up() -> None:
    ssd, first, empty = term(when("disk", "In", "ssd")), term(when("zone", "In", "1")), term()
    places = [node_state(each) for each in NODES]
    liking = choosy(preferred=((10, ssd), (30, first), (90, empty)))
    assert scores_of(NodeAffinityPlugin(), liking, places) == [100, 75, 25]
    found = pre_filter_result(NodeAffinityPlugin(), liking, *NODES)
    assert found is not None
    assert (found.node_names, found.other_nodes_rejection, found.by_node) == (None, None, True)


def test_required_and_preferred_go_together() -> None:
    both = choosy(term(when("disk", "Exists")), preferred=((1, term(when("zone", "In", "2"))),))
    found = pre_filter_result(NodeAffinityPlugin(), both, *NODES)
    assert names_of(found) == {"a", "c"}
    assert scores_of(NodeAffinityPlugin(), both, [node_state(NODES[0]), node_state(NODES[2])]) == [0, 100]


def test_what_was_found_is_remembered_until_a_node_changes() -> None:
    plugin, before = NodeAffinityPlugin(), snapshot_of(*NODES)
    alternatives = choosy(preferred=((1, term(when("zone", "In", "1"))),), zone="1")

    def names(snapshot: ClusterSnapshot) -> frozenset[str] | None:
        found = plugin.pre_filter(pending_pod(alternatives), snapshot)
        assert isinstance(found, PreFilterResult)
        return found.node_names

    first = names(before)
    assert first == frozenset("ab")
    assert names(before) is first
    moved = node("c", labels={"zone": "1"})
    after = before.apply_changes(
        before.inventory, {"c": (moved, before.node_states["c"].requests), "a": None}
    )
    assert names(after) == frozenset("bc")
    assert names(before) == frozenset("ab")


def test_it_does_not_remember_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_affinity, "MAX_CACHED", 2)
    plugin, seen = NodeAffinityPlugin(), snapshot_of(*NODES)
    for zone, expected in (("1", {"a", "b"}), ("2", {"c"}), ("3", set()), ("1", {"a", "b"})):
        found = plugin.pre_filter(pending_pod(choosy(zone=zone)), seen)
        assert names_of(found) == expected
        assert len(plugin._cache.entries[1]) <= 2
