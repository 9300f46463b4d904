"""What the lines of the specification cost a cluster: `dray up` in processes of its own."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.node import PodTimes, until, upped
from bench.processes import Measured
from bench.scheduler.cluster import ClusterOptions, running
from bench.scheduler.figures import Figures
from bench.scheduler.measuring import measure
from bench.scheduler.objects import Document, basic
from bench.scheduler.workloads import WORKLOADS, Workload
from bench.specification.timing import Figure, spread
from dray.api.core import Pod
from dray.client.client import Client
from dray.gates import GATES

NODES: Final = 20
SETTLE_SECONDS, IDLE_SECONDS = 3.0, 6.0
STEADY_SECONDS: Final = 4.0
WITHOUT: Final = ",".join(f"{name}=false" for name in GATES)
"""No claims: neither is their API served, nor does anybody watch for them."""


def find_workload(name: str) -> Workload:
    """Find a workload of the scheduler benchmark by a part of its name."""
    return next(workload for workload in WORKLOADS if name in workload.name)


def run_workload(workload: Workload, seconds: float = STEADY_SECONDS) -> Figures:
    """Run a workload of the scheduler benchmark on a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name, running(ClusterOptions(Path(name))) as it:
        return uvloop.run(measure(workload, it.address, seconds, it, counted=True))


def describe_run(what: str, figures: Figures) -> list[Figure]:
    """The figures of a run: pods per second, waits, and what a pod costs the processor."""
    return [
        Figure(f"{what}: pods per second", figures.average, ""),
        *spread(f"{what}: create to node", [wait * 1000 for wait in figures.waits], "ms"),
        Figure(f"{what}: processor per pod", figures.milliseconds_each or 0.0, "ms"),
    ]


def measure_workloads(*names: str) -> list[Figure]:
    """Workloads of the scheduler benchmark, shortly."""
    found: list[Figure] = []
    for name in names:
        found += describe_run(name, run_workload(find_workload(name)))
    return found


def build_prioritized_slices(number: int) -> list[Document]:
    """Build the slices of a node of the scheduler benchmark with the priority of another in each."""
    found = basic(number)
    for document in found:
        document["spec"]["priority"] = number % 101 - 50
        document["spec"]["pool"]["priority"] = number % 101 - 50
    return found


def measure_priorities(seconds: float = STEADY_SECONDS) -> list[Figure]:
    """The throughput with and without priorities of slices and pools."""
    plain = find_workload("Template/half_500nodes")
    found: list[Figure] = []
    for what, workload in {
        "without priorities": plain,
        "with priorities": replace(plain, slices=build_prioritized_slices),
    }.items():
        found += describe_run(what, run_workload(workload, seconds))
    return found


class Beside:
    """A cluster with or without claims, a client of it, and the times of its pods."""

    def __init__(self, what: str, cluster: Measured, client: Client, times: PodTimes) -> None:
        self.what, self.cluster, self.client, self.times = what, cluster, client, times
        self.took: list[float] = []

    async def start_pod(self, number: int) -> None:
        """Start a pod without claims, and remember how long that took."""
        name = f"p{number}"
        begun = time.perf_counter()
        await self.client.create(build_plain_pod(name))
        await until(lambda: name in self.times.ran)
        self.took.append((self.times.ran[name] - begun) * 1000)
        await self.client.delete(Pod, name, "default")
        await until(lambda: name in self.times.gone)


def build_plain_pod(name: str) -> dict[str, Any]:
    """Build a pod without claims."""
    container = {"name": "c", "image": "none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container]},
    }


async def _measure_beside(pods: int, idle: float) -> list[Figure]:
    async with AsyncExitStack() as stack:
        both: list[Beside] = []
        for what, gates in (("without claims", WITHOUT), ("with claims, unused", "")):
            options = ["--nodes", "0", "--simulated", str(NODES), "--processes", "1"]
            options += ["--feature-gates", gates] if gates else []
            cluster, client = await stack.enter_async_context(upped(*options))
            times = await stack.enter_async_context(PodTimes(client).watched())
            both.append(Beside(what, cluster, client, times))
        found: list[Figure] = []
        if idle:
            found += await _measure_idle(both, idle)
        for number in range(pods):
            for each in both if number % 2 else reversed(both):
                await each.start_pod(number)
        for each in both if pods else ():
            found += spread(f"{each.what}: create to running, {pods} pods", each.took, "ms")
        return found


async def _measure_idle(both: list[Beside], seconds: float) -> list[Figure]:
    await asyncio.sleep(SETTLE_SECONDS)
    before = [each.cluster.processor_seconds() for each in both]
    await asyncio.sleep(seconds)
    found: list[Figure] = []
    for each, used in zip(both, before, strict=True):
        share = (each.cluster.processor_seconds() - used) / seconds * 100
        found += [
            Figure(f"{each.what}: processor at rest, {NODES} nodes", share, "%"),
            Figure(f"{each.what}: memory", each.cluster.megabytes(), "MB"),
        ]
    return found


def measure_idle(seconds: float = IDLE_SECONDS) -> list[Figure]:
    """Two clusters at rest, with and without everything about claims."""
    return uvloop.run(_measure_beside(0, seconds))


def measure_plain_pods(pods: int) -> list[Figure]:
    """Pods without claims on two clusters in turns, with and without everything about claims."""
    return uvloop.run(_measure_beside(pods, 0.0))
