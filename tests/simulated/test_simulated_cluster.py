"""The simulated cluster: pods run on it, and everything follows from the seed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.client.errors import ServerUnreachableError
from dray.client.object_refs import get_kind
from tests.contract.documents import device_class, pod, resource_slice, template
from tests.simulated.cluster import SimulatedCluster
from tests.simulated.event_loop import SimulatedLoop

POD = get_kind("Pod")


def build_cluster(seed: int) -> SimulatedCluster:
    """A cluster with two servers, two schedulers and two nodes, started."""
    cluster = SimulatedCluster(seed)
    cluster.load_initial_objects()
    for name in ("a", "b"):
        cluster.add_server(f"server-{name}")
        cluster.add_scheduler(f"scheduler-{name}")
    cluster.add_controllers("controllers")
    for name in ("node-a", "node-b"):
        cluster.add_node(name)
    cluster.start_all()
    cluster.run(5.0)
    return cluster


async def create_pods(cluster: SimulatedCluster, count: int, node: str = "node-a") -> None:
    """Create devices on two nodes, and pods that use them."""
    client = cluster.build_admin()
    slices = (resource_slice("one", node), resource_slice("two", "node-b"))
    for document in (device_class(), *slices, template("t")):
        await client.create(document)
    for number in range(count):
        document = pod(f"p{number}")
        document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        document["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        await client.create(document)


def run_pods(seed: int) -> tuple[str, dict[str, Any]]:
    """Run pods; return a digest of everything that was committed, and the phase of each pod."""
    cluster = build_cluster(seed)
    digest = hashlib.sha256()
    cluster.store.listeners.append(lambda batch: digest.update(repr((cluster.loop.steps, batch)).encode()))
    cluster.loop.spawn(cluster.loop.outside, create_pods(cluster, 4))
    cluster.run(10.0)
    phases: dict[str, Any] = {}

    async def read_pods() -> None:
        for found in (await cluster.build_admin().list(POD)).items:
            phases[found["metadata"]["name"]] = found["status"]["phase"]

    cluster.loop.spawn(cluster.loop.outside, read_pods())
    cluster.run(1.0)
    assert cluster.loop.failures == []
    cluster.close()
    return digest.hexdigest(), phases


def test_pods_run_on_a_simulated_cluster():
    _, phases = run_pods(1)
    assert phases == dict.fromkeys(("p0", "p1", "p2", "p3"), "Running")


def test_the_same_seed_gives_the_same_run_in_any_interpreter():
    program = "from tests.simulated.test_simulated_cluster import run_pods; print(run_pods(7)[0])"
    digests = {run_pods(7)[0], run_pods(7)[0]}
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert run_pods(8)[0] not in digests


def test_a_crashed_process_runs_no_further_step():
    from random import Random

    loop = SimulatedLoop(Random(1))
    process = loop.start_process("one")
    done: list[str] = []

    async def work() -> None:
        try:
            done.append("begun")
            await asyncio.sleep(5)
            done.append("slept")
        finally:
            done.append("cleaned up")

    loop.spawn(process, work())
    loop.run(loop.time() + 1)
    loop.crash(process)
    loop.run(loop.time() + 10)
    assert done == ["begun"]
    loop.close()


def test_a_client_of_a_crashed_server_learns_that_its_connection_broke():
    cluster = SimulatedCluster(3)
    cluster.load_initial_objects()
    server = cluster.add_server("server")
    cluster.start_all()
    cluster.run(1.0)
    found: list[object] = []

    async def ask() -> None:
        try:
            found.append(len((await cluster.build_admin().list(POD)).items))
        except ServerUnreachableError as broken:
            found.append(broken.sent)

    cluster.loop.spawn(cluster.loop.outside, ask())
    cluster.run(1.0)
    cluster.crash(server)
    cluster.loop.spawn(cluster.loop.outside, ask())
    cluster.run(60.0)
    cluster.start(server)
    cluster.run(1.0)
    cluster.loop.spawn(cluster.loop.outside, ask())
    cluster.run(1.0)
    cluster.close()
    assert found == [0, False, 0]


def test_services_wait_for_a_server_that_starts_later():
    cluster = SimulatedCluster(4)
    cluster.load_initial_objects()
    server = cluster.add_server("server")
    cluster.add_scheduler("scheduler")
    cluster.add_controllers("controllers")
    cluster.add_node("n")
    for service in cluster.services.values():
        if service is not server:
            cluster.start(service)
    cluster.run(60.0)
    assert [name for name, service in cluster.services.items() if service.task and service.task.done()] == []
    cluster.start(server)
    cluster.run(60.0)
    cluster.loop.spawn(cluster.loop.outside, create_pods(cluster, 1, node="n"))
    cluster.run(10.0)
    assert len(cluster.machines["n"].runtime.list_running_pods()) == 1
    cluster.close()


@pytest.mark.parametrize("jobs", [0.0, 2.0])
def test_work_for_a_thread_takes_virtual_time(jobs):
    from random import Random

    loop = SimulatedLoop(Random(1))
    loop.job_delay = lambda: jobs
    found: list[object] = []

    async def work() -> None:
        found.append(await asyncio.to_thread(lambda: "done"))
        found.append(loop.time())

    begun = loop.time()
    loop.spawn(loop.outside, work())
    loop.run(begun + 10)
    assert found == ["done", begun + 2 * jobs]
    loop.close()
