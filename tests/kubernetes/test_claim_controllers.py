"""`dray controller` on a kube-apiserver: without kube-controller-manager, and beside it."""

from __future__ import annotations

import signal

from tests.contract.documents import device_class, pod, resource_slice, template
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.dray_services import start_dray

STANDS_BACK = "kube-controller-manager keeps the claims, this controller stands back"


def create_pod(kubectl: Kubectl, name: str) -> None:
    asking = pod(name, claim_name="g")
    asking["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "gpu"}]
    kubectl("create", "-f", "-", given=asking)


def list_claims(kubectl: Kubectl) -> list[str]:
    """The names of the pods that claims were made for."""
    claims = kubectl.get("resourceclaims")["items"]
    return sorted(owner["name"] for claim in claims for owner in claim["metadata"]["ownerReferences"])


def test_one_controller_keeps_the_claims(plane: ControlPlane, kubectl: Kubectl) -> None:
    plane.create_node("node-a")
    kubectl("create", "-f", "-", given=[device_class(), resource_slice("slice-a"), template("gpu")])
    plane.start_scheduler()
    controller = start_dray(plane, "controller")

    # Alone it creates claims, and deletes them with their pods: there is no garbage collector.
    create_pod(kubectl, "first")
    until(lambda: bool(kubectl.get("pod", "first")["spec"].get("nodeName")), controller.read_log_end)
    assert list_claims(kubectl) == ["first"]
    kubectl("delete", "pod", "first", "--force", "--grace-period=0")
    until(lambda: list_claims(kubectl) == [], controller.read_log_end)

    # It stands back as soon as kube-controller-manager leads, and takes over when that is gone.
    others = plane.start_controllers("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s")
    until(lambda: STANDS_BACK in controller.log.read_text(), others.read_log_end)
    names = [f"beside-{number}" for number in range(5)]
    for name in names:
        create_pod(kubectl, name)
    until(lambda: set(list_claims(kubectl)) == set(names), others.read_log_end)
    managers = {
        entry["manager"]
        for claim in kubectl("get", "resourceclaims", "-o", "json", "--show-managed-fields").document["items"]
        for entry in claim["metadata"]["managedFields"]
    }
    assert "dray-controller" not in managers
    assert list_claims(kubectl) == names

    others.stop(signal.SIGKILL)
    create_pod(kubectl, "last")
    until(lambda: "last" in list_claims(kubectl), controller.read_log_end)
