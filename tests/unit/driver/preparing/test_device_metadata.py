"""Device metadata of a kit driver: written with a claim, mounted by request, changed, and removed with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.api.resource import NetworkDeviceData
from dray.driver import Claim, DeviceMetadata, DeviceStatus, Driver, Ready, device
from dray.errors import InputError
from dray.wire.cdi import parse_spec
from dray.wire.device_metadata import MetadataFile, decode_metadata
from tests.contract.api import path
from tests.contract.documents import allocation, request
from tests.unit.driver.driver_node import DRIVER, NODE, DriverNode, Gpu, open_driver_node

TOP = "/var/run/kubernetes.io/dra-device-attributes"
PCI = "resource.kubernetes.io/pciBusID"


class Described(Gpu):
    """Publishes two attributes, and knows more when a device is prepared."""

    device_metadata = True

    def devices(self) -> Iterable[Any]:
        for number in range(4):
            yield device(f"gpu-{number}", attributes={"model": "a100", "numaNode": number % 2})

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        self._note("prepare", claim)
        for got in claim.devices:
            metadata = DeviceMetadata({PCI: f"0000:0{got.device[-1]}:00.0", "model": "a100-80"})
            yield Ready(got, env={"GPU": got.device}, metadata=metadata)


def find_mounts(node: DriverNode) -> dict[str, Path]:
    """The metadata files that CDI devices mount: container paths and host paths."""
    found = {}
    for file in node.options.cdi.iterdir():
        for each in parse_spec(file.read_bytes()).devices:
            for mount in each.container_edits.mounts:
                assert mount.options == ("ro", "bind")
                found[mount.container_path] = Path(mount.host_path)
    return found


def read(file: Path) -> MetadataFile:
    return decode_metadata(file.read_bytes())


def test_each_request_has_a_file_with_published_attributes_and_those_of_prepare() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(Described()) as agent:
            results = []
            for name, where in (("gpu-0", "a"), ("gpu-1", "a"), ("gpu-2", "b/large")):
                results.append(allocation(name)["devices"]["results"][0] | {"request": where})
            requests = [request("a", count=2), {"name": "b", "firstAvailable": [_subrequest("large")]}]
            uid = await node.create_allocated_claim("c", results, requests=requests)
            answers = await agent.prepare_ok(uid, "c")
            assert [names for *_, names in answers] == [(f"{DRIVER}/claim={uid}-{n}",) for n in range(3)]
            mounts = find_mounts(node)
            assert sorted(mounts) == [
                f"{TOP}/resourceclaims/c/{name}/{DRIVER}-metadata.json" for name in ("a", "b")
            ]
            first = mounts[f"{TOP}/resourceclaims/c/a/{DRIVER}-metadata.json"]
            assert first.stat().st_mode & 0o777 == 0o644
            newest, _ = json.JSONDecoder().raw_decode(first.read_text())
            assert newest == {
                "kind": "DeviceMetadata",
                "apiVersion": "metadata.resource.k8s.io/v1beta1",
                "metadata": {"name": "c", "namespace": "default", "uid": uid, "generation": 1},
                "requests": [
                    {
                        "name": "a",
                        "devices": [
                            {
                                "driver": DRIVER,
                                "pool": NODE,
                                "name": f"gpu-{number}",
                                "attributes": {
                                    "model": {"string": "a100-80"},
                                    "numaNode": {"int": number},
                                    PCI: {"string": f"0000:0{number}:00.0"},
                                },
                            }
                            for number in (0, 1)
                        ],
                    }
                ],
            }
            second = read(mounts[f"{TOP}/resourceclaims/c/b/{DRIVER}-metadata.json"])
            assert [each.name for each in second.requests] == ["b/large"]
            await agent.unprepare_ok(uid, "c")
            assert not any(file.exists() for file in mounts.values())

    asyncio.run(scenario())


def _subrequest(name: str) -> dict[str, Any]:
    return {"name": name, "deviceClassName": request("x")["exactly"]["deviceClassName"]}


def test_a_claim_that_a_template_made_is_found_by_the_entry_of_the_pod() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(Described()) as agent:
            uid = await node.create_claim("train-0-gpus-x7z")
            annotations = {"resource.kubernetes.io/pod-claim-name": "gpus"}
            where = path("resourceclaims", "train-0-gpus-x7z")
            await node.server.api.patch(where, {"metadata": {"annotations": annotations}})
            await agent.prepare_ok(uid, "train-0-gpus-x7z")
            ((target, file),) = find_mounts(node).items()
            assert target == f"{TOP}/resourceclaimtemplates/gpus/gpu/{DRIVER}-metadata.json"
            assert read(file).pod_claim_name == "gpus"

    asyncio.run(scenario())


def test_files_are_kept_over_a_restart_written_again_when_lost_and_removed_when_stray() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            uid, driver = await node.create_claim("c"), Described()
            async with node.run_driver(driver) as agent:
                await agent.prepare_ok(uid, "c")
            (file,) = find_mounts(node).values()
            (stray := file.with_name("gone_gpu.json")).write_bytes(file.read_bytes())
            async with node.run_driver(driver) as agent:
                assert not stray.exists()
                await agent.prepare_ok(uid, "c")
                assert driver.calls == [("prepare", "c")], "nothing was lost"
                file.unlink()
                await agent.prepare_ok(uid, "c")
                assert driver.calls == [("prepare", "c")] * 2
                assert read(file).metadata.generation == 1

    asyncio.run(scenario())


def test_what_is_known_later_is_added_and_raises_the_generation() -> None:
    async def scenario() -> None:
        driver = Described()
        async with open_driver_node() as node, node.run_driver(driver) as agent:
            uid = await node.create_claim("c")
            await agent.prepare_ok(uid, "c")
            claim = driver.received[0][1]
            network = NetworkDeviceData(interface_name="eth1", ips=("10.0.0.7/24",))
            await asyncio.to_thread(
                driver.update_metadata, claim, claim.devices[0], DeviceMetadata({"vf": 3}, network)
            )
            (file,) = find_mounts(node).values()
            changed = read(file)
            (found,) = changed.requests[0].devices
            assert changed.metadata.generation == 2
            assert found.attributes["vf"] == {"int": 3}
            assert found.attributes["model"] == {"string": "a100-80"}
            assert found.network_data == {"interfaceName": "eth1", "ips": ["10.0.0.7/24"]}
            await agent.unprepare_ok(uid, "c")
            with pytest.raises(InputError, match="is not prepared"):
                driver.update_metadata(claim, claim.devices[0], DeviceMetadata({"vf": 4}))
            assert not file.exists()

    asyncio.run(scenario())


def test_the_network_of_a_device_status_is_in_the_file() -> None:
    class Nic(Described):
        def prepare(self, claim: Claim) -> Iterator[Ready]:
            for got in claim.devices:
                yield Ready(got, status=DeviceStatus(network=NetworkDeviceData(interface_name="eth1")))

    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(Nic()) as agent:
            await agent.prepare_ok(await node.create_claim("c"), "c")
            (file,) = find_mounts(node).values()
            assert read(file).requests[0].devices[0].network_data == {"interfaceName": "eth1"}

    asyncio.run(scenario())


def test_a_claim_can_be_prepared_before_devices_were_listed() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            uid = await node.create_claim("c")
            async with node.run_driver(Described(), until_published=False) as agent:
                await agent.prepare_ok(uid, "c")
                (file,) = find_mounts(node).values()
                assert "numaNode" in read(file).requests[0].devices[0].attributes

    asyncio.run(scenario())


class Plain(Described):
    """Has the switch off."""

    device_metadata = False


class Wordy(Described):
    """Adds more attributes than fit."""

    def prepare(self, claim: Claim) -> Iterator[Ready]:
        for got in claim.devices:
            yield Ready(got, metadata=DeviceMetadata({f"a{number}": number for number in range(32)}))


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        (Plain(), "`Ready(metadata=...)` needs a driver with `device_metadata = True`"),
        (Wordy(), "device `gpu-0` has 34 attributes with its metadata; at most 32 are possible"),
    ],
)
def test_metadata_that_cannot_be_written_is_an_error(driver: Driver, says: str) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(driver) as agent:
            uid = await node.create_claim("c")
            assert says in await agent.expect_refusal(uid, "c")

    asyncio.run(scenario())


def test_a_driver_without_the_switch_writes_no_files_and_takes_no_updates() -> None:
    async def scenario() -> None:
        driver = Gpu()
        async with open_driver_node() as node, node.run_driver(driver) as agent:
            await agent.prepare_ok(await node.create_claim("c"), "c")
            assert find_mounts(node) == {}
            claim = driver.received[0][1]
            with pytest.raises(InputError, match="device_metadata = True"):
                driver.update_metadata(claim, claim.devices[0], DeviceMetadata())

    asyncio.run(scenario())
