"""Groups of seats that are alike change nothing: a plain walk over every node finds the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.api.core import Node, Pod
from dray.placement.framework import Opinion
from dray.placement.pending_pod import Subject
from dray.placement.plugins.node_resources_fit import Scoring
from dray.placement.profile import Choices, Profile, profile_of
from dray.placement.resource_requests import NOTHING, Needs, needs_of
from dray.placement.scheduling_cycle import Placement, Unplaceable, place, refusals
from dray.placement.snapshot import Snapshot
from tests.unit.placement.seats import asking, container, node, photo, pod, subject

CPUS = st.sampled_from(["0", "1", "2"])
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule"])
TAINT = st.fixed_dictionaries({"key": st.sampled_from("ab"), "effect": EFFECTS})
# Mostly none: only nodes without differences are alike.
TAINTS = st.lists(TAINT, max_size=0) | st.lists(TAINT, max_size=2)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> tuple[Node, Needs]:
    given_ = {"cpu": draw(st.sampled_from(["4", "4", "2"])), "memory": "4", "pods": "3"}
    labels = draw(st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from("12"), max_size=2))
    place_ = node(
        name, given_, labels=labels, taints=draw(TAINTS), unschedulable=draw(st.integers(0, 5)) == 0
    )
    needs = NOTHING
    for cpu in draw(st.lists(CPUS, max_size=0) | st.lists(CPUS, max_size=2)):
        needs = needs.plus(needs_of(asking(cpu=cpu, memory="1")))
    return place_, needs


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    drawn = [draw(nodes(f"n{index}")) for index in range(draw(st.integers(0, 8)))]
    return photo(*[each for each, _ in drawn], needs={each.metadata.name: needs for each, needs in drawn})


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


def plainly(snapshot: Snapshot, who: Subject, profile: Profile) -> tuple[set[str], dict[str, str]]:
    """The best nodes, and why not the others: every node is asked for itself."""
    opinions = [(weight, plugin.opinion(who, snapshot)) for plugin, weight in profile.plugins]
    formed = [(weight, opinion) for weight, opinion in opinions if isinstance(opinion, Opinion)]
    refused: dict[str, str] = {}
    for name in snapshot.seats:
        for _, opinion in formed:
            if opinion.names is not None and name not in opinion.names and opinion.elsewhere is not None:
                refused.setdefault(name, opinion.elsewhere.reason)
    for name, seat in snapshot.seats.items():
        for _, opinion in formed:
            verdict = opinion.filter(seat) if opinion.filter is not None else None
            if verdict is not None:
                refused.setdefault(name, verdict.reason)
    left = [seat for name, seat in snapshot.seats.items() if name not in refused]
    totals = dict.fromkeys([seat.name for seat in left], 0)
    for weight, opinion in formed:
        scores = opinion.spread([opinion.score(seat) for seat in left]) if opinion.score is not None else ()
        for seat, score in zip(left, scores, strict=False):
            totals[seat.name] += weight * score
    return {name for name, total in totals.items() if total == max(totals.values())}, refused


@given(clusters(), pods(), st.sampled_from(Scoring))
def test_a_plain_walk_over_every_node_finds_the_same(
    snapshot: Snapshot, asked: Pod, scoring: Scoring
) -> None:
    who, profile = subject(asked), profile_of(Choices(scoring=scoring))
    best, refused = plainly(snapshot, who, profile)
    told = {name: each.verdict.reason for each in refusals(snapshot, who, profile) for name in each.nodes}
    assert told == refused
    ends = [place(snapshot, who, profile, turn=turn) for turn in range(max(len(snapshot.seats), 1))]
    assert {end.seat.name for end in ends if isinstance(end, Placement)} == best
    assert all(isinstance(end, Unplaceable) for end in ends) == (not best)
