"""Every gate off in every component while all features are in use; the path of upgrades in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.api import path
from tests.e2e.gated import Cluster, Restarts
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import cluster as apart
from tests.e2e.server import clean_environment, running
from tests.e2e.test_gates_and_skew import (
    ALTERNATIVES,
    EITHER,
    GPU,
    Document,
    aligned,
    device_class,
    inventory,
    nic,
    off,
    part,
    rooted,
    template_of,
)
from tests.e2e.use_case_cluster import Stage, claim, named, node, pod, request, template

req = pytest.mark.req

GATES = (
    ALTERNATIVES,
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
    "DRAResourceSlicePriority",
    "DRAPartitionableDevices",
    "DRAAdminAccess",
    "DRADeviceTaints",
)


def _of(driver: str) -> Document:
    return device_class(driver, f'device.driver == "{driver}"')


def _partition(name: str) -> Document:
    draws = {"counterSet": "memory", "counters": {"gigabytes": {"value": "40"}}}
    return {"name": name, "consumesCounters": [draws]}


def _inventories() -> list[Document]:
    counters = {"name": "memory", "counters": {"gigabytes": {"value": "80"}}}
    sick = {"key": "example.com/sick", "effect": "NoSchedule"}
    parts = [
        inventory("parts-0", slices=2, driver="part.example.com", sharedCounters=[counters]),
        inventory(
            "parts-1", *(_partition(f"part-{n}") for n in range(3)), slices=2, driver="part.example.com"
        ),
    ]
    del parts[0]["spec"]["devices"]
    return [
        inventory("gpus", *({"name": f"gpu-{n}"} for n in range(6))),
        inventory("nics", nic(), driver="nic.example.com"),
        inventory("cpus", rooted("cpu-0", "r1", "r2"), driver="cpu.example.com"),
        inventory("cards", rooted("card-0", "r2"), driver="card.example.com"),
        inventory("sick", {"name": "sick-0", "taints": [sick]}, driver="sick.example.com"),
        *parts,
        inventory("a", {"name": "a-0"}, slices=2, driver="order.example.com"),
        inventory("b", {"name": "b-0"}, slices=2, driver="order.example.com", priority=5),
    ]


def _claims() -> dict[str, Document]:
    """A claim for every feature, by name."""
    share = part("5G")
    share["exactly"]["deviceClassName"] = "nic.example.com"
    tolerations = [{"key": "example.com/sick", "operator": "Exists"}]
    made = [
        claim("alternative", EITHER),
        claim("share", share),
        aligned("aligned"),
        claim("tolerating", request("x", "sick.example.com", tolerations=tolerations)),
        claim("partition", request("x", "part.example.com", count=2)),
        claim("watching", request("x", GPU, adminAccess=True)),
        claim("ordered", request("x", "order.example.com")),
    ]
    return {each["metadata"]["name"]: each for each in made}


async def _furnish(cluster: Cluster) -> None:
    """A node with devices for everything."""
    mark = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await cluster.patch("/api/v1/namespaces/default", mark)
    for driver in ("nic", "sick", "part", "order"):
        await cluster.make(_of(f"{driver}.example.com"))
    for name in ("cpu", "card"):
        await cluster.make(device_class(name, f'device.driver == "{name}.example.com"'))
    await cluster.make(node("n"), _of(GPU), device_class("big", "false"), *_inventories())


async def _use(cluster: Cluster) -> None:
    """A pod for every feature."""
    for name, document in _claims().items():
        await cluster.make(document, pod(name, named(name)))
    for name in _claims():
        assert await cluster.bound(name) == "n"


@req("K3063-169", "K4816-094", "K4816-095", "K4816-101", "K5075-154", "K5773-037", "K5773-038", "K5491-042")
async def test_whatever_gate_goes_allocations_stay_and_plain_claims_are_served(tmp_path: Path) -> None:
    again = Restarts(tmp_path)
    async with again.running() as cluster:
        await _furnish(cluster)
        await _use(cluster)
        kept = await cluster.kept()
        assert len(kept) == len(_claims())
        assert await cluster.devices("ordered") == ["x b-0"]
    for gate in GATES:
        for where in ("server", "scheduler", "controller", "every"):
            async with again.running(**{where: off(gate)}) as cluster:
                await cluster.are_kept(kept)
                await cluster.make(claim("plain", request("gpu", GPU)), pod("plain", named("plain")))
                assert await cluster.bound("plain") == "n", (gate, where)
                await cluster.ends("plain")
                await cluster.delete(path("resourceclaims", "plain"))
                await cluster.gone(path("resourceclaims", "plain"))
                assert (await cluster.get("/dray/ledger"))["agrees"], (gate, where)
    async with again.running() as cluster:
        await cluster.are_kept(kept)


@pytest.mark.parametrize(
    ("gate", "name", "words"),
    [
        (ALTERNATIVES, "alternative", f"the {ALTERNATIVES} feature is disabled"),
        ("DRAConsumableCapacity", "share", "the DRAConsumableCapacity feature is disabled"),
        ("DRAAdminAccess", "watching", "the DRAAdminAccess feature is disabled"),
        ("DRAListTypeAttributes", "aligned", "example.com/root"),
        ("DRAPartitionableDevices", "partition", "part.example.com"),
    ],
)
@req("K4816-088", "K5075-150", "K5491-039")
async def test_what_the_scheduler_does_not_know_waits_with_a_reason_until_it_does(
    tmp_path: Path, gate: str, name: str, words: str
) -> None:
    again = Restarts(tmp_path)
    async with again.running(scheduler=off(gate)) as cluster:
        await _furnish(cluster)
        await cluster.make(_claims()[name], pod(name, named(name)))
        await cluster.pending(name, words)
    async with again.running() as cluster:
        assert await cluster.bound(name) == "n"


@req("K4816-106", "K4816-107", "K4816-108", "K4816-109")
def test_alternatives_off_and_on_again_in_processes_of_their_own(
    tmp_path: Path, home: Path, kubectl_program: str
) -> None:
    """The path of upgrades of the proposal, with a server and a scheduler that share nothing but the API."""
    with apart(tmp_path) as started:
        stage = Stage.opened(kubectl_program, home, started.server.kubeconfig)
        scheduler = started.service("scheduler", "dray:scheduler")
        started.service("controller", "dray:controller")
        stage.make(node("n"), device_class(GPU), device_class("big", "false"))
        stage.make(inventory("s", *({"name": f"gpu-{number}"} for number in range(4))))
        stage.make(template_of("either", EITHER), pod("first", template("either")))
        assert stage.bound("first") == "n"
        running_before = stage.claim(stage.claim_of("first"))
        scheduler.stop()
        started.service("scheduler", "dray:scheduler", "--feature-gates", off(ALTERNATIVES))
        stage.make(pod("second", template("either")))
        assert ALTERNATIVES in stage.pending("second")
        namespace = stage.kubectl.namespace
    with running(tmp_path, "--feature-gates", off(ALTERNATIVES)) as server:
        old = Kubectl(kubectl_program, clean_environment(home, server.kubeconfig), namespace)
        refused = old("create", "-f", "-", given=claim("new", EITHER), fails=True)
        assert "exactly one of `exactly` or `firstAvailable` is required" in refused.err
        assert old.get("resourceclaim", running_before["metadata"]["name"]) == running_before
    with apart(tmp_path) as started:
        stage = Stage(Kubectl(kubectl_program, clean_environment(home, started.server.kubeconfig), namespace))
        started.service("scheduler", "dray:scheduler")
        assert stage.bound("second") == "n"
        assert stage.claim(running_before["metadata"]["name"]) == running_before
