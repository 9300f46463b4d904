"""Grouping equal nodes changes nothing: a plain loop over every node finds the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.api.core import Node, Pod
from dray.placement.framework import PreFilterResult
from dray.placement.pending_pod import PendingPod
from dray.placement.plugins.node_resources_fit import Scoring
from dray.placement.profile import PlacementOptions, SchedulerProfile, build_profile
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests, compute_requests
from dray.placement.scheduling_cycle import Placement, Unschedulable, find_rejections, place_pod
from dray.placement.snapshot import ClusterSnapshot
from tests.unit.placement.pods_and_nodes import asking, container, node, pending_pod, pod, snapshot_of

CPUS = st.sampled_from(["0", "1", "2"])
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule"])
TAINT = st.fixed_dictionaries({"key": st.sampled_from("ab"), "effect": EFFECTS})
# Mostly none: only nodes without differences are alike.
TAINTS = st.lists(TAINT, max_size=0) | st.lists(TAINT, max_size=2)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> tuple[Node, ResourceRequests]:
    given_ = {"cpu": draw(st.sampled_from(["4", "4", "2"])), "memory": "4", "pods": "3"}
    labels = draw(st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from("12"), max_size=2))
    place_ = node(
        name, given_, labels=labels, taints=draw(TAINTS), unschedulable=draw(st.integers(0, 5)) == 0
    )
    needs = NO_REQUESTS
    for cpu in draw(st.lists(CPUS, max_size=0) | st.lists(CPUS, max_size=2)):
        needs = needs.add(compute_requests(asking(cpu=cpu, memory="1")))
    return place_, needs


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    drawn = [draw(nodes(f"n{index}")) for index in range(draw(st.integers(0, 8)))]
    return snapshot_of(
        *[each for each, _ in drawn], needs={each.metadata.name: needs for each, needs in drawn}
    )


def wish(key: str, value: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


WISHES = st.builds(wish, st.sampled_from(["zone", "disk"]), st.sampled_from("12"))
PREFERRED = st.lists(st.fixed_dictionaries({"weight": st.integers(1, 9), "preference": WISHES}), max_size=2)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": draw(PREFERRED)}}
    return pod(
        containers=[container({"cpu": draw(CPUS)})],
        nodeSelector=draw(st.sampled_from([{}, {}, {"zone": "1"}])),
        tolerations=draw(st.sampled_from([[], [{"key": "a"}], [{"operator": "Exists"}]])),
        affinity=affinity,
    )


def plainly(
    snapshot: ClusterSnapshot, who: PendingPod, profile: SchedulerProfile
) -> tuple[set[str], dict[str, str]]:
    """The best nodes, and why not the others: every node is asked for itself."""
    opinions = [(weight, plugin.pre_filter(who, snapshot)) for plugin, weight in profile.plugins]
    formed = [(weight, opinion) for weight, opinion in opinions if isinstance(opinion, PreFilterResult)]
    refused: dict[str, str] = {}
    for name in snapshot.node_states:
        for _, opinion in formed:
            if (
                opinion.node_names is not None
                and name not in opinion.node_names
                and opinion.other_nodes_rejection is not None
            ):
                refused.setdefault(name, opinion.other_nodes_rejection.reason)
    for name, state in snapshot.node_states.items():
        for _, opinion in formed:
            verdict = opinion.filter(state) if opinion.filter is not None else None
            if verdict is not None:
                refused.setdefault(name, verdict.reason)
    left = [state for name, state in snapshot.node_states.items() if name not in refused]
    totals = dict.fromkeys([state.name for state in left], 0)
    for weight, opinion in formed:
        scores = (
            opinion.normalize_scores([opinion.score(state) for state in left])
            if opinion.score is not None
            else ()
        )
        for state, score in zip(left, scores, strict=False):
            totals[state.name] += weight * score
    return {name for name, total in totals.items() if total == max(totals.values())}, refused


@given(clusters(), pods(), st.sampled_from(Scoring))
def test_a_plain_loop_over_every_node_finds_the_same(
    snapshot: ClusterSnapshot, asked: Pod, scoring: Scoring
) -> None:
    who, profile = pending_pod(asked), build_profile(PlacementOptions(scoring=scoring))
    best, refused = plainly(snapshot, who, profile)
    told = {
        name: each.rejection.reason for each in find_rejections(snapshot, who, profile) for name in each.nodes
    }
    assert told == refused
    ends = [
        place_pod(snapshot, who, profile, rotation=turn) for turn in range(max(len(snapshot.node_states), 1))
    ]
    assert {end.node_state.name for end in ends if isinstance(end, Placement)} == best
    assert all(isinstance(end, Unschedulable) for end in ends) == (not best)
