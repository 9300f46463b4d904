"""The guard on a kube-apiserver: every allocation goes through it, and none of a held device is stored."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.documents import claim, device_class, pod, resource_slice
from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl, Ran
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.guards import install_guard, start_guard
from tests.kubernetes.test_shared_claims import create_with_white_space

DRIVER, POOL = "gpu.example.com", "node-a"
WEBHOOK = "validatingwebhookconfiguration/dray-guard"
ROTATED_IN = 150.0
"""Seconds: a guard looks for due certificates every half minute, and then loads what it wrote."""


@pytest.fixture(scope="module")
def guard(plane: ControlPlane) -> Program:
    """kube-scheduler and a guard, whose webhook is registered, on a node with devices."""
    plane.create_node("node-a")
    plane.build_kubectl()("create", "-f", "-", given=[device_class(), resource_slice("slice-a", devices=20)])
    port = free_port()
    install_guard(plane, port)
    started = start_guard(plane, port)
    plane.start_scheduler()
    wait_until_it_decides(started)
    return started


def wait_until_it_decides(guard: Program, times: int = 1) -> None:
    until(lambda: guard.log.read_text().count("this guard decides now") >= times, guard.read_log_end)


def allocate(kubectl: Kubectl, name: str, *devices: str, fails: bool | None = None, **more: Any) -> Ran:
    """Write an allocation by hand."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": POOL, "device": device, **more} for device in devices
    ]
    patch = json.dumps({"status": {"allocation": {"devices": {"results": results}}}})
    return kubectl(
        *("patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", patch), fails=fails
    )


def run_pod(kubectl: Kubectl, name: str) -> str:
    """Create a claim and a pod for kube-scheduler, wait until it has a node, and return its device."""
    kubectl("create", "-f", "-", given=[claim(name), pod(name, claim_name=name)])
    until(
        lambda: bool(kubectl.get("pod", name)["spec"].get("nodeName")),
        lambda: kubectl("describe", "pod", name).out,
    )
    return read_device(kubectl, name)


def read_device(kubectl: Kubectl, name: str) -> str:
    allocation = kubectl.get("resourceclaim", name)["status"]["allocation"]
    return str(allocation["devices"]["results"][0]["device"])


def wait_longer(is_so: Callable[[], bool], seconds: float, guard: Program) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, guard.read_log_end()
        time.sleep(0.5)


def test_what_kube_scheduler_allocated_is_denied_to_others_with_its_holder(
    kubectl: Kubectl, guard: Program
) -> None:
    device = run_pod(kubectl, "first")
    kubectl("create", "-f", "-", given=claim("second"))
    denied = allocate(kubectl, "second", device, fails=True)
    assert f"device {DRIVER}/{POOL}/{device} is held by claim default/first" in denied.err
    assert 'Error from server (Conflict): admission webhook "guard.dray.dev" denied the request' in denied.err
    assert "allocation" not in kubectl.get("resourceclaim", "second").get("status", {})


def test_a_dry_run_is_decided_and_changes_nothing(kubectl: Kubectl, guard: Program) -> None:
    kubectl("create", "-f", "-", given=[claim("dry"), claim("real")])
    patch = json.dumps({"status": {"allocation": {"devices": {"results": [result("gpu-19")]}}}})
    arguments = ("patch", "resourceclaim", "dry", "--subresource=status", "--type=merge", "-p", patch)
    kubectl(*arguments, "--dry-run=server")
    allocate(kubectl, "real", "gpu-19", fails=False)
    denied = kubectl(*arguments, "--dry-run=server", fails=True)
    assert "is held by claim default/real" in denied.err


def result(device: str) -> dict[str, str]:
    return {"request": "gpu", "driver": DRIVER, "pool": POOL, "device": device}


