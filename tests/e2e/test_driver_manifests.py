"""A vendor deploys a driver: manifests by kubectl, its parts with the accounts that these make."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.documents import resource_slice
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import SOON, until
from tests.e2e.processes import Cluster, Node, Process, cluster
from tests.e2e.server import clean_environment

VENDOR = (sys.executable, "-m", "tests.e2e.programs.vendor")
DRIVER = "card.example.com"
NAMESPACE = "card-example-com"
CLAIMS = "resourceclaims.cdi.k8s.io"
GPU = """
import sys
from dray.driver import Driver, run
class Gpu(Driver):
    "A driver of devices."
    name = "gpu.example.com"
run(Gpu, sys.argv[1:])
"""


def printed(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=SOON, check=True)
    return done.stdout


class Site:
    """A cluster with a node, an administrator, and kubeconfigs of accounts."""

    def __init__(self, started: Cluster, kubectl: Kubectl, folder: Path) -> None:
        self.cluster, self.kubectl, self._folder = started, kubectl, folder

    def account(self, namespace: str, name: str, *bound: str) -> Path:
        """A kubeconfig with a token of a service account, bound to a pod when one is named."""
        options = [
            word for pod in bound for word in ("--bound-object-kind", "Pod", "--bound-object-name", pod)
        ]
        if bound:
            uid = self.kubectl("get", "pod", bound[0], "-n", namespace, "-o", "jsonpath={.metadata.uid}").out
            options += ["--bound-object-uid", uid]
        token = self.kubectl("create", "token", name, "-n", namespace, *options).out.strip()
        document = yaml.safe_load(self.cluster.server.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": token}
        file = self._folder / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return file

    def pod_of(self, namespace: str, account: str, node: str) -> None:
        """What stands for the driver's own pod: its token says on which node it is."""
        container = {"name": "driver", "image": "i", "command": ["sleep", "600"]}
        spec = {"serviceAccountName": account, "nodeName": node, "containers": [container]}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "namespace": namespace}}
        self.kubectl("create", "-n", namespace, "-f", "-", given=document | {"spec": spec})

    def started(self, name: str, ready: str, *arguments: str) -> Process:
        return self.cluster._started(Process(arguments, self._folder / f"{name}.log", ready))


@pytest.fixture
def site(tmp_path: Path, home: Path, kubectl_program: str) -> Iterator[Site]:
    with cluster(tmp_path) as started:
        kubectl = Kubectl(kubectl_program, clean_environment(home, started.server.kubeconfig), "default")
        yield Site(started, kubectl, tmp_path)


def working(site: Site) -> Node:
    site.cluster.service("scheduler", "dray:scheduler")
    site.cluster.service("controller", "dray:controller")
    return site.cluster.node("node-a")


@pytest.mark.req("K3063-045", "K3063-053", "K3063-021")
def test_a_vendor_deploys_a_driver_of_two_parts_by_yaml_and_its_resource_reaches_a_container(
    site: Site,
) -> None:
    kubectl, node = site.kubectl, working(site)
    text = printed(*VENDOR, "manifests", "--image", "registry.example.com/card:1")
    kubectl("apply", "-n", NAMESPACE, "-f", "-", given=text)
    again = kubectl("apply", "-n", NAMESPACE, "-f", "-", given=text).out.splitlines()
    assert all(line.endswith("unchanged") for line in again), again

    controller = site.account(NAMESPACE, f"{NAMESPACE}-controller")
    options = ("--elect", "--namespace", NAMESPACE, "--kubeconfig", str(controller))
    site.started("card-controller", "allocating", *VENDOR, "controller", *options)
    site.pod_of(NAMESPACE, f"{NAMESPACE}-node", node.name)
    on_node = site.account(NAMESPACE, f"{NAMESPACE}-node", "driver")
    places = ("--plugins", node.root / "plugins", "--plugins-registry", node.root / "plugins_registry")
    more = (*map(str, places), "--cdi-dir", str(node.root / "cdi"), "--kubeconfig", str(on_node))
    site.started("card-node", "serving", *VENDOR, "run", "--node", node.name, *more)

    kubectl("create", "-f", "-", given=_pod("train", "fast"))
    until(lambda: _phase(kubectl, "train") == "Succeeded", lambda: _seen(site))
    assert kubectl("logs", "train").out.strip() == "fast"
    kubectl("delete", "pod", "train")
    until(lambda: kubectl.get(CLAIMS)["items"] == [], lambda: _seen(site))


def _pod(name: str, speed: str) -> dict[str, Any]:
    entry = {
        "name": "card",
        "template": {"spec": {"resourceClassName": DRIVER, "parameters": {"speed": speed}}},
    }
    container = {
        "name": "c",
        "image": "i",
        "command": ["sh", "-c", "echo $CARD_SPEED"],
        "resources": {"claims": [{"name": "card"}]},
    }
    spec = {"restartPolicy": "Never", "resourceClaims": [entry], "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _phase(kubectl: Kubectl, name: str) -> str:
    return str(kubectl.get("pod", name)["status"].get("phase"))


def _seen(site: Site) -> str:
    logs = "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in site._folder.glob("*.log"))
    return site.kubectl("get", "pods,resourceclaims.cdi.k8s.io,events", "-o", "wide").out + logs


def test_s04_the_token_of_a_drivers_pod_publishes_on_its_own_node_and_nowhere_else(site: Site) -> None:
    kubectl = site.kubectl
    program = (sys.executable, "-c", GPU)
    text = printed(*program, "manifests", "--image", "registry.example.com/gpu:1", "--namespace", "gpus")
    kubectl("apply", "-n", "gpus", "-f", "-", given=text)
    for name in ("node-a", "node-b"):
        kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    site.pod_of("gpus", "gpu-example-com-node", "node-a")
    bound = str(site.account("gpus", "gpu-example-com-node", "driver"))

    made = kubectl("create", "-f", "-", given=resource_slice("mine"), KUBECONFIG=bound)
    assert "created" in made.out
    other = resource_slice("theirs")
    other["spec"]["driver"] = "other.example.com"
    for wrong, says in (
        (resource_slice("elsewhere", "node-b"), 'is on node "node-a"'),
        (other, 'and not for "other.example.com"'),
    ):
        assert says in kubectl("create", "-f", "-", given=wrong, KUBECONFIG=bound, fails=True).err
    for verb, what, may in (
        ("patch", "resourceslices.resource.k8s.io", "yes"),
        ("update", "resourceslices.resource.k8s.io", "no"),
        ("list", "pods", "no"),
        ("create", "resourceclaims.resource.k8s.io", "no"),
        ("get", "secrets", "no"),
    ):
        said = kubectl("auth", "can-i", verb, what, KUBECONFIG=bound, fails=may == "no")
        assert said.out.split()[0] == may, (verb, what)
