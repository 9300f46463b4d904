"""Nodes out of service: their taint, and which pods need not wait for them."""

from __future__ import annotations

import pytest

from dray.api.core import (
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Taint,
    Toleration,
)
from dray.placement.fencing import (
    OUT_OF_SERVICE,
    add_fence_taint,
    allows_forced_deletion,
    build_failed_status,
    is_out_of_service,
    must_evict,
    remove_fence_taint,
)

NOW = "2026-01-01T00:00:00Z"
OTHER = Taint(key="mine", effect="NoSchedule")
FENCE = Taint(key=OUT_OF_SERVICE, value="fenced", effect="NoExecute", time_added=NOW)
BY_HAND = Taint(key=OUT_OF_SERVICE, value="nodeshutdown", effect="NoExecute")
MILD = Taint(key=OUT_OF_SERVICE, effect="NoSchedule")


def node(*taints: Taint, ready: str = "") -> Node:
    said = (NodeCondition(type="Ready", status=ready),) if ready else ()
    return Node(spec=NodeSpec(taints=taints), status=NodeStatus(conditions=said))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), (FENCE,)),
        ((OTHER,), (OTHER, FENCE)),
        ((BY_HAND,), (BY_HAND,)),
        ((MILD,), (MILD, FENCE)),
        ((FENCE, OTHER), (FENCE, OTHER)),
    ],
)
def test_a_fence_is_put_on_once_and_taken_away_whole(
    before: tuple[Taint, ...], after: tuple[Taint, ...]
) -> None:
    assert add_fence_taint(before, now=NOW) == after
    assert remove_fence_taint(after) == tuple(each for each in before if each is OTHER)
    assert remove_fence_taint((OTHER,)) == (OTHER,)


@pytest.mark.parametrize(
    ("seen", "out", "given_up"),
    [
        (node(FENCE), True, True),
        (node(FENCE, ready="Unknown"), True, True),
        (node(BY_HAND, ready="False"), True, True),
        (node(MILD, ready="Unknown"), True, True),
        (node(FENCE, ready="True"), True, False),
        (node(OTHER, ready="Unknown"), False, False),
        (node(), False, False),
    ],
)
def test_a_node_is_given_up_when_it_is_out_of_service_and_not_ready(
    seen: Node, out: bool, given_up: bool
) -> None:
    assert (is_out_of_service(seen), allows_forced_deletion(seen)) == (out, given_up)


def test_a_pod_that_tolerates_the_fence_may_come() -> None:
    tolerant = Pod(spec=PodSpec(tolerations=(Toleration(key=OUT_OF_SERVICE, operator="Exists"),)))
    assert must_evict(Pod(), node(FENCE))
    assert not must_evict(tolerant, node(FENCE))
    assert not must_evict(Pod(), node(Taint(key="other", effect="NoExecute")))


def test_the_status_of_an_evicted_pod_keeps_its_reason() -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node a is gone",
        "lastTransitionTime": NOW,
    }
    assert build_failed_status(Pod(), "node a is gone", now=NOW) == {
        "phase": "Failed",
        "conditions": [condition],
    }
    target = PodCondition(type="DisruptionTarget", status="True", reason="DeletionByTaintManager")
    evicted = Pod(status=PodStatus(conditions=(target,)))
    assert build_failed_status(evicted, "node a is gone", now=NOW) == {"phase": "Failed"}
