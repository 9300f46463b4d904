"""Cordoned nodes."""

from __future__ import annotations

from typing import Any

import pytest

from dray.placement.plugins.node_unschedulable import NodeUnschedulable
from dray.placement.rejections import PluginRejection, Signal, Topic
from tests.unit.placement.pods_and_nodes import find_rejection, node, node_state, pod, pre_filter_result

KEY = "node.kubernetes.io/unschedulable"
CORDONED = PluginRejection("NodeUnschedulable", "unschedulable (cordoned)", frozenset({Signal(Topic.NODES)}))


def test_a_cordoned_node_takes_no_new_pods() -> None:
    assert find_rejection(NodeUnschedulable(), pod(), node_state(node(unschedulable=True))) == CORDONED
    assert find_rejection(NodeUnschedulable(), pod(), node_state(node())) is None


@pytest.mark.parametrize(
    ("toleration", "helps"),
    [
        ({"key": KEY, "operator": "Exists"}, True),
        ({"key": KEY, "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": KEY, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": KEY, "value": "true"}, False),
        ({"key": "dedicated", "operator": "Exists"}, False),
    ],
)
def test_a_pod_may_tolerate_it(toleration: dict[str, Any], helps: bool) -> None:
    tolerant = pod(tolerations=[toleration])
    assert (pre_filter_result(NodeUnschedulable(), tolerant, node()) is None) is helps
    told = find_rejection(NodeUnschedulable(), tolerant, node_state(node(unschedulable=True)))
    assert told == (None if helps else CORDONED)
