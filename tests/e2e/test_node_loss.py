"""Nodes that are lost: an agent and everything on its node is killed, with a device that other nodes reach.

R-13 with the real agent; the campaign with many nodes is `tests/faults/nodeloss`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Node, Process, cluster, emptied
from tests.e2e.server import clean_environment, command
from tests.e2e.test_node import FROM_TEMPLATE, TALKS, pod, runs, says
from tests.e2e.test_node import template as one_device
from tests.e2e.use_case_cluster import fabric

DRIVER = "plain.example.com"
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
LONG = 120.0
"""Seconds in which a silent node is found lost, on a busy machine."""
SILENCE = "12"
"""Seconds without a sign of life that make a node lost: a little more than agents take between two."""
SERVICES = (
    ("scheduler", "dray:scheduler"),
    ("controller", "dray:controller", "--upkeep", "--node-silence", SILENCE),
)


class Place:
    """Two nodes that reach one device."""

    def __init__(self, processes: Cluster, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        names = ("one", "two")
        with ThreadPoolExecutor() as hands:
            services = [hands.submit(processes.service, *each) for each in SERVICES]
            self.nodes = dict(zip(names, hands.map(processes.node, names), strict=True))
            self.drivers = {name: self._driver(processes, node) for name, node in self.nodes.items()}
            for service in services:
                service.result()
        kubectl("create", "-f", "-", given=[fabric(DRIVER, "nic-0"), one_device()])
        self._server = processes.server

    def _driver(self, processes: Cluster, node: Node) -> Process:
        driver = processes.plain_driver(self.kubectl, node, DRIVER, "--devices", "0")
        until(lambda: DRIVER in node.agent.log.read_text(), node.agent.log.read_text)
        return driver

    def fail(self, name: str) -> None:
        """Power fails on a node: its agent, its drivers and what runs there are gone at once."""
        self.nodes[name].agent.stop(signal.SIGKILL)
        self.drivers[name].stop(signal.SIGKILL)
        emptied(self.nodes[name].root / "containers")

    def power(self, name: str) -> None:
        self.drivers[name].start()
        self.nodes[name].agent.start()

    def dray(self, *words: str) -> str:
        done = subprocess.run(
            command(*words, "--kubeconfig", str(self._server.kubeconfig)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def taints(self, name: str) -> set[str]:
        return {taint["key"] for taint in self.kubectl.get("node", name)["spec"].get("taints", ())}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kubectl_program: str, home: Path) -> Iterator[Place]:
    with cluster(tmp_path_factory.mktemp("loss")) as processes:
        kubectl = Kubectl(kubectl_program, clean_environment(home, processes.server.kubeconfig), "default")
        yield Place(processes, kubectl)


def eventually(is_so: Callable[[], bool], told: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end, told()
        time.sleep(0.5)


def waits(kubectl: Kubectl, name: str) -> None:
    """A pod has no node, and still has none after a while in which it could have got one."""
    time.sleep(1.0)
    assert "nodeName" not in kubectl.get("pod", name)["spec"]


@pytest.mark.req("K3063-159")
def test_a_device_of_a_failed_node_is_used_elsewhere_once_the_node_is_fenced(place: Place) -> None:
    kubectl = place.kubectl
    kubectl("create", "-f", "-", given=pod("first", TALKS, FROM_TEMPLATE))
    failed = runs(kubectl, "first")["spec"]["nodeName"]
    (other,) = set(place.nodes) - {failed}
    place.fail(failed)
    kubectl("create", "-f", "-", given=pod("second", TALKS, FROM_TEMPLATE))
    waits(kubectl, "second")
    assert f"{DRIVER}/fabric/nic-0 is free" in place.dray("fence", "node", failed, "--yes")
    assert runs(kubectl, "second")["spec"]["nodeName"] == other
    assert "got=nic-0" in says(kubectl, "second", "got=")
    eventually(lambda: UNREACHABLE in place.taints(failed), lambda: kubectl("get", "nodes", "-o", "yaml").out)
    assert kubectl("get", "nodes", failed, "--no-headers").out.split()[1] == "NotReady"
    place.power(failed)
    eventually(lambda: place.taints(failed) == {OUT_OF_SERVICE}, place.nodes[failed].agent.log.read_text)
    kubectl("cordon", other)
    kubectl("create", "-f", "-", given=pod("third", TALKS))
    waits(kubectl, "third")
    place.dray("unfence", "node", failed)
    assert runs(kubectl, "third")["spec"]["nodeName"] == failed
    kubectl("uncordon", other)
    kubectl("delete", "pod", "second", "third", "--timeout=60s")


def test_a_node_that_comes_back_gives_the_device_back_itself(place: Place) -> None:
    kubectl = place.kubectl
    kubectl("create", "-f", "-", given=pod("first", TALKS, FROM_TEMPLATE))
    failed = runs(kubectl, "first")["spec"]["nodeName"]
    place.nodes[failed].agent.stop(signal.SIGKILL)  # what runs there runs on
    kubectl("delete", "pod", "first", "--force", "--grace-period=0")
    kubectl("create", "-f", "-", given=pod("second", TALKS, FROM_TEMPLATE))
    waits(kubectl, "second")
    assert len(kubectl.get("preparations")["items"]) == 1
    place.nodes[failed].agent.start()
    runs(kubectl, "second")
    kubectl("delete", "pod", "second", "--timeout=60s")
