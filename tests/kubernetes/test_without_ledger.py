"""`dray scheduler` on a kube-apiserver without a guard: it says so, and gives nothing twice by itself."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.contract.documents import claim, device_class, pod, resource_slice
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.dray_services import start_dray

NO_LEDGER = "no ledger: other schedulers of this cluster may allocate the same devices"
PODS = 20
ROUNDS = 10
"""Whether two schedulers choose the same device in one round is chance."""
BOUND_SECONDS = 180.0


@pytest.fixture(scope="module")
def schedulers(plane: ControlPlane) -> dict[str, Program]:
    """A node with a device for each pod, and three schedulers."""
    plane.create_node("node-a")
    plane.build_kubectl()(
        "create", "-f", "-", given=[device_class(), resource_slice("slice-a", devices=PODS)]
    )
    started = {
        name: start_dray(plane, "scheduler", "--scheduler-name", name, name=name) for name in ("one", "two")
    }
    return {**started, "default-scheduler": plane.start_scheduler()}


def create_pods(kubectl: Kubectl, *schedulers: str) -> list[str]:
    """Create pods that ask for a device each, of the schedulers in turn; return their names."""
    names = [f"{'-'.join(schedulers)}-{number}" for number in range(PODS)]
    waiting = [pod(name, claim_name=name) for name in names]
    for number, each in enumerate(waiting):
        each["spec"]["schedulerName"] = schedulers[number % len(schedulers)]
    kubectl("create", "-f", "-", given=[claim(name) for name in names])
    kubectl("create", "-f", "-", given=waiting)
    return names


def are_bound(kubectl: Kubectl) -> bool:
    return all(each["spec"].get("nodeName") for each in kubectl.get("pods")["items"])


def count_holders(kubectl: Kubectl) -> Counter[str]:
    """How many claims have each device."""
    return Counter(
        result["device"]
        for each in kubectl.get("resourceclaims")["items"]
        for result in each["status"].get("allocation", {"devices": {"results": []}})["devices"]["results"]
    )


def give_back(kubectl: Kubectl, names: list[str]) -> None:
    """Delete pods and claims; there are no controllers that would."""
    kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    for name in names:
        status = '{"status":{"allocation":null,"reservedFor":null}}'
        kubectl("patch", "resourceclaim", name, "--subresource=status", "--type=merge", "-p", status)
        kubectl("patch", "resourceclaim", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl("delete", "resourceclaims", "--all")


def test_the_log_says_once_that_there_is_no_ledger(schedulers: dict[str, Program]) -> None:
    log = schedulers["one"].log
    until(lambda: "scheduling" in log.read_text(), schedulers["one"].read_log_end)
    assert log.read_text().count(NO_LEDGER) == 1


def test_two_of_our_schedulers_give_no_device_twice(kubectl: Kubectl, schedulers: dict[str, Program]) -> None:
    for _ in range(ROUNDS):
        names = create_pods(kubectl, "one", "two")
        until(lambda: are_bound(kubectl), schedulers["one"].read_log_end, seconds=BOUND_SECONDS)
        assert count_holders(kubectl) == {f"gpu-{number}": 1 for number in range(PODS)}
        give_back(kubectl, names)
        logs = "".join(schedulers[name].log.read_text() for name in ("one", "two"))
        if "gave its devices back" in logs:
            return
    pytest.fail(f"the schedulers never met in {ROUNDS} rounds, so this shows nothing")


def test_beside_kube_scheduler_every_pod_gets_a_node_and_what_is_taken_back_names_its_holder(
    kubectl: Kubectl, schedulers: dict[str, Program]
) -> None:
    """What kube-scheduler stores after our check cannot be noticed in time, so nothing is said about that."""
    for _ in range(ROUNDS):
        names = create_pods(kubectl, "one", "default-scheduler")
        until(lambda: are_bound(kubectl), schedulers["one"].read_log_end, seconds=BOUND_SECONDS)
        told = kubectl.get("events", "--field-selector=reason=DuplicateAllocation")["items"]
        for each in told:
            assert "gave its devices back: device gpu.example.com/" in each["message"]
            assert "is held by claim default/" in each["message"]
        give_back(kubectl, names)
        if told:
            return
    pytest.fail(f"the schedulers never met in {ROUNDS} rounds, so this shows nothing")
