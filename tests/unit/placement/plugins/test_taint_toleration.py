"""Taints of nodes and tolerations of pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.placement.plugins.taint_toleration import TaintToleration
from dray.placement.rejections import PluginRejection, Signal, Topic
from tests.unit.placement.pods_and_nodes import find_rejection, node, node_state, pod, scores_of

PLUGIN = TaintToleration()


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def untolerated(words: str) -> PluginRejection:
    return PluginRejection("TaintToleration", f"untolerated taint {words}", frozenset({Signal(Topic.NODES)}))


REFUSALS: list[tuple[list[dict[str, str]], list[dict[str, Any]], str]] = [
    ([], [], ""),
    ([taint("a")], [], "a:NoSchedule"),
    ([taint("a", "NoExecute")], [], "a:NoExecute"),
    ([taint("a", "PreferNoSchedule")], [], ""),
    ([taint("a", "SomethingNew")], [], ""),
    ([taint("a", value="x")], [{"key": "a", "value": "x"}], ""),
    ([taint("a", value="x")], [{"key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule"}], ""),
    ([taint("a", value="x")], [{"key": "a", "value": "y"}], "a:NoSchedule"),
    ([taint("a", value="x")], [{"key": "a", "operator": "Exists"}], ""),
    ([taint("a", value="x")], [{"key": "a", "operator": "Exists", "effect": "NoExecute"}], "a:NoSchedule"),
    ([taint("a", value="x")], [{"key": "a", "operator": "Near", "value": "x"}], "a:NoSchedule"),
    ([taint("a"), taint("b", "NoExecute")], [{"operator": "Exists"}], ""),
    ([taint("a"), taint("b", "NoExecute")], [{"key": "a"}], "b:NoExecute"),
    ([taint("a"), taint("b", "NoExecute")], [{"key": "b"}, {"key": "a"}], ""),
    ([taint("a", "PreferNoSchedule"), taint("b"), taint("c")], [], "b:NoSchedule"),
]


@pytest.mark.parametrize(("taints", "tolerations", "words"), REFUSALS)
def test_the_first_taint_that_nothing_tolerates_refuses(
    taints: list[dict[str, str]], tolerations: list[dict[str, Any]], words: str
) -> None:
    told = find_rejection(PLUGIN, pod(tolerations=tolerations), node_state(node(taints=taints)))
    assert told == (untolerated(words) if words else None)


def test_nodes_that_differ_in_the_value_of_a_taint_get_the_same_reason() -> None:
    told = {
        find_rejection(PLUGIN, pod(), node_state(node(taints=[taint("rack", value=f"r{number}")])))
        for number in range(9)
    }
    assert told == {untolerated("rack:NoSchedule")}


def test_fewer_milder_taints_are_better() -> None:
    mild = [taint(key, "PreferNoSchedule") for key in "abcd"]
    places = [node_state(node(taints=mild[:count])) for count in (0, 1, 2, 4)]
    assert scores_of(PLUGIN, pod(), places) == [100, 75, 50, 0]
    tolerant = pod(tolerations=[{"key": "a", "effect": "PreferNoSchedule"}, {"key": "b"}])
    assert scores_of(PLUGIN, tolerant, places) == [100, 100, 100, 0]
    hard_only = pod(tolerations=[{"key": "a", "effect": "NoSchedule"}])
    assert scores_of(PLUGIN, hard_only, places) == [100, 75, 50, 0]


def test_all_are_best_where_nothing_discourages() -> None:
    places = [node_state(node()), node_state(node(taints=[taint("a")]))]
    assert scores_of(PLUGIN, pod(), places) == [100, 100]


EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(st.builds(taint, st.sampled_from("ab"), EFFECTS, st.sampled_from(["", "x"])), max_size=4)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("ab"), "operator": st.sampled_from(["Exists", "Equal"])},
        optional={"value": st.sampled_from(["", "x"]), "effect": EFFECTS},
    ),
    max_size=3,
)


@given(st.lists(TAINTS, min_size=1, max_size=5), TOLERATIONS)
def test_more_tolerations_never_hurt(taints: list[list[dict[str, str]]], more: list[dict[str, str]]) -> None:
    places = [node_state(node(taints=each)) for each in taints]
    plain, tolerant = pod(tolerations=more[1:]), pod(tolerations=more)
    for place in places:
        if find_rejection(PLUGIN, plain, place) is None:
            assert find_rejection(PLUGIN, tolerant, place) is None
    assert all(0 <= score <= 100 for score in scores_of(PLUGIN, tolerant, places))
