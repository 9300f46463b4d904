"""kube-controller-manager on the server of dray: workloads that say almost nothing become pods."""

from __future__ import annotations

import os
from pathlib import Path

from tests.contract.recorded_defaults import read_cases
from tests.differential.stacks import open_stack
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program

OWNERS = {"ReplicaSet", "StatefulSet", "ReplicationController", "Job"}
"""Who owns pods when nothing but kube-controller-manager works; a daemon set needs a node."""


def test_kube_controller_manager_creates_pods_of_the_smallest_workloads(tmp_path: Path) -> None:
    require_program("kube-controller-manager")
    kinds = ("Deployment", "StatefulSet", "ReplicationController", "Job", "DaemonSet", "CronJob")
    given = [case.given for case in read_cases("workloads") if case.id in {f"{k}/smallest" for k in kinds}]
    with open_stack("dray-server", tmp_path / "stack", {}) as kubeconfig:
        home = tmp_path / "home"
        home.mkdir()
        environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"]}
        kubectl = Kubectl("kubectl", environment, "default")
        kubectl("apply", "-f", "-", given=given)

        def find_owners() -> set[str]:
            pods = kubectl.get("pods")["items"]
            return {owner["kind"] for pod in pods for owner in pod["metadata"].get("ownerReferences", ())}

        until(lambda: find_owners() >= OWNERS, lambda: str(find_owners()))
    log = (tmp_path / "stack" / "kube-controller-manager.log").read_text()
    assert "panic" not in log.lower(), log[-4000:]
