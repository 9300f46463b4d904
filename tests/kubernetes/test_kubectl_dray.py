"""`kubectl dray` on a stock cluster: explain, status, free and lint --live, by users who may only read.

The API server writes an audit log: it shows that the plugin never sent a verb that changes something.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane
from tests.outside import ROOT

VIEWER = ROOT / "deploy" / "viewer.yaml"
DRIVER = "gpu.example.com"
AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""

CLUSTER = """
apiVersion: v1
kind: Namespace
metadata: {name: ml}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-a-counters}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: gpu-0, counters: {memory: {value: 40Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-a-devices}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 2}
  devices:
  - name: gpu-0
    attributes: {model: {string: a100}, kind: {string: whole}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory: {value: 40Gi}}}]
  - name: gpu-0-half-0
    attributes: {model: {string: a100}, kind: {string: half}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory: {value: 20Gi}}}]
  - name: gpu-0-half-1
    attributes: {model: {string: a100}, kind: {string: half}}
    consumesCounters: [{counterSet: gpu-0, counters: {memory: {value: 20Gi}}}]
"""

WORK = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: half, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu,
  selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].kind == "half"'}}]}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: whole, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu,
  selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].kind == "whole"'}}]}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: typo, namespace: ml}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu,
  selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].kinds == "half"'}}]}}]}}
"""


def build_pod(name: str, claim: str) -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ml}}
spec:
  containers: [{{name: c, image: none, resources: {{claims: [{{name: d}}]}}}}]
  resourceClaims: [{{name: d, resourceClaimName: {claim}}}]
"""


@dataclass(frozen=True)
class Plugin:
    """`kubectl dray`, as one user runs it."""

    environment: dict[str, str]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which("kubectl", path=self.environment["PATH"])
        assert program is not None
        done = subprocess.run(
            [program, "dray", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done


def build_plugin(folder: Path, kubeconfig: Path) -> Plugin:
    """The plugin is found on PATH, as after `pip install dray`."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    script = tools / "kubectl-dray"
    script.write_text(f"#!{sys.executable}\nfrom dray.cli import kubectl\nkubectl()\n")
    script.chmod(0o755)
    return Plugin(
        {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "120",
        }
    )


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """kube-apiserver with an audit log, kube-scheduler, a node, and a pod that has half of its only GPU."""
    require_program("kube-apiserver")
    require_program("kube-scheduler")
    folder = tmp_path_factory.mktemp("plane")
    policy = folder / "audit.yaml"
    policy.write_text(AUDIT_POLICY)
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}")
    with ControlPlane.open(folder, ApiServerOptions(flags=flags)) as opened:
        opened.create_node("node-a")
        kubectl = opened.build_kubectl("")
        apply(kubectl, CLUSTER)
        opened.start_scheduler()
        apply(kubectl, WORK)
        apply(kubectl, build_pod("train-0", "half"))
        wait_for(kubectl, "train-0", "{.spec.nodeName}", "node-a")
        apply(kubectl, build_pod("train-1", "whole"))
        wait_for(kubectl, "train-1", "{.status.conditions[*].reason}", "Unschedulable")
        yield opened


def wait_for(kubectl: Kubectl, pod: str, path: str, word: str) -> None:
    """Wait until a field of a pod has a value."""

    def read(form: str) -> str:
        return kubectl("get", "pod", pod, "-n", "ml", "-o", form).out

    until(lambda: word in read(f"jsonpath={path}"), lambda: read("yaml"))


def apply(kubectl: Kubectl, text: str) -> None:
    for document in yaml.safe_load_all(text):
        kubectl("apply", "-f", "-", given=document)


@pytest.fixture(scope="module")
def viewer(plane: ControlPlane) -> Plugin:
    """A user with the role `dray:viewer` and no other."""
    kubectl = plane.build_kubectl("")
    kubectl("apply", "-f", str(VIEWER))
    kubectl("create", "clusterrolebinding", "vera", "--clusterrole=dray:viewer", "--user=vera")
    return build_plugin(plane.folder, plane.write_kubeconfig("vera"))


@pytest.fixture(scope="module")
def neighbour(plane: ControlPlane) -> Plugin:
    """A user who has the role in one namespace only."""
    kubectl = plane.build_kubectl("")
    kubectl("apply", "-f", str(VIEWER))
    kubectl("create", "rolebinding", "ned", "-n", "ml", "--clusterrole=dray:viewer", "--user=ned")
    return build_plugin(plane.folder, plane.write_kubeconfig("ned"))


def list_audited(plane: ControlPlane, user: str) -> list[tuple[str, str, int]]:
    """What a user asked the API server for: verb, path, and the code of the answer."""
    found = []
    for line in (plane.folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] == user:
            found.append((event["verb"], event["requestURI"], event["responseStatus"]["code"]))
    return found


def test_explain(viewer: Plugin) -> None:
    runs = viewer("explain", "pod/train-0", "-n", "ml")
    assert (runs.returncode, runs.stderr) == (0, "")
    assert runs.stdout.splitlines()[0] == "Pod ml/train-0 is on node-a"
    waits = viewer("explain", "pod/train-1", "-n", "ml")
    assert (waits.returncode, waits.stderr) == (1, "")
    assert waits.stdout.startswith("Pod ml/train-1 cannot run yet: no node can satisfy claim ml/whole")
    assert "counter `gpu-0/memory`" in waits.stdout


