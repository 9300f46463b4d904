"""Pods that name their node."""

from __future__ import annotations

from dray.placement.framework import PreFilterResult
from dray.placement.plugins.node_name import NodeName
from dray.placement.rejections import PluginRejection, Signal, Topic
from tests.unit.placement.pods_and_nodes import find_rejection, node, node_state, pod, pre_filter_result


def test_a_pod_that_names_no_node_is_none_of_its_business() -> None:
    assert pre_filter_result(NodeName(), pod(), node("a")) is None


def test_only_the_named_node_is_in_question() -> None:
    elsewhere = PluginRejection(
        "NodeName", "not the node that the pod names", frozenset({Signal(Topic.NODES)})
    )
    assert pre_filter_result(NodeName(), pod(nodeName="a"), node("a")) == PreFilterResult(
        frozenset({"a"}), elsewhere
    )
    assert find_rejection(NodeName(), pod(nodeName="a"), node_state(node("a"))) is None
    assert find_rejection(NodeName(), pod(nodeName="a"), node_state(node("b"))) == elsewhere
