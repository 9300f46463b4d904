"""The classic path (KEP-3063) in real processes: pods and claims by kubectl, drivers that are programs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.classic import classic_claim
from tests.contract.documents import device_class, request, resource_slice
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Process, cluster
from tests.e2e.server import clean_environment

req = pytest.mark.req
NODES = ("node-a", "node-b", "node-c")
CLAIMS = "resourceclaims.cdi.k8s.io"
_numbers = iter(range(1, 1000))


@dataclass(frozen=True)
class Place:
    """A cluster, and a namespace in it."""

    cluster: Cluster
    controller: Process
    kubectl: Kubectl

    @property
    def namespace(self) -> str:
        return self.kubectl.namespace

    def driver(self, capacity: str, *options: str, **parameters: object) -> str:
        """A driver of this test; it and its class have the name that comes back."""
        name = f"{self.namespace}-{next(_numbers)}.example.com"
        self.cluster.driver(self.kubectl, name, capacity, *options, **parameters)
        return name

    def claim(self, name: str, driver: str, mode: str = "Delayed") -> None:
        document = classic_claim(name, mode, self.namespace)
        document["spec"]["resourceClassName"] = driver
        self.kubectl("create", "-f", "-", given=document)

    def pod(self, name: str, *entries: dict[str, Any], **spec: Any) -> None:
        claims = [{"name": entry["name"]} for entry in entries]
        container = {"name": "c", "image": "pause:3", "resources": {"claims": claims}}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"containers": [container], "resourceClaims": list(entries), **spec},
        }
        self.kubectl("create", "-f", "-", given=document)

    def node_of(self, pod: str) -> str:
        return str(self.kubectl.get("pod", pod)["spec"].get("nodeName", ""))

    def bound(self, pod: str) -> str:
        """The node of a pod, when it has one."""
        self.kubectl("wait", "--for=jsonpath={.spec.nodeName}", f"pod/{pod}", "--timeout=30s")
        return self.node_of(pod)

    def told(self, pod: str, *words: str) -> None:
        """Wait until events of a pod say all of this."""

        def said() -> str:
            events = self.kubectl.get("events", f"--field-selector=involvedObject.name={pod}")
            return "\n".join(event["message"] for event in events["items"])

        until(lambda: all(word in said() for word in words), said)

    def status(self, claim: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get(CLAIMS, claim)["status"]
        return found

    def until(self, claim: str, is_so: Callable[[dict[str, Any]], bool]) -> None:
        until(lambda: is_so(self.kubectl.get(CLAIMS, claim)), lambda: self.kubectl.get(CLAIMS, claim))

    def ends(self, *pods: str) -> None:
        """Pods end at once: there is nobody who runs them."""
        self.kubectl("delete", "pod", *pods, "--grace-period=0", "--force")


def named(claim: str, entry: str = "res") -> dict[str, Any]:
    return {"name": entry, "resourceClaimName": claim}


def inline(driver: str, entry: str = "res", **parameters: Any) -> dict[str, Any]:
    spec = {"resourceClassName": driver, "parameters": parameters}
    return {"name": entry, "template": {"metadata": {"labels": {"made": "inline"}}, "spec": spec}}


def node(name: str) -> dict[str, Any]:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": resources, "allocatable": resources},
    }


def only(name: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


@pytest.fixture(scope="module")
def apart(
    tmp_path_factory: pytest.TempPathFactory, home: Path, kubectl_program: str
) -> Iterator[Callable[[], Place]]:
    """Server, scheduler and controller, each in a process of its own and with the rights of its role."""
    with cluster(tmp_path_factory.mktemp("classic")) as started:
        environment = clean_environment(home, started.server.kubeconfig)
        admin = Kubectl(kubectl_program, environment, "default")
        role = ("--clusterrole=dray:classic-driver", "--group=classic-drivers")
        admin("create", "clusterrolebinding", "classic-drivers", *role)
        admin("create", "-f", "-", given=[node(name) for name in NODES])
        started.service("scheduler", "dray:scheduler")
        controller = started.service("controller", "dray:controller")

        def place() -> Place:
            name = f"classic-{next(_numbers)}"
            admin("create", "namespace", name)
            return Place(started, controller, Kubectl(kubectl_program, environment, name))

        yield place


@pytest.fixture
def place(apart: Callable[[], Place]) -> Place:
    return apart()


@req("K3063-035", "K3063-037", "K3063-046", "K3063-051", "K3063-068", "K3063-095", "K3063-107", "K3063-108")
def test_a_pod_goes_where_its_immediate_claim_is(place: Place) -> None:
    place.pod("early", named("c"))
    place.told("early", f"claim {place.namespace}/c does not exist")
    driver = place.driver("node-b=1", initCommand=["acme-init"])
    place.claim("c", driver, "Immediate")
    assert place.bound("early") == "node-b"
    status = place.status("c")
    assert (status["phase"], [user["name"] for user in status["reservedFor"]]) == ("Allocated", ["early"])
    assert json.loads(status["attributes"]["classParameters"]) == {"initCommand": ["acme-init"]}


@req("K3063-036")
def test_an_immediate_claim_on_the_wrong_node_keeps_its_pod_waiting_and_says_so(place: Place) -> None:
    driver = place.driver("node-b=1")
    place.claim("c", driver, "Immediate")
    place.pod("p", named("c"), **only("node-a"))
    place.told("p", "was allocated before this pod was known")
    assert place.status("c")["phase"] == "Allocated"


@req("K3063-002", "K3063-039", "K3063-048", "K3063-069", "K3063-096", "K3063-098", "K3063-104", "K3063-119")
def test_a_claim_of_an_inline_template_is_created_and_deleted_with_its_pod(place: Place) -> None:
    driver = place.driver("node-c=1")
    place.pod("p", inline(driver, "gpu", memory="2Gi"))
    assert place.bound("p") == "node-c"
    claim = place.kubectl.get(CLAIMS, "p-gpu")
    assert claim["metadata"]["finalizers"] == [f"{driver}/allocated"]
    assert [owner["name"] for owner in claim["metadata"]["ownerReferences"]] == ["p"]
    assert claim["metadata"]["labels"] == {"made": "inline"}
    assert claim["spec"]["parameters"] == {"memory": "2Gi"}
    assert "scheduling" not in claim["status"]
    place.ends("p")
    place.kubectl("wait", "--for=delete", f"{CLAIMS}/p-gpu", "--timeout=30s")


@req("K3063-041", "K3063-055", "K3063-056", "K3063-081", "K3063-106", "K3063-114", "K3063-115")
def test_a_claim_that_nobody_uses_moves_to_where_its_next_pod_can_run(place: Place) -> None:
    driver = place.driver("node-a=1,node-b=1")
    place.claim("c", driver)
    place.pod("first", named("c"), **only("node-a"))
    assert place.bound("first") == "node-a"
    place.ends("first")
    place.until("c", lambda claim: "reservedFor" not in claim["status"])
    assert place.status("c")["phase"] == "Allocated"
    place.pod("second", named("c"), **only("node-b"))
    assert place.bound("second") == "node-b"
    assert place.status("c")["attributes"]["node"] == "node-b"


@req("K3063-115")
def test_a_claim_in_use_stays_where_it_is(place: Place) -> None:
    driver = place.driver("node-a=1,node-b=1", userLimit=2)
    place.claim("c", driver)
    place.pod("first", named("c"), **only("node-a"))
    assert place.bound("first") == "node-a"
    place.pod("second", named("c"), **only("node-b"))
    place.told("second", "is allocated, and not available on this node")
    assert place.status("c")["attributes"]["node"] == "node-a"
    place.ends("first")
    assert place.bound("second") == "node-b"


@req("K3063-005", "K3063-080")
def test_claims_of_two_vendors_meet_on_one_node(place: Place) -> None:
    one, two = place.driver("node-a=1,node-b=1"), place.driver("node-b=1,node-c=1")
    place.pod("p", inline(one, "x"), inline(two, "y"))
    assert place.bound("p") == "node-b"
    assert {place.status(f"p-{entry}")["attributes"]["node"] for entry in "xy"} == {"node-b"}


def test_a_pod_of_both_paths_is_bound_when_both_are_ready(place: Place) -> None:
    given = [device_class(), *(resource_slice(f"both-{name}", name) for name in NODES[:2])]
    place.kubectl("apply", "-f", "-", given=given)
    devices = {"spec": {"devices": {"requests": [request()]}}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": place.namespace},
        "spec": devices,
    }
    place.kubectl("create", "-f", "-", given=template)
    driver = f"{place.namespace}-late.example.com"
    place.pod("p", inline(driver, "x"), {"name": "gpu", "resourceClaimTemplateName": "gpu"})
    place.told("p", f"waiting for the driver of claim {place.namespace}/p-x")
    (claim,) = place.kubectl.get("resourceclaims.resource.k8s.io")["items"]
    assert "allocation" not in claim.get("status", {})
    # only node-c has none of the devices, and only node-b will do for both
    place.cluster.driver(place.kubectl, driver, "node-b=1,node-c=1")
    assert place.bound("p") == "node-b"
    (claim,) = place.kubectl.get("resourceclaims.resource.k8s.io")["items"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["pool"] == "node-b"
    for status in (claim["status"], place.status("p-x")):
        assert [user["name"] for user in status["reservedFor"]] == ["p"]


@req("K3063-038", "K3063-043", "K3063-075")
def test_as_many_pods_share_a_claim_as_its_driver_allows(place: Place) -> None:
    driver = place.driver("node-a=1", userLimit=2)
    place.claim("c", driver)
    for name in ("p0", "p1"):
        place.pod(name, named("c"))
        assert place.bound(name) == "node-a"
    place.pod("p2", named("c"))
    place.told("p2", "has 2 users, and its driver allows 2")
    place.ends("p0")
    assert place.bound("p2") == "node-a"
    assert sorted(user["name"] for user in place.status("c")["reservedFor"]) == ["p1", "p2"]


@req("K3063-012", "K3063-014", "K3063-038", "K3063-043")
def test_a_resource_on_the_network_is_used_from_several_nodes(place: Place) -> None:
    driver = place.driver("node-a=1", "--everywhere", userLimit=-1)
    place.claim("c", driver, "Immediate")
    for name in NODES:
        place.pod(f"on-{name}", named("c"), **only(name))
    assert [place.bound(f"on-{name}") for name in NODES] == list(NODES)
    assert "availableOnNodes" not in place.status("c")


@req("K3063-099", "K3063-100")
def test_a_claim_of_that_name_that_is_not_the_pods_blocks_it(place: Place) -> None:
    driver = place.driver("node-a=2")
    place.claim("p-res", driver)
    place.pod("p", inline(driver))
    place.told("p", "claim p-res exists and does not belong to this pod")
    assert place.node_of("p") == ""
    uid = place.kubectl.get("pod", "p")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    place.kubectl("patch", CLAIMS, "p-res", "--type=merge", "-p", patch)
    assert place.bound("p") == "node-a"


@req("K3063-099")
def test_the_pod_goes_on_when_the_foreign_claim_is_removed(place: Place) -> None:
    driver = place.driver("node-a=1")
    place.claim("p-res", driver)
    place.pod("p", inline(driver))
    place.told("p", "claim p-res exists and does not belong to this pod")
    place.kubectl("delete", CLAIMS, "p-res")
    assert place.bound("p") == "node-a"


@req("K3063-050", "K3063-088")
def test_many_pods_that_compete_get_what_there_is(place: Place) -> None:
    driver = place.driver("node-a=1,node-b=2,node-c=1")
    names = [f"p{number}" for number in range(6)]
    for name in names:
        place.pod(name, inline(driver))

    def running() -> list[str]:
        return [name for name in names if place.node_of(name)]

    until(lambda: len(running()) == 4, running)
    done = running()
    place.ends(*done[:2])
    names = [name for name in names if name not in done[:2]]
    until(lambda: len(running()) == 4, running)


@req("K3063-054", "K3063-062")
def test_a_driver_that_was_killed_goes_on_where_it_was(place: Place) -> None:
    name = f"{place.namespace}.example.com"
    driver = place.cluster.driver(place.kubectl, name, "node-a=1")
    place.pod("p0", inline(name))
    assert place.bound("p0") == "node-a"
    driver.stop(signal.SIGKILL)
    place.pod("p1", inline(name))
    place.told("p1", "waiting for the driver")
    place.ends("p0")
    place.until("p0-res", lambda claim: "deletionTimestamp" in claim["metadata"])
    assert place.kubectl.get(CLAIMS, "p0-res")["metadata"]["finalizers"] == [f"{name}/allocated"]
    driver.start()
    assert place.bound("p1") == "node-a"
    place.kubectl("wait", "--for=delete", f"{CLAIMS}/p0-res", "--timeout=30s")


@req("K3063-169", "K3063-170")
def test_without_the_controller_pods_wait_and_others_are_scheduled(place: Place) -> None:
    driver = place.driver("node-a=1")
    place.pod("before", inline(driver))
    assert place.bound("before") == "node-a"
    place.controller.stop()
    try:
        place.pod("with", inline(driver, "gpu"))
        place.told("with", f"claim {place.namespace}/with-gpu does not exist")
        place.pod("without")
        assert place.bound("without")
        assert place.node_of("with") == ""
        assert [user["name"] for user in place.status("before-res")["reservedFor"]] == ["before"]
    finally:
        place.controller.start()
    place.ends("before")
    assert place.bound("with") == "node-a"
