"""Device status in claims: conditions, data and network, written in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from dray.client.errors import ServerUnreachableError
from dray.driver import Claim, Condition, DeviceStatus, NetworkDeviceData, Ready
from tests.contract.api import path
from tests.unit.driver.driver_node import DRIVER, NODE, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until


class Nic(Gpu):
    """Reports an address for every device."""

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        self._note("prepare", claim)
        return [Ready(got, status=self.report(got.device)) for got in claim.devices]

    def report(self, name: str) -> DeviceStatus:
        return DeviceStatus(
            conditions=[Condition(type="Ready", status="True", reason="Up", message="it is up")],
            data={"queues": 4, "of": name},
            network=NetworkDeviceData(interface_name="eth1", ips=("10.1.0.7/24",)),
        )


async def devices_of(node: DriverNode, name: str) -> Any:
    return (await node.server.api.get(path("resourceclaims", name)))["status"].get("devices", [])


def test_device_status_is_written_beside_the_status_of_other_drivers() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(Nic()) as agent:
            result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
            other = {"request": "gpu", "driver": "other.example.com", "pool": "p", "device": "d"}
            uid = await node.create_allocated_claim("c", [result, other])
            theirs = {"driver": "other.example.com", "pool": "p", "device": "d", "data": {"x": 1}}
            await node.server.api.patch(
                path("resourceclaims", "c", sub="status"), {"status": {"devices": [theirs]}}
            )
            await agent.prepare_ok(uid, "c")
            found = await wait_until(lambda: devices_of(node, "c"), lambda devices: len(devices) == 2)
            mine = next(each for each in found if each["driver"] == DRIVER)
            when = mine["conditions"][0].pop("lastTransitionTime")
            assert when.endswith("Z")
            assert theirs in found
            assert mine == {
                "driver": DRIVER,
                "pool": NODE,
                "device": "gpu-0",
                "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "it is up"}],
                "data": {"queues": 4, "of": "gpu-0"},
                "networkData": {"interfaceName": "eth1", "ips": ["10.1.0.7/24"]},
            }

    asyncio.run(scenario())


def test_a_report_that_could_not_be_written_is_written_later_also_after_a_restart() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver(Nic()) as agent:
                uid = await node.create_claim("c")

                def refuse(request: Any) -> None:
                    if request.path.endswith("/status"):
                        raise ServerUnreachableError("refused", sent=False)

                node.transport.before = refuse
                await agent.prepare_ok(uid, "c")
                await wait_until(lambda: _now("cannot write the status of devices" in node.log_text))
                assert await devices_of(node, "c") == []
            node.transport.before = lambda _request: None
            async with node.run_driver(Nic()):
                await wait_until(lambda: devices_of(node, "c"))

    asyncio.run(scenario())


def test_a_report_that_is_too_large_is_refused_at_once() -> None:
    async def scenario() -> None:
        class Loud(Nic):
            def report(self, name: str) -> DeviceStatus:
                return DeviceStatus(data={"x": "y" * 11_000})

        async with open_driver_node() as node, node.run_driver(Loud()) as agent:
            uid = await node.create_claim("c")
            refusal = await agent.expect_refusal(uid, "c")
            assert "the device status has 11008 bytes of data, at most 10240 are allowed" in refusal

    asyncio.run(scenario())


async def _now(value: Any) -> Any:
    return value
