"""Simulated nodes: the same every time, in order, and created only where they are missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dray.api.codec import decode_document
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceSlice
from dray.api.validation import validate_create
from dray.client.client import Client
from dray.client.patches import MergePatch
from dray.clock import SystemClock
from dray.cluster.local import example_nodes
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.gates import GateSet
from dray.server.http.requests import AUTHENTICATED, MASTERS
from dray.telemetry.logs import StructuredLogger
from tests.support.in_process_transport import InProcessTransport


def _log(lines: list[bytes]) -> StructuredLogger:
    def take(line: bytes) -> bool:
        lines.append(line)
        return True

    return StructuredLogger(take, SystemClock())


def test_a_fleet_is_the_same_every_time() -> None:
    assert example_nodes.build_node(7) == example_nodes.build_node(7)
    assert list(example_nodes.build_slices(7)) == list(example_nodes.build_slices(7))
    assert [example_nodes.format_node_name(n) for n in (0, 7)] == ["node-0", "node-7"]


def test_its_objects_are_in_order() -> None:
    for number in range(4):
        for document in (
            example_nodes.build_node(number),
            *example_nodes.build_slices(number),
            *example_nodes.build_device_classes(),
        ):
            decoded = decode_document(document)
            assert not decoded.unknown_fields
            if document["kind"] != "Node":
                assert validate_create(decoded.object) == []


def test_nodes_are_ready_and_have_capacity() -> None:
    status = example_nodes.build_node(0)["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Ready", "True")]
    assert set(status["allocatable"]) >= {"cpu", "memory", "pods"}


def test_only_what_is_absent_is_made(tmp_path: Path) -> None:
    async def main() -> None:
        lines: list[bytes] = []
        async with open_server(ServerProcessOptions(tmp_path, "memory:", port=0)) as server:
            client = Client(InProcessTransport(server.app, "admin", (MASTERS, AUTHENTICATED)))
            assert await example_nodes.create_nodes(client, 2, _log(lines)) == 2
            await client.patch(Node, "node-1", MergePatch({"spec": {"unschedulable": True}}))
            before = [(await client.list(kind)).items for kind in (Node, ResourceSlice, DeviceClass)]
            assert await example_nodes.create_nodes(client, 2, _log(lines)) == 0
            assert [(await client.list(kind)).items for kind in (Node, ResourceSlice, DeviceClass)] == before
            assert await example_nodes.create_nodes(client, 3, _log(lines)) == 1
            assert len((await client.list(ResourceSlice)).items) == 6
            assert await example_nodes.create_nodes(client, 0, _log(lines)) == 0
        assert lines == []

    asyncio.run(main())


def test_slices_go_with_their_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_server(ServerProcessOptions(tmp_path, "memory:", port=0)) as server:
            client = Client(InProcessTransport(server.app, "admin", (MASTERS, AUTHENTICATED)))
            await example_nodes.create_nodes(client, 2, _log([]))
            await client.delete(Node, "node-0")
            async with asyncio.timeout(20):
                while len(left := (await client.list(ResourceSlice)).items) > 2:
                    await asyncio.sleep(0.02)
            assert {each.spec.node_name for each in left} == {"node-1"}

    asyncio.run(main())


def test_gates_that_are_off_leave_a_fleet_with_plainer_devices(tmp_path: Path) -> None:
    async def main() -> None:
        gates = GateSet.parse("DRAConsumableCapacity=false")
        async with open_server(ServerProcessOptions(tmp_path, "memory:", port=0, gates=gates)) as server:
            client = Client(InProcessTransport(server.app, "admin", (MASTERS, AUTHENTICATED)))
            assert await example_nodes.create_nodes(client, 1, _log([])) == 1
            card = (await client.get(ResourceSlice, "node-0-nic")).spec.devices[0]
            assert card.allow_multiple_allocations is None

    asyncio.run(main())
