"""Manifests of kit drivers on kube-apiserver: a second apply changes nothing, and the webhook is trusted."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import SOON, until
from tests.e2e.test_webhook import NAMESPACE, SERVICE, claim
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane
from tests.outside import ROOT

EXAMPLES = ROOT / "examples" / "drivers"
NAMES = sorted(each.parent.name for each in EXAMPLES.glob("*/driver.py"))
ENV = (sys.executable, str(EXAMPLES / "env" / "driver.py"))
WEBHOOK = f"validatingwebhookconfigurations/{NAMESPACE}-parameters"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server that calls endpoints of a Service itself, because nothing here routes cluster addresses.

    The example for CPUs has attributes that are lists, which Kubernetes has behind a feature gate.
    """
    require_program("kube-apiserver")
    gates = {"DRAListTypeAttributes": True}
    options = ApiServerOptions(feature_gates=gates, flags=("--enable-aggregator-routing=true",))
    with ControlPlane.open(tmp_path_factory.mktemp("plane"), options) as opened:
        yield opened


def render(program: str) -> list[dict[str, Any]]:
    """The manifests of an example, without kinds that only dray serves."""
    command = (sys.executable, str(EXAMPLES / program), "manifests", "--image", "example.com/i:1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON, check=True)
    return read_served(done.stdout)


def read_served(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if "cdi.k8s.io" not in each["apiVersion"]]


def test_all_examples_can_be_applied_to_one_cluster(kubectl: Kubectl) -> None:
    """Every line says `created`: `configured` would be another example's object with the same name.

    Pods and claims come first, because nothing here runs the webhooks.
    """
    documents = [each for file in sorted(EXAMPLES.glob("*/*.yaml")) for each in read_served(file.read_text())]
    documents += [each for file in sorted(EXAMPLES.glob("*/*.py")) for each in render(str(file))]
    text = yaml.safe_dump_all(documents, sort_keys=False)
    lines = kubectl("apply", "-n", "", "-f", "-", given=text).out.splitlines()
    assert [line for line in lines if not line.endswith(" created")] == []
    assert len(lines) == len(documents) > 80


@pytest.mark.parametrize("name", NAMES)
def test_manifests_that_are_applied_again_change_nothing(name: str, kubectl: Kubectl) -> None:
    documents = render(f"{name}/driver.py")
    namespace, text = documents[0]["metadata"]["name"], yaml.safe_dump_all(documents, sort_keys=False)
    kubectl("apply", "-n", namespace, "-f", "-", given=text)
    again = kubectl("apply", "-n", namespace, "-f", "-", given=text).out.splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    assert len(again) == len(documents)


def find_own_address() -> str:
    """An address of this machine that is no loopback address, which endpoints may not have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("NO ADDRESS: this machine has only loopback addresses")
        return str(probe.getsockname()[0])


def write_account_kubeconfig(plane: ControlPlane, kubectl: Kubectl, name: str) -> Path:
    token = kubectl("create", "token", name, "-n", NAMESPACE).out.strip()
    document = json.loads(plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    file = plane.folder / f"{name}.kubeconfig"
    file.write_text(json.dumps(document))
    return file


def test_the_webhook_issues_its_certificate_and_the_server_trusts_it(
    plane: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    address, port, text = find_own_address(), free_port(), yaml.safe_dump_all(render("env/driver.py"))
    kubectl("apply", "-n", NAMESPACE, "-f", "-", given=text)
    deployment = kubectl.get("deployment", SERVICE, "-n", NAMESPACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = [str(tmp_path) if word == "/etc/webhook" else word for word in container["args"]]
    flags[flags.index("--address") + 1] = f"{address}:{port}"
    kubeconfig = write_account_kubeconfig(plane, kubectl, SERVICE)
    more = ("--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig))
    webhook = plane.add_command([*ENV, *flags, *more], "webhook")
    slice_name = {"name": "webhook", "labels": {"kubernetes.io/service-name": SERVICE}}
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": slice_name,
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }
    kubectl("create", "-n", NAMESPACE, "-f", "-", given=endpoints)

    def is_refused() -> bool:
        wrong = claim("bad", {"evn": {}})
        tried = kubectl("create", "--dry-run=server", "-f", "-", given=wrong, fails=None)
        return "unknown field; did you mean `env`?" in tried.err

    until(is_refused, webhook.read_log_end)
    kubectl("create", "--dry-run=server", "-f", "-", given=claim("good", {"env": {"greeting": "hello"}}))
    again = kubectl("apply", "-n", NAMESPACE, "-f", "-", given=text).out.splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    (seen,) = kubectl.get(*WEBHOOK.split("/"))["webhooks"]
    assert seen["clientConfig"]["caBundle"], "it survives another apply"
