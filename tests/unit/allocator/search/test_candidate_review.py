"""A place of the walk stood at again: the first failing rule of every candidate.

That it refuses what the search refused there is a law, see tests/unit/explain/test_laws.
"""

from __future__ import annotations

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import AllocationRequest, normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.candidate_review import CandidateReview
from dray.allocator.search.trace import DeadEnd, Pick, SearchPoint, Solved
from dray.api.resource import ResourceClaim
from tests.unit.explain.cluster import Cluster, attribute, claim, request


def asked(cluster: Cluster, *claims: ResourceClaim) -> tuple[AllocationRequest, NodeShape]:
    inventory = cluster.inventory
    return normalize_claims(claims, inventory.classes.get), inventory.get_node_view(cluster.nodes[0]).shape


def reasons(
    ask: AllocationRequest, shape: NodeShape, picks: list[Pick], point: SearchPoint
) -> list[RefusalReason | None]:
    told = CandidateReview(ask, shape, picks).find_refusals(point)
    return [refusal.reason if refusal is not None else None for refusal in told.values()]


def test_the_review_reports_the_first_failing_rule_not_the_last():
    taint = "taint=a/b:NoSchedule"
    lines = f"a size=x {taint} held=ml/old\nb held=ml/old {taint}\nc {taint}\nd {taint} numa=1"
    ask, shape = asked(Cluster().node("node-a", lines), claim(same="numa"))
    [dead] = [event for event in search(ask, shape) if isinstance(event, DeadEnd)]
    expected = [RefusalReason.IN_USE, RefusalReason.IN_USE, RefusalReason.TAINTED, RefusalReason.TAINTED]
    assert reasons(ask, shape, [], dead.point) == expected


def test_the_review_names_the_point_that_took_a_candidate():
    ask, shape = asked(Cluster().node("node-a", "gpu-0"), claim(request("a"), request("b")))
    events = list(search(ask, shape))
    first = events[0].pick  # type: ignore[union-attr] # the first event takes the only device
    dead = next(event for event in events if isinstance(event, DeadEnd))
    refusal = CandidateReview(ask, shape, [first]).find_refusals(dead.point)[0]
    assert refusal is not None
    assert refusal.reason is RefusalReason.TAKEN_HERE
    assert refusal.detail == first.point


def test_candidates_that_were_not_evaluated_stay_so():
    ask, shape = asked(
        Cluster().node("node-a", "gpu-0 size=x\ngpu-1"), claim(request(where=[attribute("size", "x")]))
    )
    *_, ending = search(ask, shape)
    assert isinstance(ending, Solved)
    assert list(CandidateReview(ask, shape, []).find_refusals(ending.picks[0].point)) == [0]
