"""A whole cluster in this process: pods get nodes, claims get devices, and a restart continues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import NotFoundError
from dray.cluster.local.cluster import LocalCluster, LocalClusterOptions, open_cluster
from dray.cluster.services.api_server import ServerProcessOptions
from dray.cluster.services.components import ComponentOptions
from dray.gates import GateSet
from dray.server.http.flow_control import FlowController
from dray.server.http.requests import AUTHENTICATED, MASTERS
from tests.support.in_process_transport import InProcessTransport

ALTERNATIVES = {
    "name": "gpu",
    "firstAvailable": [
        {"name": "big", "deviceClassName": "big-gpu"},
        {"name": "any", "deviceClassName": "gpu"},
    ],
}
PLAIN = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
OFF = GateSet.parse("AllAlpha=false,AllBeta=false,DynamicResourceAllocation=false")
"""Everything that has to do with claims."""
WITHOUT_ALTERNATIVES = GateSet.parse("DRAPrioritizedList=false")


def template(request: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            "containers": [{"name": "c", "image": "registry.example.com/c:1"}],
        },
    }


def options(folder: Path, scheduler: GateSet | None = None, **more: Any) -> LocalClusterOptions:
    return LocalClusterOptions(
        ServerProcessOptions(folder, port=0, **more),
        ComponentOptions(scheduler or GateSet.from_defaults(), leader_elect=False),
        ComponentOptions(leader_elect=False, upkeep=True),
        nodes=2,
        simulated=1,
        runtime="fake",
    )


def admin(cluster: LocalCluster) -> Client:
    return Client(InProcessTransport(cluster.server.app, "admin", (MASTERS, AUTHENTICATED)))


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():
            await asyncio.sleep(0.02)


async def bound(client: Client, name: str) -> Pod:
    async def has_node() -> bool:
        return bool((await client.get(Pod, name, "default")).spec.node_name)

    await until(has_node)
    return await client.get(Pod, name, "default")


async def run(client: Client, name: str) -> Pod:
    async def runs() -> bool:
        return (await client.get(Pod, name, "default")).status.phase == "Running"

    await until(runs)
    return await client.get(Pod, name, "default")


def played(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(50):
            await work()

    asyncio.run(main())


def test_a_pod_finds_its_node_and_leaves_it_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_cluster(options(tmp_path, store="memory:")) as cluster:
            await cluster.wait_until_ready()
            assert cluster.pending_services == ()
            client = admin(cluster)
            await client.create(template(PLAIN))
            await client.create(pod("p"))
            placed = await run(client, "p")
            (claim,) = (await client.list(ResourceClaim)).items
            assert claim.status.allocation is not None
            assert claim.status.allocation.devices.results[0].pool == placed.spec.node_name
            await client.delete(Pod, "p", "default")

            async def is_over() -> bool:
                try:
                    await client.get(Pod, "p", "default")
                except NotFoundError:
                    return not (await client.list(ResourceClaim)).items
                return False

            await until(is_over)
            text = cluster.server.metrics.render().decode()
            assert "scheduler_pending_pods" in text
            assert "resourceclaim_controller_" in text
            assert f'kubelet_running_pods{{node="{placed.spec.node_name}"}}' in text

    played(work)


def test_a_second_start_has_everything_as_before(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_cluster(options(tmp_path)) as cluster:
            client = admin(cluster)
            await client.create(template(PLAIN))
            await client.create(pod("p"))
            before = await bound(client, "p")
            claims = (await client.list(ResourceClaim)).items
        async with open_cluster(options(tmp_path)) as cluster:
            await cluster.wait_until_ready()
            client = admin(cluster)
            assert (await client.get(Pod, "p", "default")).spec == before.spec
            await run(client, "p")
            assert (await client.list(ResourceClaim)).items == claims
            await client.create(pod("q"))
            await bound(client, "q")
            first, second = (await client.list(ResourceClaim)).items
            assert _devices(first).isdisjoint(_devices(second))

    played(work)


def _devices(claim: ResourceClaim) -> set[tuple[str, str]]:
    assert claim.status.allocation is not None
    return {(each.pool, each.device) for each in claim.status.allocation.devices.results}


def test_gates_are_chosen_for_each_component(tmp_path: Path) -> None:
    async def refused() -> None:
        async with open_cluster(options(tmp_path, WITHOUT_ALTERNATIVES)) as cluster:
            client = admin(cluster)
            await client.create(template(ALTERNATIVES))
            await client.create(pod("p"))

            async def is_told() -> bool:
                waiting = await client.get(Pod, "p", "default")
                return any(
                    "the DRAPrioritizedList feature is disabled" in each.message
                    for each in waiting.status.conditions
                )

            await until(is_told)

    async def placed() -> None:
        async with open_cluster(options(tmp_path)) as cluster:
            await bound(admin(cluster), "p")

    played(refused)
    played(placed)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.req("K3063-162", "K3063-163", "K3063-164", "K3063-166")
def test_a_cluster_without_claims_runs_its_pods_without_devices(tmp_path: Path, lost: bool) -> None:
    """Those that waited for a device, and those that had one; also when nodes have lost their records."""

    async def work() -> None:
        async with open_cluster(options(tmp_path)) as cluster:
            client = admin(cluster)
            await client.create(template(PLAIN))
            await client.create(template({"name": "gpu", "exactly": {"deviceClassName": "none"}}, "never"))
            waits = pod("waits")
            waits["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "never"
            await client.create(waits)
            await client.create(pod("has"))
            had = await run(client, "has")
        if lost:
            for record in tmp_path.glob("nodes/*/checkpoint"):
                record.unlink()
        chosen = options(tmp_path, OFF, gates=OFF)
        chosen = replace(chosen, controller=ComponentOptions(OFF, leader_elect=False), gates=OFF)
        async with open_cluster(chosen) as cluster:
            client = admin(cluster)
            assert (await run(client, "waits")).spec.resource_claims, "what is stored stays"
            assert (await run(client, "has")).spec.node_name == had.spec.node_name

    played(work)


SHARED = {"pods", "nodes", "resourceclaims", "resourceslices", "devicetaintrules"}


@pytest.mark.parametrize("processes", [1, 2])
def test_components_of_one_process_watch_each_large_kind_once(tmp_path: Path, processes: int) -> None:
    async def work() -> None:
        chosen = replace(options(tmp_path, store="memory:"), nodes=0, simulated=0, processes=processes)
        async with open_cluster(chosen) as cluster:
            await cluster.wait_until_ready()
            flow_control = cast(FlowController, cluster.server.app.flow_control)

            async def are_watched_once() -> bool:
                counts = {row: n for row, n in flow_control.watches.items() if row[2] in SHARED}
                # The simulated kubelet of the server's process selects nodes by a label.
                assert all(n <= 1 + (plural == "nodes") for (_, _, plural), n in counts.items()), counts
                users = flow_control._watches_per_user
                # Claims are also classic, and only the scheduler reads classes.
                return users.get("dray:informers") == len(SHARED) + 1 and users.get("dray:scheduler") == 1

            await until(are_watched_once)

    played(work)
