"""`dray doctor node` beside a real kubelet: a pod with a device, its driver killed, and what is left then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.documents import device_class, pod, template
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.images import IMAGE
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node

NAME = "gpu.example.com"
DRIVER = f"""
import sys
from dray.driver import Driver, Ready, device, run

class Gpu(Driver):
    name = "{NAME}"

    def devices(self):
        yield device("gpu-0", attributes={{"model": "a100"}})

    def prepare(self, claim):
        return [Ready(got, env={{"GPU": got.device}}) for got in claim.devices]

run(Gpu, sys.argv[1:])
"""


@pytest.fixture(scope="module")
def node(plane: ControlPlane) -> Iterator[KubeletNode]:
    plane.start_controllers()
    plane.start_scheduler()
    with open_kubelet_node(plane) as opened:
        yield opened


def inspect(node: KubeletNode) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    places = ["--kubelet-dir", str(node.kubelet_dir), "--cdi-dir", str(node.cdi_dir)]
    command = [sys.executable, "-m", "dray", "doctor", "node", "-o", "json", *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_living_driver_is_in_order_and_a_killed_one_is_found(
    plane: ControlPlane, node: KubeletNode, kubectl: Kubectl
) -> None:
    assert inspect(node)[0] == 0
    places = {
        "--plugins": node.kubelet_dir / "plugins",
        "--plugins-registry": node.kubelet_dir / "plugins_registry",
        "--cdi-dir": node.cdi_dir,
        "--kubeconfig": plane.kubeconfig,
    }
    flags = [word for flag, place in places.items() for word in (flag, str(place))]
    driver = plane.add_command([sys.executable, "-c", DRIVER, "--node", node.name, *flags], "driver")
    kubectl("create", "-f", "-", given=[device_class(), template("gpu")])
    asking: Any = pod("first", claim_name="g")
    asking["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "gpu"}]
    asking["spec"]["containers"][0] |= {"image": IMAGE, "command": ["sh", "-c", "sleep 600"]}
    kubectl("create", "-f", "-", given=asking)
    until(lambda: kubectl.get("pod", "first")["status"]["phase"] == "Running", driver.read_log_end)

    code, report = inspect(node)
    (claim,) = kubectl.get("resourceclaims")["items"]
    assert report == {
        "drivers": [NAME],
        "claims": [f"default/{claim['metadata']['name']}"],
        "cdiDevices": [f"{NAME}/claim={claim['metadata']['uid']}-0"],
        "findings": [],
    }
    assert code == 0

    driver.kill()
    for path in node.cdi_dir.iterdir():
        path.unlink()
    code, report = inspect(node)
    assert code == 1
    found = [(each["check"], each["severity"]) for each in report["findings"]]
    assert found[:2] == [("claims", "error"), ("claims", "error")], "no driver, and no file for its device"
    assert {check for check, _ in found[2:]} == {"sockets", "leftovers"}, "the sockets of the killed driver"
