"""The agent as a whole: after a restart it takes over its pods, and removes those that are deleted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray.client.client import Client
from dray.client.errors import ServerUnreachableError
from dray.client.transport import TransportRequest, TransportResponse, TransportStream
from dray.cluster.services.node_agents import NodeOptions, build_agent, build_runtime
from dray.errors import InputError
from dray.node.agent import NodeAgent
from dray.node.containers.runtime.base import (
    ContainerLaunch,
    ContainerNotStarted,
    ContainerStarted,
    FoundContainer,
)
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.pods import supervisor
from tests.unit.node.agent_harness import AgentHarness, Document, container, pod, run_on_node, until


def started(seen: Document) -> tuple[int, str]:
    one = seen["status"]["containerStatuses"][0]
    return one["restartCount"], one["containerID"]


async def containers(harness: AgentHarness) -> tuple[FoundContainer, ...]:
    return await ProcessRuntime(harness.root / "containers").list_containers()


async def has_no_containers(harness: AgentHarness) -> bool:
    return await containers(harness) == ()


@pytest.mark.req("K3063-172")
def test_containers_run_on_without_their_agent_and_are_taken_up_again(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            before = started(await harness.phase("p", "Running"))
        (found,) = await containers(harness)
        assert found.exit is None
        async with harness.agent():
            assert started(await harness.pod("p")) == before
            assert len(await containers(harness)) == 1
            assert harness.driver.asked == ["prepare default/gpus"]
            await harness.delete("p")
            await harness.gone("p")
            assert harness.driver.asked == ["prepare default/gpus", "unprepare default/gpus"]
            await until(lambda: has_no_containers(harness))

    run_on_node(tmp_path, work)


def test_a_container_that_ended_meanwhile_is_not_missed(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        go = tmp_path / "go"
        waits = container("c", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 4")
        async with harness.agent():
            await harness.create(pod("p", waits, restartPolicy="Never"))
            await harness.phase("p", "Running")
        go.touch()

        async def has_ended() -> bool:
            return all(found.exit is not None for found in await containers(harness))

        await until(has_ended)
        async with harness.agent():
            seen = await harness.phase("p", "Failed")
            assert seen["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4

    run_on_node(tmp_path, work)


def test_what_is_left_of_a_pod_that_went_meanwhile_is_cleared(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
        await harness.delete("p", grace=0)
        async with harness.agent():

            async def is_cleared() -> bool:
                kept = list((harness.root / "logs").iterdir())
                return not harness.driver.held and not await containers(harness) and not kept

            await until(is_cleared)
        assert harness.driver.asked == ["prepare default/gpus", "unprepare default/gpus"]

    run_on_node(tmp_path, work)


def test_pods_that_are_stopped_with_their_agent_start_again_with_the_next(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent(stop_pods=True):
            await harness.create(pod("p", claim="gpus", restartPolicy="Never"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
        assert await containers(harness) == ()
        assert (await harness.pod("p"))["status"]["phase"] == "Running", "it is only a pause"
        assert harness.driver.held
        async with harness.agent():
            seen = await harness.until("p", lambda seen: started(seen)[1].endswith("_1"))
            assert seen["status"]["phase"] == "Running"
            assert "running" in seen["status"]["containerStatuses"][0]["state"]
            (found,) = await containers(harness)
            assert found.exit is None
            assert harness.driver.asked == ["prepare default/gpus"], "it stayed prepared"

    run_on_node(tmp_path, work)


def test_a_pod_that_is_over_stays_over(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", container("c", "true"), restartPolicy="Never"))
            before = await harness.phase("p", "Succeeded")
        async with harness.agent():
            await harness.create(pod("q"))
            await harness.phase("q", "Running")
            after = await harness.pod("p")
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
            await harness.delete("p")
            await harness.gone("p")

    run_on_node(tmp_path, work)


class Wire:
    """A way to the server that can be cut."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind
        self.cut = False
        self.address = "wire"

    async def request(self, request: TransportRequest, *, timeout: float = 60.0) -> TransportResponse:
        if self.cut:
            raise ServerUnreachableError("the wire is cut")
        reply: TransportResponse = await self._behind.request(request, timeout=timeout)
        return reply

    def stream(self, request: TransportRequest, *, idle_timeout: float) -> Any:
        return _Cuttable(self, self._behind.stream(request, idle_timeout=idle_timeout))

    async def close(self) -> None:
        await self._behind.close()


