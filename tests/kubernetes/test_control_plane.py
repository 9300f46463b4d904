"""The harness itself: kube-scheduler allocates a device to a pod that it binds."""

from __future__ import annotations

from tests.contract.documents import device_class, pod, resource_slice, template
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane


def test_kube_scheduler_allocates_a_device(plane: ControlPlane, kubectl: Kubectl) -> None:
    plane.start_scheduler()
    plane.start_controllers()
    plane.create_node("node-a")
    kubectl("create", "-f", "-", given=[device_class(), resource_slice("slice-a"), template("gpu")])
    asking = pod("first", claim_name="g")
    asking["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "gpu"}]
    kubectl("create", "-f", "-", given=asking)

    def is_bound() -> bool:
        return bool(kubectl.get("pod", "first")["spec"].get("nodeName"))

    until(is_bound, lambda: kubectl("describe", "pod", "first").out)
    (claim,) = kubectl.get("resourceclaims")["items"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["pool"] == "node-a"
    assert claim["status"]["reservedFor"][0]["name"] == "first"