def test_a_deallocated_device_is_free_again(kubectl: Kubectl, guard: Program) -> None:
    kubectl("create", "-f", "-", given=[claim("taker"), claim("next")])
    allocate(kubectl, "taker", "gpu-18", fails=False)
    allocate(kubectl, "next", "gpu-18", fails=True)
    gone = json.dumps({"status": {"allocation": None}})
    kubectl("patch", "resourceclaim", "taker", "--subresource=status", "--type=merge", "-p", gone)
    allocate(kubectl, "next", "gpu-18", fails=False)


def test_a_guard_that_was_killed_knows_again_who_holds_what(
    kubectl: Kubectl, guard: Program, plane: ControlPlane, tmp_path: Any
) -> None:
    """Its successor fences the claims that wait, also one that JSON cannot write back unchanged."""
    kubectl("create", "-f", "-", given=[claim("holder"), claim("rival")])
    create_with_white_space(kubectl, tmp_path, "white-space")
    allocate(kubectl, "holder", "gpu-17", fails=False)
    decided = guard.log.read_text().count("this guard decides now")
    guard.kill()
    refused = allocate(kubectl, "rival", "gpu-16", fails=True)
    assert "failed calling webhook" in refused.err
    guard.start()
    wait_until_it_decides(guard, decided + 1)
    denied = allocate(kubectl, "rival", "gpu-17", fails=True)
    assert "is held by claim default/holder" in denied.err
    for name in ("rival", "white-space"):
        assert "dray.dev/guard-fence" in kubectl.get("resourceclaim", name)["metadata"]["annotations"]
    assert "annotations" not in kubectl.get("resourceclaim", "holder")["metadata"]
    allocate(kubectl, "rival", "gpu-16", fails=False)
    run_pod(kubectl, "after-restart")


def test_certificates_are_replaced_while_allocations_go_on(
    kubectl: Kubectl, guard: Program, plane: ControlPlane
) -> None:
    """Deleting the Secret replaces the authority and the certificate; no allocation is refused meanwhile."""
    secret = ("secret", "dray-guard-tls", "-n", "kube-system")
    before = kubectl.get(*secret)["data"]
    kubectl("delete", *secret)
    renewed = guard.log.read_text().count("certificates were renewed")
    kubectl("create", "-f", "-", given=claim("toggled"))

    def is_rotated() -> bool:
        toggle(kubectl)
        return guard.log.read_text().count("certificates were renewed") > renewed

    wait_longer(is_rotated, ROTATED_IN, guard)
    after = kubectl.get(*secret)["data"]
    assert after["tls.crt"] != before["tls.crt"]
    bundle = base64.b64decode(kubectl.get(WEBHOOK)["webhooks"][0]["clientConfig"]["caBundle"])
    assert bundle == base64.b64decode(after["ca.crt"])
    assert bundle.endswith(base64.b64decode(before["ca.crt"]))
    toggle(kubectl)


def toggle(kubectl: Kubectl) -> None:
    """Allocate a device and give it back."""
    allocate(kubectl, "toggled", "gpu-15", fails=False)
    gone = json.dumps({"status": {"allocation": None}})
    kubectl("patch", "resourceclaim", "toggled", "--subresource=status", "--type=merge", "-p", gone)


def test_without_its_webhook_the_cluster_works_and_conflicts_are_reported(
    kubectl: Kubectl, guard: Program
) -> None:
    """The last test of this module: it removes the webhook as in an emergency."""
    kubectl("create", "-f", "-", given=[claim("one"), claim("two")])
    allocate(kubectl, "one", "gpu-14", fails=False)
    guard.kill()
    allocate(kubectl, "two", "gpu-13", fails=True)
    kubectl("delete", WEBHOOK)
    until(lambda: allocate(kubectl, "two", "gpu-14").code == 0)
    guard.start()

    def has_events() -> bool:
        events = kubectl.get("events")["items"]
        subjects = {each["involvedObject"]["name"] for each in events if each["reason"] == "DeviceConflict"}
        return {"one", "two"} <= subjects

    until(has_events, guard.read_log_end)
