"""Classic drivers on a node: `NodePrepareResource` by uid, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from dray.driver import ClassicClaim, ClassicDriver, Ready
from dray.wire.grpc_services import CLASSIC_V1ALPHA1, GrpcStub
from tests.contract.api import path
from tests.contract.classic import CLAIMS, CLASSES, classic_claim, classic_class
from tests.unit.driver.driver_node import AgentClient, DriverNode, open_driver_node

LIMIT = 20.0
NAME = "acme.example.com"


class Options(msgspec.Struct):
    """What claims may ask for."""

    speed: int = 1


class Acme(ClassicDriver):
    """Makes a variable of what its controller wrote."""

    name = NAME
    parameters = Options

    def __init__(self) -> None:
        self.asked: list[tuple[str, ClassicClaim]] = []

    def prepare(self, claim: ClassicClaim) -> Iterable[Ready]:
        self.asked.append(("prepare", claim))
        return [Ready(env={"PORT": claim.attributes["port"]})]

    def unprepare(self, claim: ClassicClaim) -> None:
        self.asked.append(("unprepare", claim))


async def allocated(node: DriverNode, name: str, **parameters: Any) -> str:
    api = node.server.api
    where = path("resourceclaims", name, group="cdi.k8s.io", version="v1alpha1")
    made = await api.create(classic_claim(name, "Immediate", **parameters), CLAIMS)
    status = {"phase": "Allocated", "driverName": NAME, "attributes": {"port": "7"}}
    await api.patch(f"{where}/status", {"status": status})
    return str(made["metadata"]["uid"])


@asynccontextmanager
async def classic_node() -> AsyncIterator[tuple[DriverNode, Acme, AgentClient]]:
    async with open_driver_node() as node:
        await node.server.api.create(classic_class(), CLASSES)
        node.transport.inner = node.server.admin._rest_client.transport
        acme = Acme()
        async with node.run_driver(acme) as agent:
            yield node, acme, agent


async def prepare(agent: AgentClient, uid: str) -> list[str]:
    request = CLASSIC_V1ALPHA1.get_message_class("NodePrepareResourceRequest")(resource_uid=uid)
    reply = await GrpcStub(agent.endpoint, CLASSIC_V1ALPHA1).call(
        "NodePrepareResource", request, timeout=LIMIT
    )
    return list(reply.cdi_device)


async def unprepare(agent: AgentClient, uid: str, *names: str) -> None:
    request = CLASSIC_V1ALPHA1.get_message_class("NodeUnprepareResourceRequest")(
        resource_uid=uid, cdi_device=names
    )
    await GrpcStub(agent.endpoint, CLASSIC_V1ALPHA1).call("NodeUnprepareResource", request, timeout=LIMIT)


@pytest.mark.req("K3063-131", "K3063-132", "K3063-134", "K3063-143", "K3063-146")
def test_a_classic_claim_is_prepared_and_given_back_by_its_uid() -> None:
    async def scenario() -> None:
        async with classic_node() as (node, acme, agent):
            plugin = await agent.registry.call(
                "GetInfo", agent.registry.service.get_message_class("InfoRequest")(), timeout=LIMIT
            )
            assert (plugin.type, list(plugin.supported_versions)) == (
                "ResourcePlugin",
                ["v1alpha1.ResourcePlugin"],
            )
            uid = await allocated(node, "c", speed=3)
            names = await prepare(agent, uid)
            assert names == [f"{NAME}/claim={uid}-0"]
            assert await prepare(agent, uid) == names
            (file,) = node.cdi().values()
            assert file["devices"][0]["containerEdits"] == {"env": ["PORT=7"]}
            await node.server.api.delete(path("resourceclaims", "c", group="cdi.k8s.io", version="v1alpha1"))
            await unprepare(agent, uid, *names)
            await unprepare(agent, uid, *names)
            assert node.cdi() == {}
            assert [what for what, _ in acme.asked] == ["prepare", "unprepare"]
            assert acme.asked[0][1] == ClassicClaim("default", "c", uid, {"port": "7"}, Options(3))
            assert acme.asked[1][1].attributes == {"port": "7"}

    asyncio.run(scenario())


def test_a_classic_claim_that_does_not_exist_is_not_found() -> None:
    async def scenario() -> None:
        async with classic_node() as (_node, acme, agent):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await prepare(agent, "no-such-uid")
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND
            assert failed.value.details() == f"driver {NAME}: claim no-such-uid: there is no such claim"
            assert acme.asked == []

    asyncio.run(scenario())


def test_a_classic_claim_that_cannot_be_prepared_fails_with_the_reason() -> None:
    async def scenario() -> None:
        async with classic_node() as (node, _acme, agent):
            uid = await allocated(node, "c", speed="fast")
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await prepare(agent, uid)
            assert failed.value.code() is grpc.StatusCode.INTERNAL
            assert 'spec.parameters.speed: expected a whole number, got `"fast"`' in str(
                failed.value.details()
            )

    asyncio.run(scenario())
