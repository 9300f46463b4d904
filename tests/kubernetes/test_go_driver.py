"""A driver written in Go, unmodified, on dray server: it publishes in protobuf, and its claims are prepared.

The driver is that of Kubernetes' end-to-end tests, on the library with which drivers are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Process, cluster
from tests.e2e.server import clean_environment
from tests.kubernetes.binaries import require_program
from tests.kubernetes.dray_plane import DrayPlane
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node
from tests.kubernetes.record_clients import start_driver
from tests.kubernetes.recorded_workload import DRIVER, NAMESPACE, build_claims

POD = "both"
"""The pod with a claim from a template and a claim that it shares, whose parameters are empty."""


def list_workload(image: str | None = None) -> list[Any]:
    """The class, the claims and the pod that uses them."""
    kept = [each for each in build_claims() if each["kind"] != "Pod" or each["metadata"]["name"] == POD]
    for each in kept:
        if image and each["kind"] == "Pod":
            each["spec"]["containers"][0] |= {"image": image, "command": ["sh", "-c", "env; exec sleep 600"]}
    return kept


def check_prepared(kubectl: Kubectl, explain: Any) -> None:
    """The pod runs with two devices of the driver, and ends without leaving an allocation."""

    def is_running() -> bool:
        found = kubectl("get", "pod", POD, "-o", "json", fails=None)
        return found.code == 0 and found.document["status"].get("phase") == "Running"

    until(is_running, explain)
    claims = kubectl.get("resourceclaims")["items"]
    devices = [each["status"]["allocation"]["devices"]["results"][0]["device"] for each in claims]
    assert len({*devices}) == len(claims) == 2
    (shared,) = [each for each in claims if each["metadata"]["name"] == "shared"]
    assert shared["spec"]["devices"]["config"] == [{"opaque": {"driver": DRIVER, "parameters": {}}}]
    kubectl("delete", "pod", POD, "--timeout=60s")
    until(lambda: "allocation" not in kubectl.get("resourceclaim", "shared").get("status", {}), explain)


def is_published(kubectl: Kubectl) -> bool:
    slices = kubectl.get("resourceslices")["items"]
    return [len(each["spec"]["devices"]) for each in slices if each["spec"]["driver"] == DRIVER] == [4]


@pytest.fixture
def kubelet_node(tmp_path: Path) -> Iterator[KubeletNode]:
    """A server of dray, with everything else of Kubernetes."""
    for program in ("kube-scheduler", "kube-controller-manager", "kubelet", "dra-test-driver"):
        require_program(program)
    with DrayPlane.open(tmp_path / "plane") as plane:
        plane.start_controllers()
        plane.start_scheduler("--leader-elect=true")
        with open_kubelet_node(plane) as node:
            yield node


def test_a_kubelet_prepares_claims_of_a_go_driver(kubelet_node: KubeletNode) -> None:
    plane = kubelet_node.plane
    kubectl = plane.build_kubectl(NAMESPACE)
    driver = start_driver(plane, kubelet_node)
    until(lambda: is_published(kubectl), driver.read_log_end)
    kubectl("create", "-f", "-", given=list_workload())
    check_prepared(kubectl, lambda: kubectl("describe", "pod", POD).out + kubelet_node.kubelet.read_log_end())
    written = plane.api_server.log.parent / "data" / "audit.log"
    assert "dra-test-driver/" in written.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Cluster]:
    """A control plane and a node that are all of dray."""
    with cluster(tmp_path) as processes:
        processes.service("scheduler", "dray:scheduler")
        processes.service("controller", "dray:controller")
        yield processes


def test_the_node_agent_prepares_claims_of_a_go_driver(place: Cluster, tmp_path: Path) -> None:
    program = require_program("dra-test-driver")
    node = place.node("worker")
    (node.root / "cdi").mkdir(mode=0o700, exist_ok=True)
    (node.root / "plugins" / DRIVER).mkdir(parents=True, exist_ok=True)
    kubeconfig = place.credentials(
        DRIVER, f"dray:driver:{DRIVER}", "dray:drivers", f"dray:on-node:{node.name}"
    )
    arguments = (
        *(str(program), f"--kubeconfig={kubeconfig}", "kubelet-plugin", f"--node-name={node.name}"),
        f"--plugin-registration-path={node.root / 'plugins_registry'}",
        *(f"--datadir={node.root / 'plugins'}", f"--cdi-dir={node.root / 'cdi'}"),
    )
    kubectl = build_kubectl(place, tmp_path)
    driver = Process(arguments, tmp_path / "driver.log", "")
    driver.start()
    try:
        until(lambda: is_published(kubectl), driver.log.read_text)
        kubectl("create", "-f", "-", given=list_workload("none:1"))
        check_prepared(
            kubectl, lambda: kubectl("describe", "pod", POD).out + (tmp_path / "worker.log").read_text()
        )
    finally:
        driver.stop()


def build_kubectl(place: Cluster, home: Path) -> Kubectl:
    return Kubectl("kubectl", clean_environment(home, place.server.kubeconfig), NAMESPACE)
