"""The harness itself: a kubelet runs a real container."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.documents import pod
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.images import IMAGE
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[KubeletNode]:
    plane.start_controllers()
    plane.start_scheduler()
    with open_kubelet_node(plane) as opened:
        yield opened


def test_a_container_runs(node: KubeletNode, kubectl: Kubectl) -> None:
    running = pod("first")
    running["spec"]["containers"][0]["image"] = IMAGE
    kubectl("create", "-f", "-", given=running)

    def is_running() -> bool:
        return bool(kubectl.get("pod", "first")["status"].get("phase") == "Running")

    until(is_running, lambda: kubectl("describe", "pod", "first").out + node.kubelet.read_log_end())
    assert node.run_ctr("task", "ls", "-q").split()