def test_status(viewer: Plugin) -> None:
    shown = viewer("status", "-n", "ml")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[1] == "node-a   ready   1      gpu.example.com ■□□ 1/3"
    assert lines[4] == "ml/train-0   starting   node-a   gpu-0-half-0"
    assert lines[7].startswith("ml/train-1   waiting   0/1 nodes are available")
    document = json.loads(viewer("status", "-o", "json").stdout)
    (pod,) = document["nodes"][0]["pods"]
    assert pod["devices"] == [
        {"driver": DRIVER, "pool": "node-a", "device": "gpu-0-half-0", "claim": "half", "consumed": {}}
    ]


def test_free(viewer: Plugin) -> None:
    shown = viewer("free")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == [
        "NODE     DRIVER            FREE   DEVICES",
        "node-a   gpu.example.com   1/3    gpu-0-half-1",
        "",
        "gpu-0 on node-a is used up by partition gpu-0-half-0 (pod ml/train-0)",
        "",
        "1 of 3 devices can be had on 1 node",
    ]
    counted = viewer("free", "--by", "model").stdout.splitlines()
    assert counted[1] == "a100    gpu.example.com   1/3    node-a"


def test_a_dump_of_kubectl_gives_the_same_answer(plane: ControlPlane, viewer: Plugin) -> None:
    kinds = "nodes,pods,resourceslices,deviceclasses,resourceclaims"
    dump = plane.folder / "dump.yaml"
    dump.write_text(plane.build_kubectl("")("get", kinds, "-A", "-o", "yaml").out)
    assert viewer("free", "-f", str(dump)).stdout == viewer("free").stdout


def test_lint(viewer: Plugin, tmp_path: Path) -> None:
    shown = viewer("lint", "--live")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("live:resourceclaims/ml/typo:")
    assert "did you mean `kind`?" in shown.stdout
    assert "checked 8 objects of the cluster: 1 warning" in shown.stdout
    file = tmp_path / "claim.yaml"
    file.write_text(next(part for part in WORK.split("---") if "name: half" in part).replace("half", "third"))
    against = viewer("lint", "--live", str(file))
    assert against.returncode == 0
    assert "claim.yaml" in against.stdout
    assert "[selector-never-true]" in against.stdout
    assert "against 8 objects of the cluster" in against.stdout


def test_no_verb_that_changes_something_was_sent(plane: ControlPlane, viewer: Plugin) -> None:
    viewer("explain")
    audited = list_audited(plane, "vera")
    assert {verb for verb, _, _ in audited} == {"get", "list"}
    refused = [(verb, path) for verb, path, code in audited if code == 403]
    assert not refused, "the role allows all that is read"


def test_who_may_view_the_cluster_needs_no_other_role(plane: ControlPlane, viewer: Plugin) -> None:
    require_program("kube-controller-manager")
    plane.start_controllers("--controllers=clusterrole-aggregation-controller")
    kubectl = plane.build_kubectl("")
    kubectl("create", "clusterrolebinding", "vic", "--clusterrole=view", "--user=vic")

    def read_rules() -> str:
        return kubectl("get", "clusterrole", "view", "-o", "jsonpath={.rules}").out

    until(lambda: "devicetaintrules" in read_rules(), read_rules)
    shown = build_plugin(plane.folder, plane.write_kubeconfig("vic"))("free")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == viewer("free").stdout


def test_rights_in_one_namespace(neighbour: Plugin) -> None:
    unread = (
        "dray: not allowed to read nodes, resourceslices.resource.k8s.io, deviceclasses.resource.k8s.io, "
        "devicetaintrules.resource.k8s.io; resourceclaims.resource.k8s.io, "
        "resourceclaimtemplates.resource.k8s.io, pods outside of namespace `ml`: "
        "the answer comes from the rest"
    )
    waits = neighbour("explain", "pod/train-1", "-n", "ml")
    assert waits.returncode == 1
    assert waits.stdout.startswith("Pod ml/train-1 cannot run yet: 0/1 nodes are available")
    assert waits.stderr.splitlines()[0] == unread
    assert len(waits.stderr.splitlines()) == 2
    runs = neighbour("explain", "pod/train-0", "-n", "ml")
    assert (runs.returncode, runs.stdout.splitlines()[0]) == (0, "Pod ml/train-0 is on node-a")
    assert "gpu.example.com/node-a/gpu-0-half-0" in runs.stdout
    status = neighbour("status", "-n", "ml")
    assert status.stdout.splitlines()[1] == "node-a   unknown   1"
    assert status.stderr.splitlines()[0] == unread
    free = neighbour("free", "-n", "ml")
    assert (free.returncode, free.stdout) == (2, "")
    assert free.stderr.startswith("dray: no devices can be read: not allowed to read nodes, resourceslices.")


def test_what_goes_wrong_is_one_line(plane: ControlPlane, viewer: Plugin, tmp_path: Path) -> None:
    nobody = build_plugin(plane.folder, plane.write_kubeconfig("nobody"))
    expired = build_plugin(plane.folder, plane.write_kubeconfig("ended", days=0))
    gone = tmp_path / "gone.kubeconfig"
    gone.write_text(plane.kubeconfig.read_text().replace(str(plane.port), str(free_port())))
    away = build_plugin(plane.folder, gone)
    for plugin, words in (
        (nobody, "not even in namespace `default`; name one that you may read with `-n`"),
        (
            expired,
            f"does not accept the credentials in `{plane.folder}/ended.kubeconfig`: its client certificate",
        ),
        (away, f"connection refused (`{gone}` names this server)"),
    ):
        for command in ("explain", "status"):
            said = plugin(command)
            assert (said.returncode, said.stdout) == (2, "")
            assert words in said.stderr
            assert said.stderr.count("\n") == 1