class _Cuttable:
    def __init__(self, wire: Wire, behind: Any) -> None:
        self._wire, self._behind = wire, behind

    async def __aenter__(self) -> TransportStream:
        if self._wire.cut:
            raise ServerUnreachableError("the wire is cut")
        found: TransportStream = await self._behind.__aenter__()
        return found

    async def __aexit__(self, *about: Any) -> None:
        await self._behind.__aexit__(*about)


@pytest.mark.req("K3063-186")
def test_without_a_server_pods_run_on_and_containers_start_again(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        output = tmp_path / "output"
        wire = Wire(harness.own._rest_client.transport)  # the only place where it can be cut
        entry = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "from the map"}}
        await harness.create({**entry, "metadata": {"name": "m", "namespace": "default"}})
        reference = {"configMapKeyRef": {"name": "m", "key": "k"}}
        script = f'echo "$X" >> {output}; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; exit 1'
        looping = container("c", "sh", "-c", script, env=[{"name": "X", "valueFrom": reference}])
        harness.own = Client(wire)
        async with harness.agent():
            await harness.create(pod("p", looping, claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            wire.cut = True
            (tmp_path / "end").touch()

            async def was_started_again() -> bool:
                return output.read_text().splitlines()[:3] == ["from the map"] * 3

            await until(was_started_again)
            assert started(await harness.pod("p"))[0] == 0, "nobody could be told"
            wire.cut = False
            seen = await harness.until("p", lambda seen: started(seen)[0] >= 2)
            assert seen["status"]["phase"] == "Running"
            assert harness.driver.asked == ["prepare default/gpus"]

    run_on_node(tmp_path, work)


class Faulty(ProcessRuntime):
    """Breaks once, over a pod of one name."""

    broke = False

    async def start(self, launch: ContainerLaunch) -> ContainerStarted | ContainerNotStarted:
        if launch.pod_name == "broken" and not self.broke:
            self.broke = True
            raise RuntimeError("planted")
        return await super().start(launch)


def test_a_fault_in_one_pod_does_not_touch_the_others(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(supervisor, "RETRY_SECONDS", 0.3)

    async def work(harness: AgentHarness) -> None:
        runtime = Faulty(harness.root / "containers")
        async with harness.agent(runtime=runtime):
            await harness.create(pod("broken"), pod("fine"))
            before = started(await harness.phase("fine", "Running"))
            await harness.phase("broken", "Running")
            assert runtime.broke
            assert started(await harness.pod("fine")) == before

    run_on_node(tmp_path, work)


def test_two_agents_do_not_share_a_directory(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent(), AsyncExitStack():
            other = NodeAgent(harness.own, harness.choices())
            with pytest.raises(InputError, match=r"another agent works in `.*`; choose another with --root"):
                await other.run()

    run_on_node(tmp_path, work)


def test_numbers_of_pods_and_containers(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent() as running:
            await harness.create(pod("p", container("a"), container("b")))
            await harness.phase("p", "Running")
            text = running.metrics.render().decode()
            assert "kubelet_running_pods 1.0" in text
            assert 'kubelet_running_containers{container_state="running"} 2.0' in text
            assert 'kubelet_started_containers_total{container_type="container"} 2.0' in text

    run_on_node(tmp_path, work)


def test_an_agent_is_made_from_what_people_choose(tmp_path: Path) -> None:
    options = NodeOptions("n", tmp_path, plugins=tmp_path / "plugins", labels={"a": "b"}, runtime="fake")

    async def main() -> None:
        made = build_agent(Client(Wire(None)), options)
        assert made.name == "n"
        assert not made.ready.is_set()

    asyncio.run(main())
    assert build_runtime(options).name == "fake"
    assert build_runtime(replace(options, runtime="process")).name == "process"
    with pytest.raises(InputError, match="there is no runtime `other`; those are process, "):
        build_runtime(replace(options, runtime="other"))
