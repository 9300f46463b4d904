"""Slices of removed drivers: the node deletes its own, and no others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.cluster.local.transport import LocalTransport
from dray.node.plugins.published_slices import PublishedSlices
from tests.contract.documents import node, resource_slice
from tests.contract.servers import reaching


def of(driver: str, name: str, where: str) -> dict[str, Any]:
    document = resource_slice(name, where)
    document["spec"]["driver"] = driver
    return document


def test_a_node_withdraws_the_slices_of_a_driver_on_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with reaching("inside", tmp_path) as reach:
            admin = reach.client()
            for document in (
                node("node-a"),
                node("node-b"),
                of("gone.example.com", "a-0", "node-a"),
                of("gone.example.com", "a-1", "node-a"),
                of("here.example.com", "a-2", "node-a"),
                of("gone.example.com", "b-0", "node-b"),
            ):
                await admin.create(document)
            groups = ("system:nodes", "system:authenticated")
            client = Client(LocalTransport(reach.server.app, "system:node:node-a", groups))
            slices = PublishedSlices(client, "node-a")
            assert await slices.list_drivers() == {"gone.example.com", "here.example.com"}
            await slices.withdraw("gone.example.com")
            await slices.withdraw("never.example.com")
            left = (await admin.list(ResourceSlice)).items
            assert sorted(each.metadata.name for each in left) == ["a-2", "b-0"]
            await client.close()

    asyncio.run(run())
