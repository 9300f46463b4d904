"""A kit driver under a kubelet: what its containers read about their devices, and what pods show of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.wire.device_metadata import decode_metadata
from tests.contract.documents import device_class, pod, template
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.images import IMAGE
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node

NAME = "gpu.example.com"
FILE = f"/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/g/gpu/{NAME}-metadata.json"
DRIVER = f"""
import sys
from dray.driver import DeviceMetadata, DeviceState, Driver, Ready, device, run

class Gpu(Driver):
    name, device_metadata, health_seconds = "{NAME}", True, 0.5

    def devices(self):
        yield device("gpu-0", attributes={{"model": "a100", "resource.kubernetes.io/numaNode": 1}})

    def prepare(self, claim):
        return [Ready(got, metadata=DeviceMetadata({{"vf": 3}})) for got in claim.devices]

    def health(self):
        yield DeviceState("gpu-0", False, "too hot", timeout_seconds=60)

run(Gpu, sys.argv[1:])
"""


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[KubeletNode]:
    plane.start_controllers()
    plane.start_scheduler()
    with open_kubelet_node(plane) as opened:
        yield opened


@pytest.fixture(scope="module")
def driver(plane: ControlPlane, node: KubeletNode) -> Program:
    places = {
        "--plugins": node.kubelet_dir / "plugins",
        "--plugins-registry": node.kubelet_dir / "plugins_registry",
        "--cdi-dir": node.cdi_dir,
        "--kubeconfig": plane.kubeconfig,
    }
    flags = [word for flag, place in places.items() for word in (flag, str(place))]
    return plane.add_command([sys.executable, "-c", DRIVER, "--node", node.name, *flags], "driver")


def read_log(node: KubeletNode, name: str) -> str:
    """The output of a pod's container, without what the runtime puts before each line."""
    files = sorted(Path(node.root / "logs").glob(f"*_{name}_*/*/0.log"))
    lines = files[0].read_text().splitlines() if files else []
    return "\n".join(re.sub(r"^\S+ stdout [FP] ", "", line) for line in lines)


def test_a_container_reads_its_devices_and_the_pod_shows_their_health(
    node: KubeletNode, driver: Program, kubectl: Kubectl
) -> None:
    kubectl("create", "-f", "-", given=[device_class(), template("gpu")])
    asking: Any = pod("first", claim_name="g")
    asking["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "gpu"}]
    asking["spec"]["containers"][0] |= {"image": IMAGE, "command": ["sh", "-c", f"cat {FILE}; sleep 600"]}
    kubectl("create", "-f", "-", given=asking)

    def explain() -> str:
        return kubectl("describe", "pod", "first").out + driver.read_log_end() + node.kubelet.read_log_end()

    until(lambda: read_log(node, "first").count("apiVersion") == 2, explain)
    content = decode_metadata(read_log(node, "first").encode())
    (found,) = content.requests[0].devices
    assert (content.pod_claim_name, found.driver, found.pool, found.name) == ("g", NAME, node.name, "gpu-0")
    assert found.attributes == {
        "model": {"string": "a100"},
        "resource.kubernetes.io/numaNode": {"int": 1},
        "vf": {"int": 3},
    }

    def get_health() -> list[Any]:
        (status,) = kubectl.get("pod", "first")["status"]["containerStatuses"]
        return list(status.get("allocatedResourcesStatus", []))

    until(lambda: "Unhealthy" in str(get_health()), explain)
    (claim,) = kubectl.get("resourceclaims")["items"]
    resource = {"resourceID": f"{NAME}/claim={claim['metadata']['uid']}-0", "health": "Unhealthy"}
    ((shown,),) = [each["resources"] for each in get_health()]
    assert shown == resource | {"message": "too hot"}
    kubectl("delete", "pod", "first", "--grace-period=0", "--force")
    until(lambda: not list(node.cdi_dir.iterdir()), explain)
    assert not list((node.kubelet_dir / "plugins" / NAME / "dra-device-metadata").iterdir())
