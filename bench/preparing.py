"""The time from a bound pod to ready devices, measured call by call inside one process.

A cluster with one node runs here, its server included, with a fake container runtime. Two calls are timed:
what the agent does for a pod's claims as a whole, and inside of it the driver's call over its socket. The
difference is the agent's own: reading the claim, the record on disk, the preparation on the server.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.node import PodTimes, pod, template, until
from dray.api.core import Pod
from dray.client.client import Client
from dray.cluster.local.cluster import LocalClusterOptions, open_cluster
from dray.cluster.services.api_server import ServerProcessOptions
from dray.cluster.services.components import ComponentOptions
from dray.node.claims import preparer
from dray.node.plugins import driver_client
from dray.server.http.requests import AUTHENTICATED, MASTERS
from tests.support.in_process_transport import InProcessTransport


async def timed(count: int) -> tuple[list[float], list[float]]:
    """Seconds that the agent added, and that the driver's call took, for each of so many pods."""
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        options = LocalClusterOptions(
            ServerProcessOptions(Path(folder), port=0),
            ComponentOptions(leader_elect=False),
            ComponentOptions(leader_elect=False, upkeep=True),
            nodes=1,
            runtime="fake",
        )
        async with open_cluster(options) as cluster:
            await cluster.wait_until_ready()
            app = cluster.server.app
            client = Client(InProcessTransport(app, "admin", (MASTERS, AUTHENTICATED)))
            async with PodTimes(client).watched() as times:
                await client.create(template("gpu", "gpu"))
                with _watched() as (whole, calls):
                    for number in range(count):
                        await _run_pod(client, times, f"p{number}")
        return [all_of_it - call for all_of_it, call in zip(whole, calls, strict=True)], calls


async def _run_pod(client: Client, times: PodTimes, name: str) -> None:
    await client.create(pod(name, "gpu"))
    await until(lambda: name in times.ran)
    await client.delete(Pod, name, "default")
    await until(lambda: name in times.gone)


@contextmanager
def _watched() -> Iterator[tuple[list[float], list[float]]]:
    whole: list[float] = []
    calls: list[float] = []
    # Only what led to a call counts: a pod that is ready is asked for again now and then.
    with (
        _timing(preparer.PodClaimPreparer, "prepare", whole, lambda: len(calls)),
        _timing(driver_client.DraDriverClient, "prepare", calls),
    ):
        yield whole, calls


@contextmanager
def _timing(
    owner: Any, name: str, found: list[float], turns: Callable[[], int] = lambda: -1
) -> Iterator[None]:
    original = getattr(owner, name)

    async def timed_call(*given: Any) -> Any:
        before, begun = turns(), time.perf_counter()
        answer = await original(*given)
        if before < 0 or turns() > before:
            found.append(time.perf_counter() - begun)
        return answer

    setattr(owner, name, timed_call)
    try:
        yield
    finally:
        setattr(owner, name, original)
