"""How nodes are: what health makes of taints and conditions, and when pods must leave."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dray.api.core import Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodSpec, Taint, Toleration
from dray.api.meta import ObjectMeta
from dray.clock import timestamp
from dray.placement.node_health import (
    NOT_READY,
    SILENT,
    UNREACHABLE,
    Health,
    health_of,
    most_are_lost,
    must_leave,
    ready_of,
    returned,
    silenced,
    taints_of,
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
        ("True", False, Health.WELL),
        ("", False, Health.WELL),
        ("False", False, Health.NOT_READY),
        ("Unknown", False, Health.WELL),
        ("True", True, Health.LOST),
        ("False", True, Health.LOST),
    ],
)
def test_how_a_node_is(ready, silent, health):
    assert health_of(node(ready), silent=silent) is health


def test_taints_say_how_a_node_is_and_leave_those_of_others_alone():
    assert taints_of(node("True", OTHERS), Health.LOST, now=NOW) == (OTHERS, *pair(UNREACHABLE))
    assert taints_of(node("True", OTHERS), Health.NOT_READY, now=NOW) == (OTHERS, *pair(NOT_READY))
    lost = node("True", *pair(UNREACHABLE, THEN), OTHERS)
    assert taints_of(lost, Health.LOST, now=NOW) is lost.spec.taints, "they count from when they came"
    assert taints_of(lost, Health.NOT_READY, now=NOW) == (OTHERS, *pair(NOT_READY))
    assert taints_of(lost, Health.WELL, now=NOW) == (OTHERS,)
    half = node("True", pair(UNREACHABLE, THEN)[0])
    assert taints_of(half, Health.LOST, now=NOW) == (pair(UNREACHABLE, THEN)[0], pair(UNREACHABLE)[1])


def test_what_a_node_said_is_said_again_when_it_is_back():
    gone = silenced(node("False", reason="Sick"), now=NOW)
    assert gone is not None
    assert (gone.status, gone.reason, gone.last_transition_time) == ("Unknown", SILENT, NOW)
    lost = replace(node(), status=NodeStatus(conditions=(gone,)))
    assert silenced(lost, now=NOW) is None
    back = returned(lost, "False", now=NOW)
    assert back is not None
    assert (back.type, back.status) == ("Ready", "False")
    assert returned(lost, "", now=NOW) is None, "nobody knows what it said"
    assert returned(node("True"), "False", now=NOW) is None, "it speaks for itself"
    assert returned(node("Unknown", reason="Other"), "True", now=NOW) is None
    assert ready_of(node()) is None


@pytest.mark.parametrize(
    ("lost", "known", "most"),
    [(1, 1, False), (2, 2, False), (1, 3, False), (2, 3, True), (5, 10, False), (6, 10, True), (0, 5, False)],
)
def test_when_most_are_lost_it_is_not_the_nodes(lost, known, most):
    assert most_are_lost(lost, known) is most


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
    leave = must_leave(pod(*tolerations), pair(UNREACHABLE, THEN))
    assert (None if leave is None else timestamp(leave.at)) == when


def test_the_first_taint_that_is_over_counts_and_only_those_that_end_pods():
    taints = (*pair(UNREACHABLE, THEN), Taint(key="a", effect="NoExecute", time_added=NOW))
    leave = must_leave(pod(enduring(300)), taints)
    assert leave is not None
    assert leave.taint.key == UNREACHABLE
    assert leave.why == "the node has the taint node.kubernetes.io/unreachable:NoExecute"
    assert must_leave(pod(), [Taint(key="a", effect="NoSchedule")]) is None
