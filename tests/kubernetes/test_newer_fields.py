"""Fields of Kubernetes 1.37 that dray does not build yet, on a kube-apiserver with their gates on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.documents import claim, device_class, pod, request, resource_slice
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane
from tests.kubernetes.dray_services import start_dray

GATES = {"DRAOptionalNodeOperations": True, "DRADerivedAttributes": True}
NOT_BUILT = "is not supported by this dray yet"


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A server with the gates, a node whose slice has a field of theirs, and dray's scheduler."""
    require_program("kube-apiserver")
    folder: Path = tmp_path_factory.mktemp("plane")
    with ControlPlane.open(folder, ApiServerOptions(feature_gates=GATES)) as plane:
        kubectl = plane.build_kubectl()
        plane.create_node("node-a")
        newer = resource_slice("slice-a")
        newer["spec"]["skipNodeOperations"] = ["NodePrepareResources", "NodeUnprepareResources"]
        kubectl("create", "-f", "-", given=[device_class(), newer])
        start_dray(plane, "scheduler", "--scheduler-name", "dray")
        yield kubectl


def create_pod(kubectl: Kubectl, name: str) -> None:
    waiting = pod(name, claim_name=name)
    waiting["spec"]["schedulerName"] = "dray"
    kubectl("create", "-f", "-", given=waiting)


def read_reason(kubectl: Kubectl, name: str) -> str:
    """What the condition of a pod without a node says."""
    conditions = kubectl.get("pod", name)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")


def test_the_devices_of_such_a_slice_are_not_used(kubectl: Kubectl) -> None:
    stored = kubectl.get("resourceslice", "slice-a")
    assert stored["spec"]["skipNodeOperations"], "this server drops the field"
    kubectl("create", "-f", "-", given=claim("a"))
    create_pod(kubectl, "a")
    until(lambda: NOT_BUILT in read_reason(kubectl, "a"), lambda: kubectl.get("pod", "a"))
    said = read_reason(kubectl, "a")
    assert f"pool gpu.example.com/node-a is not usable: `spec.skipNodeOperations` {NOT_BUILT}" in said
    assert "allocation" not in kubectl.get("resourceclaim", "a").get("status", {})


def test_such_a_claim_is_not_allocated(kubectl: Kubectl) -> None:
    derived = [{"name": "example.com/index", "expression": "1"}]
    asking = claim("b", requests=[request(derivedAttributes=derived)])
    asking["spec"]["devices"]["constraints"] = [{"matchAttribute": "example.com/index"}]
    kubectl("create", "-f", "-", given=asking)
    create_pod(kubectl, "b")
    until(lambda: NOT_BUILT in read_reason(kubectl, "b"), lambda: kubectl.get("pod", "b"))
    path = "spec.devices.requests[0].exactly.derivedAttributes"
    assert f"claim default/b: `{path}` {NOT_BUILT}" in read_reason(kubectl, "b")
