"""Free resources of nodes, and how full they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.core import Pod
from dray.placement.framework import PreFilterResult
from dray.placement.plugins.node_resources_fit import NodeResourcesFit, Scoring
from dray.placement.rejections import PluginRejection, Signal, Topic
from tests.unit.placement.pods_and_nodes import (
    asking,
    container,
    find_rejection,
    node,
    node_state,
    pending_pod,
    pod,
    scores_of,
    snapshot_of,
)

PLUGIN = NodeResourcesFit()
EMPTIED = frozenset({Signal(Topic.NODES), Signal(Topic.RESOURCES)})
GROWN = frozenset({Signal(Topic.NODES)})

PLACE = node(
    allocatable={"cpu": "4", "memory": "8Gi", "pods": "3", "example.com/gpu": "2", "ephemeral-storage": "0"}
)
"""Four cpus; two pods are there already, one with three of them and a gpu."""
HELD = (asking(cpu="3", memory="1Gi", gpu="1"), asking())

ROWS: list[tuple[Pod, str, frozenset[Signal]]] = [
    (asking(), "", EMPTIED),
    (asking(cpu="1", memory="7Gi", gpu="1"), "", EMPTIED),
    (asking(cpu="1001m"), "too little cpu free (asks for 1001m)", EMPTIED),
    (asking(cpu="4"), "too little cpu free (asks for 4)", EMPTIED),
    (asking(cpu="4001m"), "too little cpu in all (asks for 4001m)", GROWN),
    (asking(memory="7681Mi"), "too little memory free (asks for 7681Mi)", EMPTIED),
    (asking(memory="9G"), "too little memory in all (asks for 9000000000)", GROWN),
    (asking(gpu="2"), "too little example.com/gpu free (asks for 2)", EMPTIED),
    (pod(containers=[container({"example.com/fpga": "1"})]), "no example.com/fpga (asks for 1)", GROWN),
    (
        pod(containers=[container({"ephemeral-storage": "1Gi"})]),
        "no ephemeral-storage (asks for 1Gi)",
        GROWN,
    ),
    (
        asking(memory="8Gi", cpu="2"),
        "too little cpu free (asks for 2), too little memory free (asks for 8Gi)",
        EMPTIED,
    ),
    (
        asking(memory="9Gi", cpu="2"),
        "too little cpu free (asks for 2), too little memory in all (asks for 9Gi)",
        GROWN,
    ),
]


@pytest.mark.parametrize(("asked", "reason", "wakes"), ROWS)
def test_a_node_needs_every_resource_that_a_pod_requests(
    asked: Pod, reason: str, wakes: frozenset[Signal]
) -> None:
    told = find_rejection(PLUGIN, asked, node_state(PLACE, *HELD))
    assert told == (PluginRejection("NodeResourcesFit", reason, wakes) if reason else None)


def test_a_node_takes_only_so_many_pods() -> None:
    told = find_rejection(PLUGIN, asking(), node_state(PLACE, *HELD, asking()))
    assert told == PluginRejection("NodeResourcesFit", "too many pods", EMPTIED)
    nowhere = find_rejection(PLUGIN, asking(), node_state(node(allocatable={"cpu": "4"})))
    assert nowhere == PluginRejection("NodeResourcesFit", "too many pods", GROWN)


def test_a_node_may_be_short_of_a_resource_that_is_not_requested() -> None:
    full = node_state(node(allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"}), asking(cpu="5"))
    assert find_rejection(PLUGIN, asking(memory="1Gi"), full) is None
    assert find_rejection(PLUGIN, asking(cpu="0"), full) is None
    assert find_rejection(PLUGIN, asking(cpu="1m"), full) is not None


def test_nodes_with_the_same_shortage_get_the_same_reason() -> None:
    found = PLUGIN.pre_filter(pending_pod(asking(cpu="2")), snapshot_of(PLACE))
    assert found.filter is not None
    small = [
        node_state(node(allocatable={"cpu": str(cpu), "pods": "9"}), asking(cpu=str(cpu)))
        for cpu in (2, 3, 4)
    ]
    told = [found.filter(place) for place in small]
    assert len({id(verdict) for verdict in told}) == 1


NAMES = ("cpu", "memory", "example.com/gpu")
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4), max_size=3)


def texts(amounts: dict[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 3))
def test_it_rejects_nodes_where_plain_arithmetic_does(
    asked: dict[str, int], used: dict[str, int], given_: dict[str, int], pods: int
) -> None:
    place = node_state(
        node(allocatable=texts(given_ | {"pods": pods})), pod(containers=[container(texts(used))])
    )
    told = find_rejection(PLUGIN, pod(containers=[container(texts(asked))]), place)
    lacking = [n for n in asked if asked[n] > 0 and asked[n] + used.get(n, 0) > given_.get(n, 0)]
    assert (told is None) == (not lacking and pods >= 2)
    if told is not None:
        assert [n for n in NAMES if n in told.reason] == [n for n in NAMES if n in lacking]


# --- scores ---

SCORES: list[tuple[Scoring, dict[str, str], dict[str, str], dict[str, str], int]] = [
    # scoring, what the node has, what is taken, what is asked for, score
    (
        Scoring.LEAST,
        {"cpu": "4", "memory": "4Gi"},
        {"cpu": "0", "memory": "0"},
        {"cpu": "1", "memory": "1Gi"},
        75,
    ),
    (
        Scoring.MOST,
        {"cpu": "4", "memory": "4Gi"},
        {"cpu": "0", "memory": "0"},
        {"cpu": "1", "memory": "1Gi"},
        25,
    ),
    (
        Scoring.LEAST,
        {"cpu": "4", "memory": "4Gi"},
        {"cpu": "2", "memory": "0"},
        {"cpu": "1", "memory": "1Gi"},
        50,
    ),
    (
        Scoring.MOST,
        {"cpu": "4", "memory": "4Gi"},
        {"cpu": "2", "memory": "0"},
        {"cpu": "1", "memory": "1Gi"},
        50,
    ),
    (
        Scoring.LEAST,
        {"cpu": "3", "memory": "3"},
        {"cpu": "0", "memory": "0"},
        {"cpu": "1", "memory": "2"},
        49,
    ),
    (Scoring.MOST, {"cpu": "3", "memory": "3"}, {"cpu": "0", "memory": "0"}, {"cpu": "1", "memory": "2"}, 49),
    (
        Scoring.LEAST,
        {"cpu": "1", "memory": "4Gi"},
        {"cpu": "3", "memory": "0"},
        {"cpu": "0", "memory": "1Gi"},
        37,
    ),
    (
        Scoring.MOST,
        {"cpu": "1", "memory": "4Gi"},
        {"cpu": "3", "memory": "0"},
        {"cpu": "0", "memory": "1Gi"},
        62,
    ),
    (Scoring.LEAST, {"cpu": "4"}, {"cpu": "1", "memory": "0"}, {"cpu": "1"}, 50),
    (Scoring.LEAST, {"cpu": "0", "memory": "0"}, {}, {}, 0),
    (Scoring.MOST, {}, {}, {}, 0),
    # containers that ask for nothing count 100m and 200Mi each, those that are there and the new one
    (Scoring.LEAST, {"cpu": "1", "memory": "2000Mi"}, {}, {}, 80),
    (Scoring.MOST, {"cpu": "1", "memory": "2000Mi"}, {}, {}, 20),
]


@pytest.mark.parametrize(("scoring", "given_", "used", "asked", "expected"), SCORES)
def test_the_score_is_the_part_that_is_free_or_taken(
    scoring: Scoring, given_: dict[str, str], used: dict[str, str], asked: dict[str, str], expected: int
) -> None:
    place = node_state(node(allocatable=given_), pod(containers=[container(used)]))
    assert scores_of(NodeResourcesFit(scoring), pod(containers=[container(asked)]), [place]) == [expected]


@given(st.sampled_from(Scoring), AMOUNTS, AMOUNTS, AMOUNTS)
def test_scores_are_between_0_and_100(
    scoring: Scoring, asked: dict[str, int], used: dict[str, int], given_: dict[str, int]
) -> None:
    place = node_state(node(allocatable=texts(given_)), pod(containers=[container(texts(used))]))
    [score] = scores_of(NodeResourcesFit(scoring), pod(containers=[container(texts(asked))]), [place])
    assert 0 <= score <= 100


def test_the_fuller_node_is_worse_or_better_as_chosen() -> None:
    places = [node_state(PLACE, *[asking(cpu="1", memory="2Gi")] * count) for count in range(3)]
    spreading = scores_of(NodeResourcesFit(Scoring.LEAST), asking(cpu="1", memory="2Gi"), places)
    packing = scores_of(NodeResourcesFit(Scoring.MOST), asking(cpu="1", memory="2Gi"), places)
    assert (spreading, packing) == ([75, 50, 25], [25, 50, 75])


def test_opinions_do_not_look_at_names() -> None:
    found = PLUGIN.pre_filter(pending_pod(asking(cpu="1")), snapshot_of(PLACE))
    assert isinstance(found, PreFilterResult)
    assert not found.by_node
    assert found.node_names is None


def test_a_node_without_allocatable_resources_gets_that_reason():
    verdict = find_rejection(PLUGIN, asking(), node_state(node(allocatable={})))
    assert verdict == PluginRejection(
        PLUGIN.name, "status.allocatable does not say what the node can give", GROWN
    )
