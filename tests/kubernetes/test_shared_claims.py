"""One claim for pods of dray's scheduler and of kube-scheduler, whoever allocates it, on a kube-apiserver."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.documents import claim, device_class, pod, resource_slice
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import MASTERS, ControlPlane, Program

SCHEDULERS = ("dray", "default-scheduler")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def start_dray(plane: ControlPlane, service: str, *flags: str, name: str = "") -> Program:
    """`dray scheduler` or `dray controller`, with the rights of an administrator."""
    kubeconfig = plane.write_kubeconfig(f"dray:{name or service}", MASTERS)
    arguments = [sys.executable, "-m", "dray", service, "--kubeconfig", str(kubeconfig), "--no-leader-elect"]
    source = str(Path(__file__).parents[2] / "src")
    return plane.add_command([*arguments, *flags], name or f"dray-{service}", {"PYTHONPATH": source})


@pytest.fixture(scope="module", autouse=True)
def both_schedulers(plane: ControlPlane) -> None:
    """A node with devices, kube-scheduler, and dray's scheduler."""
    plane.create_node("node-a")
    plane.build_kubectl()("create", "-f", "-", given=[device_class(), resource_slice("slice-a", devices=20)])
    plane.start_scheduler()
    start_dray(plane, "scheduler", "--scheduler-name", "dray")


def run_pod(kubectl: Kubectl, name: str, scheduler: str, claim_name: str) -> None:
    """Create a pod and wait until it has a node."""
    asking = pod(name, claim_name=claim_name)
    asking["spec"]["schedulerName"] = scheduler
    kubectl("create", "-f", "-", given=asking)
    until(
        lambda: bool(kubectl.get("pod", name)["spec"].get("nodeName")),
        lambda: kubectl("describe", "pod", name).out,
    )


def create_with_white_space(kubectl: Kubectl, folder: Path, name: str) -> None:
    """Create a claim as Kubernetes' Python client writes it; kubectl itself would remove white space."""
    asking: dict[str, Any] = claim(name)
    asking["spec"]["devices"]["config"] = [
        {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "fast", "lanes": [1, 2]}}}
    ]
    file = folder / "claim.json"
    file.write_text(json.dumps(asking))
    kubectl("create", "--raw", CLAIMS, "-f", str(file))


@pytest.mark.parametrize("first", SCHEDULERS)
@pytest.mark.parametrize("second", SCHEDULERS)
@pytest.mark.parametrize("white_space", [False, True])
def test_a_claim_is_shared_whoever_allocates_it(
    kubectl: Kubectl, tmp_path: Path, first: str, second: str, white_space: bool
) -> None:
    name = f"{first}-{second}-{white_space}".lower()
    if white_space:
        create_with_white_space(kubectl, tmp_path, name)
    else:
        kubectl("create", "-f", "-", given=claim(name))
    run_pod(kubectl, f"{name}-1", first, name)
    run_pod(kubectl, f"{name}-2", second, name)
    found = kubectl.get("resourceclaim", name)
    assert [consumer["name"] for consumer in found["status"]["reservedFor"]] == [f"{name}-1", f"{name}-2"]
    assert found["status"]["allocation"]["allocationTimestamp"]
    assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
