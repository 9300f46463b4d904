"""Nodes and drivers: `python -m bench.node [WHAT ...]`; WHAT is one of prepare, pods, simulated, publish,
apply.

Everything runs through `dray up` in its own process, as users have it: durable store, TLS, audit log, drivers
on their sockets. Only `prepare` runs inside this process, where calls can be timed one by one: the real
preparer of the agent and a real driver of the kit, with the server in memory beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.processes import Measured
from dray.api.core import Pod
from dray.client.client import Client, DeleteOptions
from dray.client.config.kubeconfig import load_client_config
from dray.client.informers.informer import Informer
from dray.client.transports.http import HttpTransport

Document = dict[str, Any]
Figures = dict[str, float]
NAMESPACE = "default"


class Upped(Measured):
    """`dray up` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        begun = time.perf_counter()
        log = folder / "up.log"
        command = [sys.executable, "-m", "dray.cli", "up", "--port", "0", "--data-dir", str(folder / "data")]
        with log.open("wb") as lines:
            self.process = subprocess.Popen([*command, *options], stdout=lines, stderr=lines)
        while b"use it with" not in log.read_bytes():
            if self.process.poll() is not None:
                raise SystemExit(f"the cluster ended:\n{log.read_text()}")
            time.sleep(0.01)
        self.seconds_to_start = time.perf_counter() - begun
        self.kubeconfig = folder / "data" / "admin.kubeconfig"


@asynccontextmanager
async def upped(*options: str) -> AsyncIterator[tuple[Upped, Client]]:
    """A cluster, and a client of it."""
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        cluster = Upped(Path(folder), *options)
        client = Client(HttpTransport(load_client_config(str(cluster.kubeconfig), "")))
        try:
            yield cluster, client
        finally:
            await client.close()
            cluster.stop()


def template(name: str, device_class: str) -> Document:
    request = {"name": "it", "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str, claim_from: str) -> Document:
    container = {
        "name": "c",
        "image": "none",
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": "it"}]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "it", "resourceClaimTemplateName": claim_from}],
        },
    }


class PodTimes:
    """When pods started to run and when they were deleted, from a watch."""

    def __init__(self, client: Client) -> None:
        self.ran: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self._informer = Informer(client, Pod, NAMESPACE)
        self._informer.listen(
            added=self._see, updated=lambda _before, now: self._see(now), deleted=self._leave
        )

    def _see(self, pod: Pod) -> None:
        if pod.status.phase == "Running":
            self.ran.setdefault(pod.metadata.name, time.perf_counter())

    def _leave(self, pod: Pod) -> None:
        self.gone[pod.metadata.name] = time.perf_counter()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[PodTimes]:
        watching = asyncio.create_task(self._informer.run())
        try:
            await self._informer.wait_for_sync()
            yield self
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def until(is_so: Callable[[], bool], seconds: float = 180.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.005)


async def pods(count: int = 110) -> Figures:
    """As many pods as a node takes, each with a share of a network card: started and stopped."""
    async with upped("--nodes", "1") as (cluster, client), PodTimes(client).watched() as times:
        await client.create(template("share", "shared-nic"))
        names = [f"p{number}" for number in range(count)]
        busy, begun = cluster.processor_seconds(), time.perf_counter()
        await asyncio.gather(*(client.create(pod(name, "share")) for name in names))
        await until(lambda: len(times.ran) == count)
        started = time.perf_counter() - begun
        cost = cluster.processor_seconds() - busy
        begun = time.perf_counter()
        await asyncio.gather(*(client.delete(Pod, name, NAMESPACE, DeleteOptions()) for name in names))
        await until(lambda: len(times.gone) == count)
        return {
            "pods": count,
            "all running after s": started,
            "processor ms for each": cost / count * 1000,
            "all gone after s": time.perf_counter() - begun,
            "memory MB": cluster.megabytes(),
        }


async def simulated(count: int = 500, seconds: float = 30.0) -> Figures:
    """Simulated nodes in one process: memory, and what their heartbeats cost."""
    async with upped("--nodes", "0", "--simulated", str(count)) as (cluster, client):
        await asyncio.sleep(15)  # the start is over
        busy = cluster.processor_seconds()
        await asyncio.sleep(seconds)
        idle = (cluster.processor_seconds() - busy) / seconds
        memory = cluster.megabytes()
        async with PodTimes(client).watched() as times:
            await client.create(template("gpu", "gpu"))
            begun = time.perf_counter()
            names = [f"p{number}" for number in range(count)]
            await asyncio.gather(*(client.create(pod(name, "gpu")) for name in names))
            await until(lambda: len(times.ran) == count)
            return {
                "nodes": count,
                "ready after s": cluster.seconds_to_start,
                "memory MB": memory,
                "processor % at rest": idle * 100,
                f"{count} pods running after s": time.perf_counter() - begun,
                "memory MB with pods": cluster.megabytes(),
            }


async def apply(count: int = 40) -> Figures:
    """From the start of `kubectl apply` to the container running, one pod after the other."""
    async with upped("--nodes", "3") as (cluster, client), PodTimes(client).watched() as times:
        await client.create(template("gpu", "gpu"))
        took = []
        for number in range(count):
            document = json.dumps(pod(f"p{number}", "gpu")).encode()
            command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "apply", "-f", "-"]
            begun = time.perf_counter()
            await asyncio.to_thread(subprocess.run, command, input=document, capture_output=True, check=True)
            name = f"p{number}"
            await until(lambda name=name: name in times.ran)  # type: ignore[misc]
            took.append(times.ran[name] - begun)
            await client.delete(Pod, name, NAMESPACE)
            await until(lambda name=name: name in times.gone)  # type: ignore[misc]
        return {"pods": count, **_spread(took, "kubectl apply to running")}


async def publish(count: int = 1000) -> Figures:
    """The devices of a driver: published, published again without a change, and with one changed."""
    from dray.driver import Pool, device
    from dray.driver.publishing.publisher import Publisher

    async with upped("--nodes", "1") as (_, client):
        publisher = Publisher(client, "bench.example.com", "node-0")
        watching = asyncio.create_task(publisher.run())
        took = []
        for sides in (6, 6, 7):
            devices = [
                device(f"d-{number}", attributes={"n": number, "sides": sides if number == 500 else 6})
                for number in range(count)
            ]
            begun = time.perf_counter()
            await publisher.publish([Pool("node-0", devices)])
            took.append((time.perf_counter() - begun) * 1000)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        first, again, one = took
        return {"devices": count, "first ms": first, "again ms": again, "one changed ms": one}


async def prepare(count: int = 300) -> Figures:
    """What the agent adds to the driver's own time between a pod that is there and its devices."""
    from bench.preparing import timed

    added, calls = await timed(count)
    return {"claims": count, **_spread(added, "added by the agent"), **_spread(calls, "call of the driver")}


def _spread(seconds: Sequence[float], what: str) -> Figures:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"{what} p50 ms": cuts[49] * 1000, f"{what} p99 ms": cuts[98] * 1000}


BENCHES = {"prepare": prepare, "pods": pods, "simulated": simulated, "publish": publish, "apply": apply}


def main() -> None:
    """Measure what was named, or all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *BENCHES], default=[])
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    given = parser.parse_args()
    found: dict[str, Figures] = {}
    for name in given.what or BENCHES:
        found[name] = asyncio.run(BENCHES[name]())
        print(name)
        for what, figure in found[name].items():
            print(
                f"  {what:<36}{figure:>10.1f}" if figure % 1 else f"  {what:<36}{figure:>10.0f}", flush=True
            )
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
