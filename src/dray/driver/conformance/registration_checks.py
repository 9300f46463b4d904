"""Checks of how a driver introduces itself, what it serves and what it publishes."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
import grpc.aio

from dray.api.resource import ResourceSlice
from dray.driver.conformance import free_devices
from dray.driver.conformance.check_context import Bench
from dray.driver.conformance.driver_client import PATIENCE, registration, said
from dray.driver.conformance.results import NotTried, Wrong
from dray.values.names import driver_name
from dray.wire import grpc_services, unix_sockets

_HEALTH: Final = ("v1.DRAResourceHealth", "v1beta1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


async def registers(bench: Bench) -> None:
    """GetInfo says who it is, where it answers and how; a second registration is taken like the first."""
    if not bench.line.introduction.offered:
        raise NotTried("the socket is not one of a registration")
    told = await registration(bench.socket)
    for fault in driver_name(told.name):
        raise Wrong(f"GetInfo: name `{told.name}`: {fault.text}")
    offered = set(told.supported_versions)
    for version in bench.line.introduction.versions:
        if f"{version}.DRAPlugin" not in offered:
            raise Wrong(f"GetInfo: {version} is served and not among {sorted(offered)}")
    for name in sorted(offered & {"v1.DRAPlugin", "v1beta1.DRAPlugin"}):
        if name.partition(".")[0] not in bench.line.introduction.versions:
            raise Wrong(f"GetInfo: offers `{name}`, and the endpoint does not serve it")
    async with unix_sockets.channel(bench.socket) as channel:
        stub = grpc_services.Stub(channel, grpc_services.REGISTRATION)
        status = grpc_services.REGISTRATION.message("RegistrationStatus")(plugin_registered=True)
        try:
            await stub.call("NotifyRegistrationStatus", status, timeout=PATIENCE)
        except grpc.aio.AioRpcError as refused:
            raise Wrong(f"NotifyRegistrationStatus: {said(refused)}") from None
    await bench.line.back()


async def unknown_service(bench: Bench) -> None:
    """A call that the driver does not know is answered with UNIMPLEMENTED, and nothing else happens."""
    for path in ("/example.dray.Nobody/DoNothing", "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/DoNothing"):
        call = bench.line.channel.unary_unary(path)
        try:
            await call(b"", timeout=PATIENCE)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise Wrong(f"`{path}` is answered with {refused.code().name}, not UNIMPLEMENTED") from None
        else:
            raise Wrong(f"`{path}` is answered as if it existed")
    await bench.line.prepare()


async def publishes(bench: Bench) -> None:
    """Every pool of the driver is whole: all slices of its newest generation are there."""
    slices = (await bench.client.list(ResourceSlice)).items
    told = free_devices.unfinished(slices, bench.line.introduction.driver)
    if told:
        raise Wrong("; ".join(told))


async def health(bench: Bench) -> None:
    """The stream of health begins at once and speaks of published devices."""
    offered = [name for name in _HEALTH if name in bench.line.introduction.offered]
    if not offered:
        raise NotTried("the driver offers no stream of health")
    service = grpc_services.OFFERED[offered[0]]
    stub = grpc_services.Stub(bench.line.channel, service)
    request = service.methods["NodeWatchResources"].request()
    try:
        async with asyncio.timeout(PATIENCE):
            first = await anext(aiter(stub.stream("NodeWatchResources", request)))
    except TimeoutError:
        raise Wrong(f"nothing came from the stream of `{offered[0]}` in {PATIENCE:g} seconds") from None
    except StopAsyncIteration:
        raise Wrong(f"the stream of `{offered[0]}` ended without a word") from None
    except grpc.aio.AioRpcError as refused:
        raise Wrong(f"`{offered[0]}` is offered: {said(refused)}") from None
    slices = (await bench.client.list(ResourceSlice)).items
    known = {
        (each.spec.pool.name, device.name)
        for each in slices
        if each.spec.driver == bench.line.introduction.driver
        for device in each.spec.devices
    }
    for each in first.devices:
        place = (each.device.pool_name, each.device.device_name)
        if place not in known:
            raise Wrong(f"the stream of health speaks of `{'/'.join(place)}`, which is not published")
