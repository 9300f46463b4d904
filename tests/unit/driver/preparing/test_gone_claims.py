"""Claims that are gone when a driver starts: given back only when no container can use their devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dray.client.errors import ForbiddenError, NotFoundError
from dray.client.transport import TransportRequest
from dray.driver import metrics as m
from tests.contract.api import path
from tests.unit.driver.driver_node import DRIVER, NODE, AgentClient, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import AGENT_OF_DRAY, wait_until

STAYS = "a claim is gone and stays prepared until the agent unprepares it"


def answer_without_preparations(request: TransportRequest) -> None:
    """Answer as an API server of Kubernetes, which has no kinds of dray."""
    if request.path.startswith("/apis/dray.dev"):
        raise NotFoundError(404, {"message": "the server could not find the requested resource"})


def _preparations_forbidden(request: TransportRequest) -> None:
    if request.path.startswith("/apis/dray.dev/v1alpha1/preparations"):
        raise ForbiddenError(403, {"message": "preparations is forbidden"})


async def _make_kubelet(node: DriverNode) -> None:
    """Make the node one whose agent is a kubelet: it does not have the annotation of dray's agents."""
    annotations = dict.fromkeys(AGENT_OF_DRAY)
    await node.server.api.patch(path("nodes", NODE), {"metadata": {"annotations": annotations}})


async def _prepare_and_lose(node: DriverNode) -> str:
    """Prepare a claim, stop the driver, and delete the claim as a forced deletion of its pod does."""
    async with node.run_driver() as agent:
        uid = await node.create_claim("c")
        await agent.prepare_ok(uid, "c")
    await node.remove_claim("c")
    return uid


def _count_gone(agent: AgentClient) -> float:
    line = f'{m.GONE_CLAIMS}{{driver="{DRIVER}"}} '
    (found,) = [each for each in agent.service.metrics.render().decode().splitlines() if line in each]
    return float(found.removeprefix(line))


async def _now(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (answer_without_preparations, "the server has no preparations"),
        (_preparations_forbidden, "the preparations of this node cannot be read"),
        (None, "the agent of this node announces no preparations"),
    ],
    ids=["server of Kubernetes", "forbidden", "kubelet on a server of dray"],
)
def test_a_claim_that_is_gone_is_left_to_an_agent_that_announces_nothing(
    before: Callable[[TransportRequest], None] | None, why: str
) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            uid = await _prepare_and_lose(node)
            if before is None:
                await _make_kubelet(node)
            else:
                node.transport.before = before
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                await wait_until(lambda: _now(STAYS in node.log_text))
                assert why in node.log_text
                assert "gpu-0" in node.log_text.partition(STAYS)[2]
                assert gpu.calls == []
                assert list(node.cdi()) == [f"{DRIVER}_{uid}.json"]
                await wait_until(lambda: _now(_count_gone(agent)), lambda count: count == 1.0)
                await agent.unprepare_ok(uid, "c")
                assert gpu.calls == [("unprepare", "c")]
                assert _count_gone(agent) == 0.0

    asyncio.run(scenario())


def test_a_claim_of_an_earlier_boot_is_given_back_because_no_container_of_it_runs() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            await _prepare_and_lose(node)
            node.transport.before = answer_without_preparations
            gpu = Gpu()
            async with node.run_driver(gpu, boot_id="boot-2") as agent:
                await wait_until(lambda: _now(gpu.calls), lambda calls: calls == [("unprepare", "c")])
                await wait_until(
                    lambda: _now(list((node.state / "prepared").iterdir())), lambda files: not files
                )
                assert STAYS not in node.log_text
                assert _count_gone(agent) == 0.0

    asyncio.run(scenario())


def test_a_device_that_stays_prepared_is_refused_to_the_next_claim_which_names_the_first() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            uid = await _prepare_and_lose(node)
            node.transport.before = answer_without_preparations
            async with node.run_driver() as agent:
                next_uid = await node.create_claim("next")
                refusal = await agent.expect_refusal(next_uid, "next")
                assert f"held by claim `default/c` (uid {uid})" in refusal
                await agent.unprepare_ok(uid, "c")
                assert await agent.prepare_ok(next_uid, "next")

    asyncio.run(scenario())
