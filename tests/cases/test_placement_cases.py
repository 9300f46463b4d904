"""Cases of placement: a few nodes, a pod, and where it goes or why nowhere.

    nodes          by name: what the node can give, `labels`, `taints` as `key=value:effect`, `cordoned`
    held           by node: requests of the pods that run there
    asks           the requests of the pod; its only container
    pod            its spec in the words of the API
    profile        the document of a scheduler's profile
    placed         the nodes that are as good as each other and better than all others; none without it
    refused        by node: why not, whether or not another node will do
    wakes          without `placed`: what the pod waits for

Every case is played with each turn, so that all nodes that are as good come up, and with nothing but the
plugins that need no claims.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.api.core import Pod
from dray.placement.profile import build_profile, parse_placement_options
from dray.placement.resource_requests import NO_REQUESTS, compute_requests
from dray.placement.scheduling_cycle import Placement, Unschedulable, find_rejections, place_pod
from dray.placement.snapshot import ClusterSnapshot
from tests.tables import table
from tests.unit.placement.pods_and_nodes import container, node, pending_pod, pod, snapshot_of

FOLDER = Path(__file__).parent / "placement"
KEYS = {"case", "nodes", "held", "asks", "pod", "profile", "placed", "refused", "wakes"}
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['case']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for case in table(path)
]


def taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}


def running(requests: dict[str, Any]) -> Pod:
    return pod(containers=[container({name: str(amount) for name, amount in requests.items()})])


def asked(case: dict[str, Any]) -> Pod:
    spec = dict(case.get("pod", {}))
    requests = {name: str(amount) for name, amount in case.get("asks", {}).items()}
    return pod(**{"containers": [container(requests)], **spec})


def cluster(case: dict[str, Any]) -> ClusterSnapshot:
    nodes = []
    for name, outcome in case["nodes"].items():
        said = dict(outcome)
        more = {
            "labels": said.pop("labels", {}),
            "taints": [taint(text) for text in said.pop("taints", [])],
            "unschedulable": said.pop("cordoned", False),
        }
        nodes.append(node(name, {resource: str(amount) for resource, amount in said.items()}, **more))
    needs = {}
    for name, pods in case.get("held", {}).items():
        needs[name] = NO_REQUESTS
        for requests in pods:
            needs[name] = needs[name].add(compute_requests(running(requests)))
    return snapshot_of(*nodes, needs=needs)


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS
    profile = build_profile(parse_placement_options(case.get("profile")))
    seen, who = cluster(case), pending_pod(asked(case))
    outcome = {
        name: each.rejection.reason for each in find_rejections(seen, who, profile) for name in each.nodes
    }
    assert outcome == case.get("refused", {})
    ends = [place_pod(seen, who, profile, rotation=turn) for turn in range(max(len(case["nodes"]), 1))]
    if "placed" in case:
        chosen = [end.node_state.name if isinstance(end, Placement) else "nowhere" for end in ends]
        assert set(chosen) == set(case["placed"])
        return
    [wakes] = {end.wake_signals for end in ends if isinstance(end, Unschedulable)}
    assert sorted(signal.topic for signal in wakes) == case["wakes"]
