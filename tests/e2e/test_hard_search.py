"""`dray scheduler` in a process of its own, while a search goes on that does not end."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.brute.hard import WANTED, hard_constraints, hard_devices
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import until
from tests.e2e.processes import Process
from tests.e2e.server import clean_environment, command, running

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"


def published(node: str, devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A node with devices."""
    resources = {"cpu": "8", "memory": "16Gi", "pods": "100"}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node},
            "status": {"capacity": resources, "allocatable": resources},
        },
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec},
    ]


def pod_with_claim(name: str, kind: str, count: int, **devices: Any) -> list[dict[str, Any]]:
    """A pod, and a claim for devices of one kind."""
    selector = f'device.attributes["{DRIVER}"].kind == "{kind}"'
    asked = {"deviceClassName": DRIVER, "count": count, "selectors": [{"cel": {"expression": selector}}]}
    requests = [{"name": "gpu", "exactly": asked}]
    claims = [{"name": "gpu", "resourceClaimName": name}]
    containers = [{"name": "c", "image": "registry.example.com/c:1"}]
    return [
        {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": requests, **devices}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"resourceClaims": claims, "containers": containers},
        },
    ]


@pytest.fixture
def kubectl(tmp_path: Path, kubectl_program: str, home: Path) -> Iterator[Kubectl]:
    with running(tmp_path) as server:
        yield Kubectl(kubectl_program, clean_environment(home, server.kubeconfig), "default")


@pytest.fixture
def scheduler(tmp_path: Path, kubectl: Kubectl) -> Iterator[Process]:
    file = kubectl.environment["KUBECONFIG"]
    arguments = command(
        "scheduler", "--kubeconfig", file, "--metrics-address", "127.0.0.1:0", "--search-timeout", "1h"
    )
    process = Process(arguments, tmp_path / "scheduler.log", "metrics at")
    process.start()
    yield process
    process.stop()


def test_it_leads_answers_and_places_meanwhile(kubectl: Kubectl, scheduler: Process) -> None:
    (address,) = re.findall(r"metrics at (\S+)", scheduler.log.read_text())

    def read(path: str) -> str:
        return str(urllib.request.urlopen(address.replace("/metrics", path), timeout=30).read().decode())

    def number(name: str) -> float:
        (found,) = re.findall(rf"^{name} (\S+)$", read("/metrics"), re.MULTILINE)
        return float(found)

    def lease() -> dict[str, Any]:
        spec: dict[str, Any] = kubectl.get("lease", "dray-scheduler", "-n", "kube-system")["spec"]
        return spec

    def is_bound(name: str) -> bool:
        return "nodeName" in kubectl.get("pod", name)["spec"]

    easy = [{"name": f"gpu-{n}", "attributes": {"kind": {"string": "easy"}}} for n in range(4)]
    gpus = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {}}
    nodes = [*published("hard", hard_devices(kind={"string": "hard"})), *published("easy", easy)]
    kubectl("apply", "-f", "-", given=[gpus, *nodes])
    constraints = hard_constraints(DRIVER)
    kubectl("apply", "-f", "-", given=pod_with_claim("hard", "hard", WANTED, constraints=constraints))
    until(lambda: number("dray_scheduler_pods_awaiting_search") == 1, scheduler.log.read_text)
    first = lease()
    for name in ("a", "b", "c"):
        kubectl("apply", "-f", "-", given=pod_with_claim(name, "easy", 1))
        until(partial(is_bound, name), scheduler.log.read_text)
    assert read("/healthz") == read("/readyz") == "ok"
    until(lambda: lease()["renewTime"] > first["renewTime"], scheduler.log.read_text)
    assert lease()["holderIdentity"] == first["holderIdentity"]
    assert lease()["leaseTransitions"] == 0
    still = "devices for claim default/hard are still being searched for"
    until(lambda: still in str(kubectl.get("pod", "hard")["status"]), scheduler.log.read_text)
    assert number("dray_scheduler_pods_awaiting_search") == 1
    assert number("dray_scheduler_search_seconds_total") > 0
