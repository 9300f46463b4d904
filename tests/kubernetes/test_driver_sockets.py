"""The sockets of a kit driver under a kubelet: a second copy, sockets that are removed, and readiness."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.contract.documents import claim, device_class, pod
from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.faults.living.driver import NAME
from tests.faults.living.sites import build_driver_command
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.images import IMAGE
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node

REGISTERED = "registered with the agent"


class DriverOnNode:
    """A driver that serves its health."""

    def __init__(self, plane: ControlPlane, node: KubeletNode) -> None:
        self._plane, self._node, self._port = plane, node, free_port()
        address = ["--metrics-address", f"127.0.0.1:{self._port}"]
        self.program: Program = plane.add_command([*self._build_command(), *address], "driver")

    def _build_command(self) -> list[str]:
        return build_driver_command(
            self._plane.folder / "journal",
            "",
            kubelet_dir=self._node.kubelet_dir,
            cdi_dir=self._node.cdi_dir,
            kubeconfig=self._plane.kubeconfig,
        )

    def start_copy(self) -> Program:
        return self._plane.add_command(self._build_command(), "copy")

    def read_readiness(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz?verbose", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except OSError as failed:
            return 0, str(failed)

    def is_ready(self) -> bool:
        return self.read_readiness()[0] == 200

    def count_registrations(self) -> int:
        return self.program.log.read_text().count(REGISTERED)

    def explain(self) -> str:
        return f"{self.read_readiness()}\n{self.program.read_log_end()}\n{self._node.kubelet.read_log_end()}"


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[KubeletNode]:
    plane.start_controllers("--leader-elect=false")
    plane.start_scheduler()
    with open_kubelet_node(plane) as opened:
        yield opened


@pytest.fixture
def driver(plane: ControlPlane, node: KubeletNode) -> Iterator[DriverOnNode]:
    started = DriverOnNode(plane, node)
    try:
        until(started.is_ready, started.explain)
        yield started
    finally:
        started.program.stop()


def test_a_second_copy_refuses_and_takes_nothing_from_the_first(driver: DriverOnNode) -> None:
    copy = driver.start_copy()
    until(lambda: not copy.running, copy.read_log_end)
    assert f"another process of driver `{NAME}` serves the socket" in copy.read_log_end()
    assert "`--instance`" in copy.read_log_end()
    assert driver.is_ready(), driver.explain()
    assert driver.count_registrations() == 1, "the kubelet has not lost it meanwhile"


def test_removed_sockets_are_made_again_and_the_kubelet_registers_them(
    driver: DriverOnNode, node: KubeletNode, kubectl: Kubectl
) -> None:
    for place in (
        node.kubelet_dir / "plugins" / NAME / "dra.sock",
        node.kubelet_dir / "plugins_registry" / f"{NAME}-reg.sock",
    ):
        place.unlink()
    until(lambda: driver.count_registrations() == 2, driver.explain)
    until(driver.is_ready, driver.explain)
    asking = pod("after", claim_name="after")
    asking["spec"]["containers"][0]["image"] = IMAGE
    kubectl("create", "-f", "-", given=[device_class(), claim("after"), asking])
    until(lambda: kubectl.get("pod", "after")["status"].get("phase") == "Running", driver.explain)
    kubectl("delete", "pod", "after", "--grace-period=0", "--force")


def test_a_driver_is_not_ready_before_a_kubelet_has_registered_it(
    plane: ControlPlane, node: KubeletNode
) -> None:
    node.kubelet.kill()
    driver = DriverOnNode(plane, node)
    try:
        until(lambda: "no agent has registered the driver" in driver.read_readiness()[1], driver.explain)
        until(lambda: "devices are published" in driver.program.log.read_text(), driver.explain)
        assert driver.read_readiness()[0] != 200, driver.explain()
        node.kubelet.start()
        until(driver.is_ready, driver.explain)
    finally:
        driver.program.stop()
