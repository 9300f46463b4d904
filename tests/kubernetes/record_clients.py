"""`python -m tests.kubernetes.record_clients FILE`: records what the programs of Kubernetes write.

A kube-apiserver answers; kube-scheduler, kube-controller-manager, a kubelet with containers and Kubernetes'
test driver connect through a proxy that records. The workload makes them write every kind they ever write.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.kubectl import Kubectl
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ControlPlane, Program, ServerPlane
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node
from tests.kubernetes.recorded_workload import (
    DRIVER,
    NAMESPACE,
    build_aggregated_role,
    build_claims,
    build_preemption,
    build_taint_rule,
    build_workloads,
)
from tests.kubernetes.recording_proxy import Upstream, record_writes

WAITS = 90.0
"""Seconds for each stage; a stage that takes longer is given up, what was recorded counts."""


def start_driver(plane: ServerPlane, node: KubeletNode, *flags: str) -> Program:
    """Kubernetes' test driver, unmodified, below the directories of a kubelet."""
    (node.kubelet_dir / "plugins" / DRIVER).mkdir(parents=True, exist_ok=True)
    arguments = [
        str(require_program("dra-test-driver")),
        f"--kubeconfig={plane.write_kubeconfig('driver', 'system:masters')}",
        "kubelet-plugin",
        f"--node-name={node.name}",
        f"--plugin-registration-path={node.kubelet_dir / 'plugins_registry'}",
        f"--datadir={node.kubelet_dir / 'plugins'}",
        f"--cdi-dir={node.cdi_dir}",
    ]
    return plane.add_command([*arguments, *flags], "driver")


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    """Wait for a stage, and say on stderr when it was given up."""
    end = time.monotonic() + WAITS
    while time.monotonic() < end:
        with suppress(AssertionError, KeyError):
            if is_so():
                print(f"{what}: yes", file=sys.stderr)
                return
        time.sleep(1)
    print(f"{what}: given up", file=sys.stderr)


def ask_as_stranger(port: int, certificate: tuple[Path, Path]) -> None:
    """Ask a program for its metrics, with a token that nobody issued and as a user without rights.

    It asks the server whose token that is, and whether the user may.
    """
    for token in ("not-a-token", ""):
        _ask(port, certificate, token)


def _ask(port: int, certificate: tuple[Path, Path], token: str) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    else:
        context.load_cert_chain(*certificate)
    with suppress(OSError):
        urllib.request.urlopen(request, context=context, timeout=10).close()


def write_certificate(plane: ServerPlane) -> tuple[Path, Path]:
    made = plane.keys.issue_client_certificate("stranger", (), days=1)
    files = (plane.folder / "stranger.crt", plane.folder / "stranger.key")
    for file, content in zip(files, (made.cert_pem, made.key_pem), strict=True):
        file.write_bytes(content)
    return files


def find_port(program: Program) -> int:
    return next(int(each.split("=")[1]) for each in program.arguments if each.startswith("--secure-port"))


def get_phases(kubectl: Kubectl) -> dict[str, str]:
    items: list[Any] = kubectl.get("pods")["items"]
    return {item["metadata"]["name"]: item["status"].get("phase", "") for item in items}


def publish_again(plane: ServerPlane, node: KubeletNode, kubectl: Kubectl) -> None:
    """Start the driver with another number of devices: it updates its slice."""
    again = start_driver(plane, node, "--num-devices=5")
    wait_for("the slice is updated", lambda: "device-04" in str(kubectl.get("resourceslices")))
    again.stop()


def run_workload(kubectl: Kubectl, node: KubeletNode) -> None:
    """Create everything, let it run, change some of it, and delete it."""
    kubectl("create", "-f", "-", given=[*build_claims(), *build_aggregated_role()])
    wait_for("claims are prepared", lambda: get_phases(kubectl).get("both") == "Running")
    kubectl("create", "-f", "-", given=build_workloads())
    wait_for("the job is done", lambda: "Complete" in str(kubectl.get("job", "job")["status"]))
    wait_for(
        "workloads run",
        lambda: list(get_phases(kubectl).values()).count("Running") >= 6,
    )
    kubectl("create", "-f", "-", given=build_preemption(node.name))
    wait_for("a pod is preempted", lambda: "usual" not in get_phases(kubectl))
    (claim,) = [
        each
        for each in kubectl.get("resourceclaims")["items"]
        if each["metadata"].get("ownerReferences", [{}])[0].get("name") == "own"
    ]
    device = claim["status"]["allocation"]["devices"]["results"][0]["device"]
    kubectl("create", "-f", "-", given=build_taint_rule(node.name, device))
    wait_for("a pod is evicted", lambda: "own" not in get_phases(kubectl))
    kubectl("scale", "deployment", "deployment", "--replicas=2")
    kubectl("set", "env", "deployment/deployment", "statefulset/stateful", "A=b")
    time.sleep(15)
    wait_for(
        "a cron job ran",
        lambda: "lastScheduleTime" in kubectl.get("cronjob", "cron")["status"],
    )
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    wait_for("the namespace is gone", lambda: kubectl("get", "ns", NAMESPACE, fails=None).code != 0)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.record_clients", description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args(arguments).file
    with tempfile.TemporaryDirectory(prefix="rc-") as name, ControlPlane.open(Path(name) / "plane") as plane:
        upstream = Upstream(plane.url, plane.keys)
        kubectl = plane.build_kubectl(NAMESPACE)
        with record_writes(upstream, file, Path(name)) as url:
            plane.redirect_clients(url)
            asking = plane.write_kubeconfig("asking", "system:masters")
            delegated = [f"--{what}-kubeconfig={asking}" for what in ("authentication", "authorization")]
            controllers = plane.start_controllers(*delegated)
            scheduler = plane.start_scheduler("--leader-elect=true", *delegated)
            with open_kubelet_node(plane, config={"serverTLSBootstrap": True}) as node:
                driver = start_driver(plane, node)
                for program in (controllers, scheduler):
                    ask_as_stranger(find_port(program), write_certificate(plane))
                run_workload(kubectl, node)
                driver.stop()
                publish_again(plane, node, kubectl)
                for program in (controllers, scheduler):
                    program.stop()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    print(f"{len(lines)} writes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
