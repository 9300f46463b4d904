"""`dray up` as people use it: start, apply, look, ask why, stop and start again; and `kubectl dray`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.server import clean_environment, command
from tests.e2e.use_case_cluster import upped
from tests.outside import ROOT

EXAMPLES = ROOT / "examples" / "cluster"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with upped(tmp_path_factory.mktemp("up"), "--nodes", "3") as file:
        yield file


@pytest.fixture(scope="module")
def ml(kubeconfig: Path, home: Path, kubectl_program: str) -> Kubectl:
    """The examples, applied and scheduled."""
    environment = clean_environment(home, kubeconfig)
    environment["PATH"] = os.pathsep.join([str(BIN), environment.get("PATH", os.defpath)])
    kubectl = Kubectl(kubectl_program, environment, "ml")
    everywhere = Kubectl(kubectl_program, environment, "")
    subprocess.run(
        [kubectl_program, "apply", "-f", str(EXAMPLES)], env=environment, check=True, capture_output=True
    )
    until(lambda: _waiting(everywhere) == {"finetune"}, lambda: everywhere("get", "pods", "-A").out)
    return kubectl


def _waiting(kubectl: Kubectl) -> set[str]:
    pods = kubectl.get("pods", "-A")["items"]
    return {each["metadata"]["name"] for each in pods if "nodeName" not in each["spec"]}


def dray(ml: Kubectl, *arguments: str) -> tuple[int, str]:
    """`dray` with the kubeconfig in the environment."""
    done = subprocess.run(
        command(*arguments), env=dict(ml.environment), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_nodes_have_agents_and_drivers(ml: Kubectl) -> None:
    rows = ml("get", "nodes").rows[1:]
    assert [(row[0], row[1]) for row in rows] == [(f"node-{number}", "Ready") for number in range(3)]
    code, page = dray(ml, "status")
    assert code == 0
    assert page.count("   ready   ") == 3
    assert page.count("gpu.example.com ") == page.count("nic.example.com ") == 3


def test_pods_run_and_their_containers_see_their_devices(ml: Kubectl) -> None:
    until(lambda: ml("get", "pods").out.count("Running") == 5, lambda: ml("get", "pods").out)
    said = ml("logs", "train-0").out
    assert "GPU_DEVICE_" in said
    assert "NIC_NIC_BANDWIDTH=5G" in said
    until(lambda: "training" in ml("logs", "train-0").out)


def test_two_pods_share_a_claim_on_one_node(ml: Kubectl) -> None:
    nodes = {ml.get("pod", name)["spec"]["nodeName"] for name in ("infer-0", "infer-1")}
    assert len(nodes) == 1
    shared = ml.get("resourceclaim", "shared-gpu")["status"]
    assert {each["name"] for each in shared["reservedFor"]} == {"infer-0", "infer-1"}


def test_a_pod_that_waits_is_explained_in_the_words_of_its_event(ml: Kubectl) -> None:
    code, text = dray(ml, "explain", "pod/finetune", "-n", "ml")
    assert code == 1
    assert text.startswith("Pod ml/finetune cannot run yet: no node can satisfy claim ml/four-gpus\n")
    assert "hint: " in text
    code, document = dray(ml, "explain", "pod/finetune", "-o", "json")  # there is only one of that name
    assert code == 1
    until(lambda: "FailedScheduling" in ml("get", "events").out)
    events = ml.get("events", "--field-selector", "involvedObject.name=finetune")["items"]
    assert json.loads(document)["summary"] in {each["message"] for each in events}


def test_kubectl_has_it_as_a_plugin(ml: Kubectl) -> None:
    done = subprocess.run(
        [ml.program, "dray", "explain", "pod/train-0", "-n", "ml"],
        env=dict(ml.environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    node = ml.get("pod", "train-0")["spec"]["nodeName"]
    head, _, titles, gpu, nic = done.stdout.splitlines()
    assert head == f"Pod ml/train-0 is on {node}"
    assert titles.split() == ["CLAIM", "REQUEST", "DEVICE", "CONSUMED"]
    assert f"gpu.example.com/{node}/gpu-" in gpu
    assert nic.endswith("bandwidth=5G")


def test_the_plugin_names_itself_in_its_help(ml: Kubectl) -> None:
    done = subprocess.run([BIN / "kubectl-dray", "explain", "-h"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl dray explain ")


def test_everything_that_waits_is_explained_when_nothing_is_named(ml: Kubectl) -> None:
    code, text = dray(ml, "explain")
    assert code == 1
    assert [line.split()[1] for line in text.splitlines() if line.startswith("Pod ")] == ["ml/finetune"]


def test_nodes_are_left_out_for_their_taints_and_free_resources(ml: Kubectl) -> None:
    pod = ml.get("pod", "finetune")
    spec = {
        "resourceClaims": pod["spec"]["resourceClaims"],
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "30"}}}],
    }
    ml("taint", "node", "node-2", "example.com/repair=fan:NoSchedule")
    try:
        ml(
            "create",
            "-f",
            "-",
            given={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge"}, "spec": spec},
        )
        code, text = dray(ml, "explain", "pod/huge", "-n", "ml")
        assert code == 1
        assert "left out node-0 and node-1: too little cpu free (asks for 30)" in text
        assert "left out node-2: untolerated taint example.com/repair:NoSchedule" in text
    finally:
        ml("taint", "node", "node-2", "example.com/repair-")
        ml("delete", "pod", "huge", "--ignore-not-found")


def test_names_that_are_not_there(ml: Kubectl) -> None:
    for arguments, words in (
        (("explain", "pod/nope", "-n", "ml"), "pod `ml/nope` is not on the server"),
        (("explain", "pod/train-0", "--node", "node-9"), "node `node-9` is not on the server"),
        (("explain", "-f", str(EXAMPLES), "--context", "dray"), "either files or a server"),
    ):
        done = subprocess.run(
            command(*arguments),
            env=dict(ml.environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_without_files_and_without_a_server_it_says_what_it_needs(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        command("explain", "pod/x"), env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "name files or folders with `-f`, or a running cluster with `--kubeconfig`" in done.stderr


def test_without_a_terminal_no_line_is_printed_for_each_pod(ml: Kubectl, kubeconfig: Path) -> None:
    assert "nodeName" in ml.get("pod", "train-0")["spec"]
    log = (kubeconfig.parent.parent / "up.log").read_text()
    assert log.startswith("serving https://")
    assert "ml/train-0" not in log


def test_devices_come_back_and_the_next_in_line_gets_them(ml: Kubectl) -> None:
    ml("delete", "pod", "train-0", "train-1")  # returns when they are gone
    until(lambda: "nodeName" in ml.get("pod", "finetune")["spec"])
    code, text = dray(ml, "explain", "claim/four-gpus", "-n", "ml")
    assert code == 0
    assert text.startswith("Claim ml/four-gpus has its devices\n")
    assert "reserved for finetune" in text


def test_a_cluster_starts_again_where_it_was(tmp_path: Path, home: Path, kubectl_program: str) -> None:
    with upped(tmp_path, "--nodes", "1", "--activity") as kubeconfig:
        kubectl = Kubectl(kubectl_program, clean_environment(home, kubeconfig), "default")
        command = ["sh", "-c", "echo it runs; exec sleep infinity"]
        pod = {"containers": [{"name": "c", "image": "i", "command": command}]}
        kubectl(
            "create",
            "-f",
            "-",
            given={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod},
        )
        until(lambda: _runs(kubectl, 0), lambda: kubectl("get", "pod", "p").out)
        before = kubectl.get("pods,nodes,resourceslices,deviceclasses")
    with upped(tmp_path, "--nodes", "1", "--activity"):
        assert _objects(kubectl.get("pods,nodes,resourceslices,deviceclasses")) == _objects(before)
        until(lambda: _runs(kubectl, 1), lambda: kubectl("get", "pod", "p").out)
        assert kubectl("logs", "p").out == "it runs\n"
    log = (tmp_path / "up.log").read_text()
    assert log.count("default/p runs on node-0") >= 2
    assert log.splitlines()[-1] == "stopped"


def _runs(kubectl: Kubectl, restarts: int) -> bool:
    """Whether the container of the pod runs, for the first time or again after the cluster came back."""
    statuses = kubectl.get("pod", "p")["status"].get("containerStatuses", [])
    return [("running" in each["state"], each["restartCount"]) for each in statuses] == [(True, restarts)]


def _objects(listing: dict[str, list[dict[str, dict[str, object]]]]) -> object:
    """What was wanted, and of which object; what runs tells anew how it is."""
    return [(each["kind"], each["metadata"]["uid"], each.get("spec")) for each in listing["items"]]
