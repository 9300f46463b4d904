"""Many node agents in a process: `python -m bench.agents`; a line of JSON on stdin is the `AgentJob`.

A line `ready` says that every node is ready and every driver has published its devices. The process runs
until it is interrupted.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvloop

from bench.agents.credentials import NodeTokens, build_client
from bench.scheduler.objects import DRIVER
from dray.client.config.client_config import ClientConfig
from dray.client.config.kubeconfig import load_client_config
from dray.cluster.services.node_agents import NodeOptions, build_agent
from dray.driver import Claim, Device, Driver, Ready, device
from dray.driver.service.driver_service import DriverService, DriverServiceOptions

DEVICES = 10
CAPACITY = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}


class AgentJob(msgspec.Struct):
    """Which nodes to run, as which users, and where."""

    kubeconfig: str
    folder: str
    nodes: list[NodeTokens]


class TenDevices(Driver):
    """Ten equal devices on each node, ready without any work."""

    name = DRIVER

    def devices(self) -> Iterator[Device]:
        for number in range(DEVICES):
            yield device(f"basic-device-{number}", attributes={"model": "B60"}, capacity={"memory": "24Gi"})

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            yield Ready(got, env={"BENCH_DEVICE": got.device})


async def run_agents(job: AgentJob) -> None:
    """Run all agents and drivers until cancelled."""
    config = load_client_config(job.kubeconfig, "")
    async with asyncio.TaskGroup() as tasks:
        await asyncio.gather(
            *(_run_node(config, Path(job.folder) / tokens.node, tokens, tasks) for tokens in job.nodes)
        )
        gc.collect()
        gc.freeze()
        print("ready", flush=True)


async def _run_node(config: ClientConfig, root: Path, tokens: NodeTokens, tasks: asyncio.TaskGroup) -> None:
    """Start the agent of a node and then its driver; return when both are ready."""
    options = NodeOptions(
        tokens.node,
        root,
        plugins=root / "plugins",
        cdi=(root / "cdi",),
        runtime="fake",
        capacity=CAPACITY,
        port=None,
    )
    agent = build_agent(build_client(config, tokens.agent), options)
    tasks.create_task(agent.run())
    await agent.ready.wait()
    driver_options = DriverServiceOptions(
        tokens.node, root / "plugins", root / "plugins_registry", root / "cdi", root / "driver"
    )
    service = DriverService(TenDevices(), build_client(config, tokens.driver), driver_options)
    tasks.create_task(service.run())
    await service.ready.wait()
    await service.registered.wait()


async def _run_until_interrupted(job: AgentJob) -> None:
    work = asyncio.create_task(run_agents(job))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    await asyncio.wait([work])
    if not work.cancelled():
        work.result()


def main() -> None:
    uvloop.run(_run_until_interrupted(msgspec.json.decode(sys.stdin.buffer.readline(), type=AgentJob)))


if __name__ == "__main__":
    main()
