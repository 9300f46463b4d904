"""Regressions of publishing: slices others delete or change, restarts, devices in use, two publishers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.transport import TransportRequest, TransportResponse
from dray.driver import Pool, Reach, device
from dray.driver.publishing.publisher import GONE_TAINT, Publisher
from dray.store.memory import MemoryStore
from tests.unit.driver.driver_server import (
    DRIVER,
    DriverServer,
    InterceptedTransport,
    connect_as_driver,
    run_publisher,
    serve_for_drivers,
    wait_until,
)


@asynccontextmanager
async def published(*names: str) -> AsyncIterator[tuple[DriverServer, Publisher, ResourceSlice]]:
    """A driver that has published devices and keeps them."""
    async with serve_for_drivers() as world:
        publisher = world.publisher()
        await publisher.publish([device(name) for name in names])
        async with run_publisher(publisher):
            yield world, publisher, (await world.slices())[0]


async def _deleted(world: DriverServer, old: ResourceSlice) -> None:
    await world.admin.delete(ResourceSlice, old.metadata.name)
    back = await wait_until(world.slices)
    assert back[0].metadata.uid != old.metadata.uid
    assert (back[0].metadata.name, back[0].spec) == (old.metadata.name, old.spec)


async def test_h01_a_slice_that_somebody_deletes_right_after_it_was_made_comes_back() -> None:
    """Others kept a memory of their own writes that hid such a deletion for as long as it lasted."""
    async with published("gpu-0", "gpu-1") as (world, _publisher, made):
        await _deleted(world, made)
        await _deleted(world, (await world.slices())[0])


async def test_h02_a_slice_that_was_updated_and_then_deleted_comes_back_as_updated() -> None:
    """Others remembered the slice as created, and took the deletion of the updated one for an old event."""
    async with published("gpu-0") as (world, publisher, _made):
        await publisher.publish([device("gpu-0", attributes={"driver": "2.0"}), device("gpu-1")])
        updated = (await world.slices())[0]
        assert [each.name for each in updated.spec.devices] == ["gpu-0", "gpu-1"]
        await _deleted(world, updated)


async def test_h02_a_slice_that_a_driver_takes_over_from_its_predecessor_is_kept_too() -> None:
    """In a rolling upgrade the new driver finds the slices of the old one and writes nothing at first."""
    async with serve_for_drivers() as world:
        await world.publisher().publish([device("gpu-0")])
        old = (await world.slices())[0]
        successor = world.publisher()
        assert (await successor.publish([device("gpu-0")])).writes == 0
        async with run_publisher(successor):
            await _deleted(world, old)


async def test_h02_a_slice_that_somebody_changes_is_put_right() -> None:
    async with published("gpu-0", "gpu-1") as (world, _publisher, made):
        stolen = replace(made, spec=replace(made.spec, devices=made.spec.devices[:1]))
        await world.admin.update(stolen)
        back = await wait_until(world.slices, lambda found: len(found[0].spec.devices) == 2)
        assert back[0].spec == made.spec
        assert back[0].metadata.uid == made.metadata.uid


async def test_h03_a_server_that_restarts_is_followed_again_in_a_converted_version() -> None:
    """Others lost their watch for good when the server they spoke an older version with came back."""
    store = MemoryStore()
    async with serve_for_drivers(store) as world:
        transport = InterceptedTransport(_Older(connect_as_driver(world.api.app)))

        def speaks_the_past(request: TransportRequest, reply: TransportResponse) -> None:
            assert not (reply.code == 200 and request.path == "/apis/resource.k8s.io/v1")

        transport.after = speaks_the_past
        publisher = Publisher(Client(transport), DRIVER, "node-a")
        await publisher.publish([device("gpu-0", capacity={"memory": "80Gi"})])
        made = (await world.slices())[0]
        running = run_publisher(publisher)
        await running.__aenter__()
        await wait_until(lambda: _watched(transport))
    transport.inner = None  # nobody is there
    transport.requests.clear()
    async with serve_for_drivers(store) as world:
        transport.inner = _Older(connect_as_driver(world.api.app))
        await wait_until(lambda: _watched(transport))
        assert "/apis/resource.k8s.io/v1beta2/resourceslices" in {each.path for each in transport.requests}
        await _deleted(world, made)
        await running.__aexit__(None, None, None)
    await store.close()


async def _watched(transport: InterceptedTransport) -> bool:
    return any(each.query.get("watch") == "true" for each in transport.requests)


class _Older(InterceptedTransport):
    """A server of some time ago: it does not know the newest version."""

    async def request(self, request: TransportRequest, *, timeout: float = 60.0) -> TransportResponse:
        if request.path.startswith("/apis/resource.k8s.io/v1") and "v1beta" not in request.path:
            status = b'{"kind":"Status","code":404,"reason":"NotFound","message":"not found"}'
            return TransportResponse(404, {"content-type": "application/json"}, status)
        return await super().request(request, timeout=timeout)


async def test_h05_a_publisher_without_a_client_is_refused_at_once() -> None:
    """Others started, logged nothing and published nothing."""
    with pytest.raises(TypeError, match=r"gpu\.example\.com.*needs a client"):
        Publisher(None, DRIVER)  # type: ignore[arg-type]


async def test_h11_a_device_in_use_stays_published_until_it_is_released() -> None:
    """Others withdrew an interface when it moved into the pod that used it, and gave it out again."""
    used: Collection[tuple[str, str]] = {("node-a", "eth1")}
    async with serve_for_drivers() as world:
        publisher = world.publisher(in_use=lambda: used, recheck_seconds=0.05)
        await publisher.publish([device("eth0"), device("eth1", attributes={"speed": 10}), device("eth2")])
        outcome = await publisher.publish([device("eth0"), device("eth2")])
        assert outcome.retained == (("node-a", "eth1"),)
        assert await world.devices() == ["eth0", "eth1", "eth2"]
        found = (await world.slices())[0].spec.devices[1]
        assert [(taint.key, taint.effect) for taint in found.taints] == [(GONE_TAINT.key, "NoSchedule")]
        assert found.attributes["speed"].int_value == 10
        assert (await publisher.publish([device("eth0"), device("eth2")])).writes == 0
        async with run_publisher(publisher):
            used = set()
            await wait_until(world.devices, lambda names: names == ["eth0", "eth2"])


async def test_h11_a_device_in_use_comes_back_when_somebody_takes_the_slices_away() -> None:
    """A kubelet that starts takes all slices of its node away; what is in use was then forgotten."""
    async with serve_for_drivers() as world:
        publisher = world.publisher(in_use=lambda: {("node-a", "eth1"), ("spare", "eth9")})
        await publisher.publish([device("eth0"), device("eth1"), Pool("spare", [device("eth9")])])
        await publisher.publish([device("eth0")])
        async with run_publisher(publisher):
            for each in await world.slices():
                await world.admin.delete(ResourceSlice, each.metadata.name)
            await wait_until(world.devices, lambda names: sorted(names) == ["eth0", "eth1", "eth9"])


async def test_h11_a_device_in_use_goes_when_that_is_forced_and_loses_its_taint_when_it_returns() -> None:
    async with serve_for_drivers() as world:
        publisher = world.publisher(in_use=lambda: {("node-a", "eth1"), ("spare", "eth9")})
        await publisher.publish([device("eth1"), Pool("spare", [device("eth9")])])
        await publisher.publish([])
        assert sorted(await world.devices()) == ["eth1", "eth9"]
        await publisher.publish([device("eth1")])
        assert {each.spec.pool.name: bool(each.spec.devices[0].taints) for each in await world.slices()} == {
            "node-a": False,
            "spare": True,
        }
        await publisher.publish([], force=True)
        assert await world.slices() == []


async def test_h12_publishers_of_different_pools_leave_each_other_alone() -> None:
    """Others took every slice of the driver for their own and deleted what another part had published."""
    async with serve_for_drivers() as world:
        local, fabric = world.publisher(), world.publisher(node="")
        await local.publish([device("gpu-0")])
        await fabric.publish([Pool("fabric", [device("far-0")], nodes=Reach.ALL_NODES)])
        async with run_publisher(local), run_publisher(fabric):
            await local.publish([device("gpu-0"), device("gpu-1")])
            await fabric.publish([Pool("other", [device("far-1")], nodes={"rack": "1"})])
            assert sorted(await world.devices()) == ["far-1", "gpu-0", "gpu-1"]
            await local.withdraw()
            assert await world.devices() == ["far-1"]
