"""The churn's own checks find what they are for; a short run on a real control plane finds nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.contract.documents import allocation, claim, pod
from tests.kubernetes.binaries import require_program
from tests.kubernetes.churn.campaign import Campaign, ChurnOptions
from tests.kubernetes.churn.invariants import DeviceHolders, find_stuck
from tests.kubernetes.churn.log_lines import find_patterns
from tests.kubernetes.churn.planes import PLANES

KINDS = ("pods", "resourceclaims", "namespaces", "deployments")


def build_pod(name: str = "p", node: str = "n-1", phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    document = pod(name, uid=f"uid-{name}", **metadata)
    document["spec"]["nodeName"] = node
    return document | {"status": {"phase": phase}}


def build_claim(*users: str, device: str = "gpu-0", name: str = "c", **metadata: Any) -> dict[str, Any]:
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    status: dict[str, Any] = {"allocation": allocation(device)}
    if reserved:
        status["reservedFor"] = reserved
    return claim(name, uid=f"uid-{name}", **metadata) | {"status": status}


def check(**objects: list[dict[str, Any]]) -> list[str]:
    return find_stuck({plural: objects.get(plural, []) for plural in KINDS}, {"n-1"})


def test_a_settled_cluster_has_nothing_stuck() -> None:
    waiting = build_pod("w", node="", phase="Pending")
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    assert check(pods=[build_pod(), waiting], resourceclaims=[build_claim("p")]) == []
    refused = build_pod("r", node="", phase="Pending")
    refused["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    assert check(pods=[refused]) == []
    ended = build_pod("q", phase="Succeeded")
    assert check(pods=[build_pod(), ended], resourceclaims=[build_claim("p", "q")]) == []


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ({"resourceclaims": [build_claim()]}, "is allocated without a consumer"),
        ({"resourceclaims": [build_claim("p")]}, "which is gone"),
        ({"pods": [build_pod(phase="Failed")], "resourceclaims": [build_claim("p")]}, "which has finished"),
        ({"pods": [build_pod(deletionTimestamp="2027-01-15T08:00:00Z")]}, "is still terminating"),
        ({"pods": [build_pod(node="n-2")]}, "on node n-2, which is gone"),
        ({"pods": [build_pod(phase="Pending")]}, "does not start"),
        ({"pods": [build_pod(node="", phase="Pending")]}, "waits without a reason"),
        ({"deployments": [{"metadata": {"name": "d", "generation": 2}}]}, "has not seen its generation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_controller_should_have_finished_is_found(objects: Any, expected: str) -> None:
    (found,) = check(**objects)
    assert expected in found


def test_a_device_with_two_holders_is_found() -> None:
    holders = DeviceHolders()
    holders.apply("ADDED", build_claim("p", name="a"))
    holders.apply("MODIFIED", build_claim("p", "q", name="a"))
    holders.apply("ADDED", build_claim("p", name="b", device="gpu-1"))
    assert (holders.violations, holders.allocations) == ([], 2)
    holders.apply("MODIFIED", build_claim("p", name="b"))
    assert len(holders.violations) == 1
    holders.apply("DELETED", build_claim("p", name="a"))
    holders.apply("ADDED", build_claim("p", name="c", device="gpu-1"))
    assert len(holders.violations) == 1


def test_errors_with_a_usual_cause_are_named_by_it_and_others_by_their_text() -> None:
    lines = [
        'E1118 12:00:00.1   12 a.go:1] "Sync failed" err="d-7: the object has been modified"',
        'E1118 12:00:00.2   12 b.go:2] "Failed" err="dial tcp 127.0.0.1:6443: connect: connection refused"',
        'E1118 12:00:00.3   12 c.go:3] "Failed" err="the server could not find what d-7 wants"',
        'I1118 12:00:00.4   12 d.go:4] "Well"',
        "panic: runtime error: index out of range [5]",
    ]
    assert dict(find_patterns(lines)) == {
        "a.go Sync failed: an object changed meanwhile": 1,
        "the server is not reachable": 1,
        'c.go "Failed" err="the server could not find what NAME wants"': 1,
        "panic: runtime error: index out of range [N]": 1,
    }


@pytest.mark.parametrize("server", ["dray"])
def test_a_short_churn_finds_nothing(server: str, tmp_path: Path) -> None:
    for program in ("kube-scheduler", "kube-controller-manager"):
        require_program(program)
    options = ChurnOptions(seconds=20, epoch=20, scenarios=0, kill_every=8)
    with PLANES[server](tmp_path / "plane") as plane:
        result = asyncio.run(Campaign(plane, options, []).run())
    assert (result.findings, dict(result.refusals)) == ([], {})
    assert result.pods_started > 0
    assert result.allocations > 0
