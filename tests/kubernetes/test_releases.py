"""Kit, scheduler and controller on the API of earlier releases, as kube-apiserver emulates them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from dray.client.connect import connect
from dray.driver import Pool, device
from dray.driver.publishing.publisher import Publisher, PublisherOptions
from tests.contract.documents import device_class, pod, template
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane
from tests.kubernetes.dray_services import start_dray

RELEASES = ("1.34", "1.35", "1.36", None)


async def publish_device(kubeconfig: Path) -> None:
    """Publish one device as a kit driver does."""
    async with connect(str(kubeconfig)) as client:
        publisher = Publisher(client, "gpu.example.com", "node-a", PublisherOptions())
        await publisher.publish([Pool("node-a", [device("gpu-0", attributes={"model": "small"})])])


def is_bound(kubectl: Kubectl, name: str) -> bool:
    return bool(kubectl.get("pod", name)["spec"].get("nodeName"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release or "newest")
def test_a_pod_gets_a_published_device_and_gives_it_back(release: str | None, tmp_path: Path) -> None:
    require_program("kube-apiserver")
    with ControlPlane.open(tmp_path, ApiServerOptions(emulated_version=release)) as plane:
        kubectl = plane.build_kubectl()
        plane.create_node("node-a")
        asyncio.run(publish_device(plane.kubeconfig))
        kubectl("create", "-f", "-", given=[device_class(), template("gpu")])
        scheduler, controller = start_dray(plane, "scheduler"), start_dray(plane, "controller")
        for name in ("first", "second"):
            asking = pod(name, claim_name="g")
            asking["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "gpu"}]
            kubectl("create", "-f", "-", given=asking)
            until(partial(is_bound, kubectl, name), scheduler.read_log_end)
            (claim,) = kubectl.get("resourceclaims")["items"]
            (result,) = claim["status"]["allocation"]["devices"]["results"]
            assert (result["pool"], result["device"]) == ("node-a", "gpu-0")
            kubectl("delete", "pod", name, "--force", "--grace-period=0")
            until(lambda: not kubectl.get("resourceclaims")["items"], controller.read_log_end)
        served = kubectl("get", "--raw", "/version").document
        assert release is None or f"{served['emulationMajor']}.{served['emulationMinor']}" == release
