"""`dray scheduler` and `dray controller` beside a server, sharing nothing with it but the API."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.cluster.local import example_nodes
from tests.contract.classic import classic_class
from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Cluster, Process, cluster
from tests.e2e.server import clean_environment, command, running
from tests.outside import ROOT

TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    containers = [{"name": "c", "image": "registry.example.com/c:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"resourceClaims": claims, "containers": containers, **spec},
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("beside")) as started:
        yield started


@pytest.fixture(scope="module")
def kubectl_of(place: Cluster, kubectl_program: str, home: Path) -> Kubectl:
    kubectl = Kubectl(kubectl_program, clean_environment(home, place.server.kubeconfig), "default")
    kubectl(
        "apply",
        "-f",
        "-",
        given=[
            example_nodes.build_node(0),
            *example_nodes.build_slices(0),
            *example_nodes.build_device_classes(),
            TEMPLATE,
        ],
    )
    return kubectl


def account(place: Cluster, kubectl: Kubectl, name: str) -> Path:
    """A kubeconfig with a token of a service account that has what `deploy/` grants, and nothing else."""
    kubectl("apply", "-n", "kube-system", "-f", str(ROOT / "deploy" / f"{name}.yaml"))
    token = kubectl("create", "token", f"dray-{name}", "-n", "kube-system").out.strip()
    document = yaml.safe_load(place.server.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    file = place.folder / f"{name}.account"
    file.write_text(yaml.safe_dump(document))
    return file


def refusals(kubectl: Kubectl) -> list[str]:
    """What the server refused so far for lack of rights."""
    lines = kubectl("get", "--raw", "/metrics").out.splitlines()
    return [line for line in lines if line.startswith("apiserver_request_total") and 'code="403"' in line]


def told_address(process: Process) -> str:
    (line,) = [line for line in process.log.read_text().splitlines() if "metrics at" in line]
    return line.split()[-1]


@pytest.fixture
def services(place: Cluster, kubectl_of: Kubectl) -> Iterator[dict[str, Process]]:
    """Both, with the accounts of `deploy/`."""
    started: dict[str, Process] = {}
    try:
        for name, more in (("scheduler", ("--scheduler-name", "dray")), ("controller", ())):
            file = str(account(place, kubectl_of, name))
            arguments = command(name, "--kubeconfig", file, "--metrics-address", "127.0.0.1:0", *more)
            started[name] = Process(arguments, place.folder / f"{name}.log", "metrics at")
            started[name].start()
        yield started
    finally:
        for process in started.values():
            process.stop()


@pytest.mark.req("K3063-105", "K4816-103", "K4816-105")
def test_services_live_with_the_rights_of_the_manifests(
    kubectl_of: Kubectl, services: dict[str, Process]
) -> None:
    _run_pods_to_the_end(kubectl_of)
    assert refusals(kubectl_of) == []
    for name, metric in (("scheduler", "scheduler_pending_pods"), ("controller", "workqueue_")):
        address = told_address(services[name])
        numbers = urllib.request.urlopen(address, timeout=10).read().decode()
        assert metric in numbers
        assert "process_start_time_seconds" in numbers, "whether it was started again can be seen"
        ready = address.replace("/metrics", "/readyz")
        assert urllib.request.urlopen(ready, timeout=10).read() == b"ok"
    leases = kubectl_of("get", "leases", "-n", "kube-system").out
    assert "dray-scheduler" in leases
    assert "dray-controller" in leases
    for process in services.values():
        process.stop()
        assert process.log.read_text().splitlines()[-1] == "stopped"


def _run_pods_to_the_end(kubectl: Kubectl) -> None:
    """Pods of all kinds come, wait, are placed, lose their devices, and go."""
    ours = {"schedulerName": "dray"}
    classic = [{"name": "x", "template": {"spec": {"resourceClassName": "acme"}}}]
    many = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 5}}
    five = {**TEMPLATE, "kind": "ResourceClaim", "metadata": {"name": "five"}}
    five["spec"] = {"devices": {"requests": [many]}}
    wants_five = [{"name": "gpus", "resourceClaimName": "five"}]
    kubectl("create", "-f", "-", given=[classic_class(), five])
    kubectl("create", "-f", "-", given=[pod("ours", **ours), pod("other")])
    kubectl("create", "-f", "-", given=pod("old", **ours | {"resourceClaims": classic}))
    kubectl("create", "-f", "-", given=pod("waits", **ours | {"resourceClaims": wants_five}))
    until(lambda: kubectl.get("pod", "ours")["spec"].get("nodeName") == "node-0")
    assert "nodeName" not in kubectl.get("pod", "other")["spec"], "it is for another scheduler"
    until(lambda: "FailedScheduling" in kubectl("get", "events").out)
    until(lambda: "selectedNode" in kubectl("get", "resourceclaims.cdi.k8s.io", "-o", "yaml").out)
    taint = [{"op": "add", "path": "/spec/devices/0/taints", "value": [{"key": "k", "effect": "NoExecute"}]}]
    kubectl("patch", "resourceslice", "node-0-gpu", "--type=json", "-p", json.dumps(taint))
    until(lambda: "deletionTimestamp" in kubectl.get("pod", "ours")["metadata"])
    kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
    until(
        lambda: len(kubectl.get("resourceclaims")["items"]) == 1, lambda: kubectl("get", "resourceclaims").out
    )
    kubectl("delete", "resourceclaim", "five")
    untaint = [{"op": "remove", "path": "/spec/devices/0/taints"}]
    kubectl("patch", "resourceslice", "node-0-gpu", "--type=json", "-p", json.dumps(untaint))


def ended(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("service", ["scheduler", "controller"])
def test_rights_that_are_missing_are_named(place: Cluster, service: str) -> None:
    code, said = ended(service, "--kubeconfig", str(place.credentials("somebody")))
    assert code == 2
    (line,) = said.splitlines()
    assert f"user `somebody` may not do what a {service} does: " in line
    assert "get, list, watch `resourceslices.resource.k8s.io`" in line
    assert "create, get, update, patch `leases.coordination.k8s.io` in kube-system" in line
    assert line.endswith(f"deploy/{service}.yaml has the roles for it")


def test_rights_to_lead_are_not_asked_for_when_nobody_is_elected(place: Cluster) -> None:
    file = str(place.credentials("somebody"))
    code, said = ended("scheduler", "--kubeconfig", file, "--no-leader-elect")
    assert code == 2
    assert "leases" not in said


def test_a_server_that_is_not_there(place: Cluster) -> None:
    document = yaml.safe_load(place.server.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    file = place.folder / "nowhere"
    file.write_text(yaml.safe_dump(document))
    code, said = ended("controller", "--kubeconfig", str(file))
    assert code == 2
    assert "no answer to GET" in said
    assert f": connection refused; is the server that `{file}` names running?" in said


def test_credentials_that_the_server_does_not_take(place: Cluster) -> None:
    document = yaml.safe_load(place.server.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "made-up"}
    file = place.folder / "stranger"
    file.write_text(yaml.safe_dump(document))
    code, said = ended("scheduler", "--kubeconfig", str(file))
    assert code == 2
    assert f"does not accept the credentials in `{file}`" in said


def test_a_profile_that_is_wrong(place: Cluster) -> None:
    profile = place.folder / "profile.yaml"
    profile.write_text("scorring: most\n")
    code, said = ended("scheduler", "--kubeconfig", str(place.server.kubeconfig), "--config", str(profile))
    assert code == 2
    assert "scorring" in said
    assert "`scoring`" in said


def test_of_two_one_leads_and_the_other_takes_over(place: Cluster, kubectl_of: Kubectl) -> None:
    file = str(place.credentials("dray:scheduler"))
    both = [
        Process(
            command("scheduler", "--kubeconfig", file, "--identity", name),
            place.folder / name,
            "scheduler for ",
        )
        for name in ("first", "second")
    ]
    controller = place.service("controller", "dray:controller")
    try:
        both[0].start()
        until(lambda: "scheduling" in both[0].log.read_text(), both[0].log.read_text)
        both[1].start()
        kubectl_of("create", "-f", "-", given=pod("one"))
        until(lambda: "nodeName" in kubectl_of.get("pod", "one")["spec"])
        assert " scheduling" not in both[1].log.read_text()
        both[0].stop()  # gives the lease back
        until(lambda: " scheduling" in both[1].log.read_text(), both[1].log.read_text)
        kubectl_of("create", "-f", "-", given=pod("two"))
        until(lambda: "nodeName" in kubectl_of.get("pod", "two")["spec"])
        _usurped(kubectl_of)
        until(lambda: "another scheduler leads now" in both[1].log.read_text(), both[1].log.read_text)
    finally:
        for process_ in (*both, controller):
            process_.stop()
        kubectl_of("delete", "pod", "one", "two", "--force", "--grace-period=0", "--ignore-not-found")


def test_a_server_that_goes_away_is_waited_for(tmp_path: Path, kubectl_program: str, home: Path) -> None:
    port = ("--port", str(free_port()))
    with ExitStack() as stack:
        with running(tmp_path, *port, ends=True) as server:
            place = Cluster(tmp_path, server, stack)
            for name in ("scheduler", "controller"):
                place.service(name, f"dray:{name}")
            kubectl = Kubectl(kubectl_program, clean_environment(home, server.kubeconfig), "default")
            kubectl(
                "apply",
                "-f",
                "-",
                given=[
                    example_nodes.build_node(0),
                    *example_nodes.build_slices(0),
                    *example_nodes.build_device_classes(),
                    TEMPLATE,
                ],
            )
            kubectl("create", "-f", "-", given=pod("before"))
            until(lambda: "nodeName" in kubectl.get("pod", "before")["spec"])
            server.process.kill()
            server.process.wait(10)
        with running(tmp_path, *port):
            kubectl("create", "-f", "-", given=pod("after"))
            until(lambda: "nodeName" in kubectl.get("pod", "after")["spec"])
            stack.close()
    for name in ("scheduler", "controller"):
        assert (tmp_path / f"{name}.log").read_text().splitlines()[-1] == "stopped"


def _usurped(kubectl: Kubectl) -> None:
    """Somebody else writes its name into the lease."""
    patch = json.dumps({"spec": {"holderIdentity": "usurper", "leaseDurationSeconds": 60}})
    kubectl("patch", "lease", "dray-scheduler", "-n", "kube-system", "--type=merge", "-p", patch)
