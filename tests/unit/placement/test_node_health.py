"""How nodes are: what health makes of taints and conditions, and when pods must leave."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dray.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, Taint, Toleration
from dray.api.meta import ObjectMeta
from dray.clock import format_timestamp
from dray.placement.node_health import (
    NOT_READY,
    STATUS_UNKNOWN_REASON,
    UNREACHABLE,
    NodeReadiness,
    build_returned_condition,
    build_unknown_condition,
    compute_readiness,
    compute_taints,
    find_node_eviction,
    find_ready_condition,
    is_majority_lost,
)

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
OTHERS = Taint(key="example.com/mine", effect="NoExecute")


def node(ready: str = "", *taints: Taint, reason: str = "") -> Node:
    conditions = (NodeCondition(type="Ready", status=ready, reason=reason),) if ready else ()
    return Node(
        metadata=ObjectMeta(name="n"),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(conditions=conditions),
    )


def pair(key: str, when: str = NOW) -> tuple[Taint, ...]:
    return tuple(Taint(key=key, effect=effect, time_added=when) for effect in ("NoSchedule", "NoExecute"))


@pytest.mark.parametrize(
    ("ready", "silent", "health"),
    [
        ("True", False, NodeReadiness.WELL),
        ("", False, NodeReadiness.WELL),
        ("False", False, NodeReadiness.NOT_READY),
        ("Unknown", False, NodeReadiness.WELL),
        ("True", True, NodeReadiness.LOST),
        ("False", True, NodeReadiness.LOST),
    ],
)
def test_how_a_node_is(ready, silent, health):
    assert compute_readiness(node(ready), lease_expired=silent) is health


def test_taints_say_how_a_node_is_and_leave_those_of_others_alone():
    assert compute_taints(node("True", OTHERS), NodeReadiness.LOST, now=NOW) == (OTHERS, *pair(UNREACHABLE))
    assert compute_taints(node("True", OTHERS), NodeReadiness.NOT_READY, now=NOW) == (
        OTHERS,
        *pair(NOT_READY),
    )
    lost = node("True", *pair(UNREACHABLE, THEN), OTHERS)
    assert compute_taints(lost, NodeReadiness.LOST, now=NOW) is lost.spec.taints, (
        "they count from when they came"
    )
    assert compute_taints(lost, NodeReadiness.NOT_READY, now=NOW) == (OTHERS, *pair(NOT_READY))
    assert compute_taints(lost, NodeReadiness.WELL, now=NOW) == (OTHERS,)
    half = node("True", pair(UNREACHABLE, THEN)[0])
    assert compute_taints(half, NodeReadiness.LOST, now=NOW) == (
        pair(UNREACHABLE, THEN)[0],
        pair(UNREACHABLE)[1],
    )


def test_the_previous_condition_returns_when_a_node_is_back():
    gone = build_unknown_condition(node("False", reason="Sick"), now=NOW)
    assert gone is not None
    assert (gone.status, gone.reason, gone.last_transition_time) == ("Unknown", STATUS_UNKNOWN_REASON, NOW)
    lost = replace(node(), status=NodeStatus(conditions=(gone,)))
    assert build_unknown_condition(lost, now=NOW) is None
    back = build_returned_condition(lost, "False", now=NOW)
    assert back is not None
    assert (back.type, back.status) == ("Ready", "False")
    assert build_returned_condition(lost, "", now=NOW) is None, "nobody knows what it said"
    assert build_returned_condition(node("True"), "False", now=NOW) is None, "it speaks for itself"
    assert build_returned_condition(node("Unknown", reason="Other"), "True", now=NOW) is None
    assert find_ready_condition(node()) is None


@pytest.mark.parametrize(
    ("lost", "known", "most"),
    [(1, 1, False), (2, 2, False), (1, 3, False), (2, 3, True), (5, 10, False), (6, 10, True), (0, 5, False)],
)
def test_when_most_are_lost_it_is_not_the_nodes(lost, known, most):
    assert is_majority_lost(lost, known) is most


def pod(*tolerations: Toleration) -> Pod:
    return Pod(spec=PodSpec(node_name="n", tolerations=tolerations))


def enduring(seconds: int | None, key: str = UNREACHABLE) -> Toleration:
    return Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "when"),
    [
        ((), THEN),
        ((enduring(300),), "2026-01-01T00:05:00Z"),
        ((enduring(300), enduring(60)), "2026-01-01T00:01:00Z"),
        ((enduring(None), enduring(60)), "2026-01-01T00:01:00Z"),
        ((enduring(None),), None),
        ((enduring(-5),), THEN),
        ((enduring(300, NOT_READY),), THEN),
        ((enduring(2**62),), "9999-01-01T00:00:00Z"),
    ],
)
def test_when_a_pod_must_leave(tolerations, when):
    leave = find_node_eviction(pod(*tolerations), pair(UNREACHABLE, THEN))
    assert (None if leave is None else format_timestamp(leave.at)) == when


def test_the_first_taint_that_is_over_counts_and_only_those_that_end_pods():
    taints = (*pair(UNREACHABLE, THEN), Taint(key="a", effect="NoExecute", time_added=NOW))
    leave = find_node_eviction(pod(enduring(300)), taints)
    assert leave is not None
    assert leave.taint.key == UNREACHABLE
    assert leave.why == "the node has the taint node.kubernetes.io/unreachable:NoExecute"
    assert find_node_eviction(pod(), [Taint(key="a", effect="NoSchedule")]) is None
