"""Pods on a node: server, scheduler, controllers, agent and driver in processes of their own, and kubectl."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.kitted import short_folder
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Node, cluster
from tests.e2e.server import clean_environment, command
from tests.outside import ROOT

DRIVER = "plain.example.com"
NODE = "worker"

Document = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("node")) as processes:
        processes.service("scheduler", "dray:scheduler")
        processes.service("controller", "dray:controller")
        yield processes


@pytest.fixture(scope="module")
def kubectl(place: Cluster, kubectl_program: str, home: Path) -> Kubectl:
    return Kubectl(kubectl_program, clean_environment(home, place.server.kubeconfig), "default")


@pytest.fixture(scope="module")
def node(place: Cluster, kubectl: Kubectl) -> Node:
    made = place.node(NODE, "--label", "rack=r1", "--capacity", "cpu=8")
    place.plain_driver(kubectl, made, DRIVER)
    until(lambda: DRIVER in made.agent.log.read_text(), made.agent.log.read_text)
    return made


@pytest.fixture(autouse=True)
def emptied(kubectl: Kubectl, node: Node) -> Iterator[None]:
    yield
    kubectl("delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--wait=true", "--timeout=30s")


def template(name: str = "one") -> Document:
    return _object("ResourceClaimTemplate", name, {"spec": _devices()})


def claim(name: str) -> Document:
    return _object("ResourceClaim", name, _devices())


def _devices() -> Document:
    return {"devices": {"requests": [{"name": "dev", "exactly": {"deviceClassName": DRIVER}}]}}


def _object(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod(name: str, script: str, entry: Document | None = None, **spec: Any) -> Document:
    container: Document = {"name": "c", "image": "none:1", "command": ["sh", "-c", script]}
    if entry is not None:
        container["resources"] = {"claims": [{"name": "dev"}]}
        spec["resourceClaims"] = [{"name": "dev", **entry}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec},
    }


FROM_TEMPLATE = {"resourceClaimTemplateName": "one"}
TALKS = "echo got=$PLAIN_DEVICE; exec sleep 600"


def runs(kubectl: Kubectl, name: str) -> Document:
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    found: Document = kubectl.get("pod", name)
    return found


def says(kubectl: Kubectl, name: str, words: str) -> str:
    until(lambda: words in kubectl("logs", name).out, lambda: kubectl("describe", "pod", name).out)
    return kubectl("logs", name).out


@pytest.mark.req("K3063-052", "K3063-123", "K3063-130", "K3063-143", "K3063-145")
def test_a_pod_gets_what_its_claim_promises_and_gives_it_back(kubectl: Kubectl, node: Node) -> None:
    kubectl("create", "-f", "-", given=[template(), pod("p", TALKS, FROM_TEMPLATE)])
    seen = runs(kubectl, "p")
    assert seen["spec"]["nodeName"] == NODE
    assert says(kubectl, "p", "got=dev-").splitlines()[-1] == "got=dev-0"
    told = seen["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    uid = kubectl.get("resourceclaims")["items"][0]["metadata"]["uid"]
    assert told[0]["resources"][0]["resourceID"] == f"{DRIVER}/plain={uid}-dev-0"
    assert len(kubectl.get("preparations")["items"]) == 1
    assert list((node.root / "cdi").iterdir())
    kubectl("delete", "pod", "p", "--timeout=30s")
    assert kubectl.get("preparations")["items"] == []
    assert list((node.root / "cdi").iterdir()) == [], "the driver has let go of it"
    until(lambda: kubectl.get("resourceclaims")["items"] == [])


@pytest.mark.req("K4816-087")
def test_a_driver_that_knows_nothing_of_alternatives_serves_them(kubectl: Kubectl) -> None:
    """Neither the agent nor the driver has anything to do for it; a container may name the whole request."""
    never = {"cel": {"expression": "false"}}
    choices = [{"name": "best", "deviceClassName": DRIVER, "selectors": [never]}]
    choices += [{"name": "good", "deviceClassName": DRIVER}]
    either = _object(
        "ResourceClaim", "either", {"devices": {"requests": [{"name": "dev", "firstAvailable": choices}]}}
    )
    user = pod("p", TALKS, {"resourceClaimName": "either"})
    user["spec"]["containers"][0]["resources"]["claims"][0]["request"] = "dev"
    kubectl("create", "-f", "-", given=[either, user])
    runs(kubectl, "p")
    assert says(kubectl, "p", "got=dev-").splitlines()[-1] == "got=dev-0"
    results = kubectl.get("resourceclaim", "either")["status"]["allocation"]["devices"]["results"]
    assert [result["request"] for result in results] == ["dev/good"]


@pytest.mark.req("K3063-126")
def test_a_claim_is_free_for_others_after_its_pod_is_gone(kubectl: Kubectl) -> None:
    entry = {"resourceClaimName": "shared"}
    kubectl("create", "-f", "-", given=[claim("shared"), pod("first", TALKS, entry)])
    runs(kubectl, "first")
    assert [user["name"] for user in kubectl.get("resourceclaim", "shared")["status"]["reservedFor"]] == [
        "first"
    ]
    kubectl("delete", "pod", "first")
    until(lambda: "reservedFor" not in kubectl.get("resourceclaim", "shared").get("status", {}))
    kubectl("create", "-f", "-", given=pod("second", 'test -n "$PLAIN_DEVICE"', entry, restartPolicy="Never"))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/second", "--timeout=30s")


@pytest.mark.req("K3063-172")
def test_an_agent_that_was_killed_finds_its_containers_again(kubectl: Kubectl, node: Node) -> None:
    script = "echo pid=$$$$; " + TALKS
    kubectl("create", "-f", "-", given=[template(), pod("p", script, FROM_TEMPLATE)])
    before = runs(kubectl, "p")["status"]["containerStatuses"][0]
    pid = says(kubectl, "p", "got=dev-").splitlines()[0].removeprefix("pid=")
    node.agent.stop(signal.SIGKILL)
    assert Path(f"/proc/{pid}").exists()
    ran = kubectl("logs", "p", fails=True)
    assert f"the agent of node {NODE} cannot be reached at" in ran.err
    node.agent.start()
    assert Path(f"/proc/{pid}").exists()
    until(lambda: kubectl("logs", "p").out.startswith(f"pid={pid}\n"))
    after = kubectl.get("pod", "p")["status"]["containerStatuses"][0]
    assert (after["restartCount"], after["containerID"]) == (0, before["containerID"])
    kubectl("delete", "pod", "p", "--timeout=30s")
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert kubectl.get("preparations")["items"] == []


def test_an_agent_that_ends_lets_its_containers_go_on(kubectl: Kubectl, node: Node) -> None:
    kubectl("create", "-f", "-", given=pod("p", "echo pid=$$$$; exec sleep 600"))
    runs(kubectl, "p")
    pid = says(kubectl, "p", "pid=").strip().removeprefix("pid=")
    node.agent.stop()
    assert node.agent.log.read_text().splitlines()[-1] == "stopped"
    assert Path(f"/proc/{pid}").exists()
    kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    node.agent.start()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_kubectl_shows_what_becomes_of_pods(kubectl: Kubectl) -> None:
    init = {"name": "first", "image": "none:1", "command": ["sleep", "600"]}
    kubectl(
        "create",
        "-f",
        "-",
        given=[
            pod("runs", "exec sleep 600"),
            pod("done", "exit 0", restartPolicy="Never"),
            pod("fails", "exit 3", restartPolicy="Never"),
            pod("crashes", "exit 3"),
            pod("begins", "true", initContainers=[init]),
            pod("refused", "true", {"resourceClaimName": "nowhere"}, nodeName=NODE),
        ],
    )
    words = {
        "runs": "Running",
        "done": "Completed",
        "fails": "Error",
        "crashes": "CrashLoopBackOff",
        "begins": "Init:0/1",
        "refused": "ClaimMissing",
    }

    def shown() -> dict[str, str]:
        return {row[0]: row[2] for row in kubectl("get", "pods", "--no-headers").rows}

    until(lambda: shown() == words, shown)
    described = kubectl("describe", "pod", "crashes").out
    assert "Exit Code:    3" in described
    assert "CrashLoopBackOff" in described
    until(lambda: "BackOff" in kubectl("get", "events").out)
    assert "nowhere" in kubectl("describe", "pod", "refused").out


def test_kubectl_reads_logs(kubectl: Kubectl) -> None:
    script = "for i in 1 2 3; do echo line $i; done; "
    two = pod("two", "echo from c; exec sleep 600")
    two["spec"]["containers"].append(
        {"name": "d", "image": "x", "command": ["sh", "-c", "echo from d; sleep 600"]}
    )
    stays, ends = pod("p", script + "exec sleep 600"), pod("ends", script + "sleep 1; exit 1")
    waits = pod("waits", "true", {"resourceClaimName": "no"}, nodeName=NODE)
    kubectl("create", "-f", "-", given=[stays, ends, two, waits])
    says(kubectl, "p", "line 3")
    assert kubectl("logs", "p", "--tail=1").out == "line 3\n"
    stamped = kubectl("logs", "p", "--timestamps", "--tail=1").out
    assert stamped.split()[0].endswith("Z")
    says(kubectl, "ends", "line 3")
    assert kubectl("logs", "-f", "ends", "--pod-running-timeout=5s").out == "line 1\nline 2\nline 3\n"
    until(lambda: kubectl.get("pod", "ends")["status"]["containerStatuses"][0]["restartCount"] > 0)
    assert kubectl("logs", "ends", "--previous").out == "line 1\nline 2\nline 3\n"
    until(lambda: "from d" in kubectl("logs", "two", "-c", "d").out)
    assert kubectl("logs", "two", "--all-containers", "--prefix").out.count("from") == 2
    refusal = kubectl("logs", "two", "-c", "x", fails=True).err
    assert "container x is not valid for pod two" in refusal
    until(lambda: "ClaimMissing" in kubectl("get", "pod", "waits").out)
    waiting = kubectl("logs", "waits", fails=True).err
    assert 'container "c" in pod "waits" is waiting to start: ClaimMissing' in waiting


def test_the_node_tells_what_it_is(kubectl: Kubectl, node: Node) -> None:
    seen = kubectl.get("node", NODE)
    assert seen["metadata"]["labels"]["rack"] == "r1"
    assert seen["status"]["allocatable"]["cpu"] == "8"
    (row,) = kubectl("get", "nodes", "--no-headers").rows
    assert row[:2] == [NODE, "Ready"]
    leases = kubectl("get", "leases", "-n", "kube-node-lease", "--no-headers").rows
    assert [row[:2] for row in leases] == [[NODE, NODE]]
    text = node.agent.log.read_text()
    assert f"node {NODE} for https://" in text
    assert f"drivers register in {node.root}/plugins_registry" in text


def test_an_agent_works_with_the_rights_of_the_manifest(place: Cluster, kubectl: Kubectl) -> None:
    apply = [kubectl.program, "apply", "-f", str(ROOT / "deploy" / "node.yaml")]  # in two namespaces
    subprocess.run(apply, env=dict(kubectl.environment), check=True, capture_output=True, timeout=60)
    token = kubectl("create", "token", "dray-node", "-n", "kube-system").out.strip()
    document = yaml.safe_load(place.server.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    kubeconfig = place.folder / "account"
    kubeconfig.write_text(yaml.safe_dump(document))
    other = place.node("other", kubeconfig=kubeconfig)
    kubectl("create", "-f", "-", given=pod("p", "echo here; exec sleep 600", nodeName="other"))
    runs(kubectl, "p")
    assert says(kubectl, "p", "here") == "here\n"
    kubectl("delete", "pod", "p", "--timeout=30s")
    other.agent.stop()
    assert not refusals(kubectl), refusals(kubectl)
    kubectl("delete", "node", "other")


def refusals(kubectl: Kubectl) -> list[str]:
    """What the server refused so far for lack of rights."""
    lines = kubectl("get", "--raw", "/metrics").out.splitlines()
    return [line for line in lines if line.startswith("apiserver_request_total") and 'code="403"' in line]


@pytest.mark.parametrize(
    ("user", "groups", "words"),
    [
        ("somebody", (), "user `somebody` may not do what a node does: get, list, watch, delete `pods`"),
        (
            "system:node:other",
            ("system:nodes",),
            "the credentials are those of node `other` and cannot work for node `mine`",
        ),
    ],
)
def test_an_agent_without_rights_says_what_is_missing(
    place: Cluster, user: str, groups: tuple[str, ...], words: str
) -> None:
    kubeconfig = str(place.credentials(user, *groups))
    with short_folder() as root:
        arguments = command("node", "--name", "mine", "--kubeconfig", kubeconfig, "--root", str(root))
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
