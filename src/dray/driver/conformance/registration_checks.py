"""Checks of a driver's registration, of the services that it serves, and of its slices and health stream."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
import grpc.aio

from dray.api.resource import ResourceSlice
from dray.driver.conformance import free_devices
from dray.driver.conformance.check_context import CheckContext
from dray.driver.conformance.driver_client import CALL_TIMEOUT_SECONDS, format_rpc_error, get_registration
from dray.driver.conformance.results import CheckSkippedError, NotConformantError
from dray.values.names import check_driver_name
from dray.wire import grpc_services, unix_sockets

_HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1beta1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


async def check_registration(context: CheckContext) -> None:
    """GetInfo names the driver, its endpoint and its versions; a second registration is accepted too."""
    if not context.driver_client.identity.offered_services:
        raise CheckSkippedError("the socket is not one of a registration")
    plugin = await get_registration(context.socket)
    for fault in check_driver_name(plugin.name):
        raise NotConformantError(f"GetInfo: name `{plugin.name}`: {fault.text}")
    offered = set(plugin.supported_versions)
    for version in context.driver_client.identity.versions:
        if f"{version}.DRAPlugin" not in offered:
            raise NotConformantError(f"GetInfo: {version} is served and not among {sorted(offered)}")
    for name in sorted(offered & {"v1.DRAPlugin", "v1beta1.DRAPlugin"}):
        if name.partition(".")[0] not in context.driver_client.identity.versions:
            raise NotConformantError(f"GetInfo: offers `{name}`, and the endpoint does not serve it")
    async with unix_sockets.open_channel(context.socket) as channel:
        stub = grpc_services.GrpcStub(channel, grpc_services.REGISTRATION)
        status = grpc_services.REGISTRATION.get_message_class("RegistrationStatus")(plugin_registered=True)
        try:
            await stub.call("NotifyRegistrationStatus", status, timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(f"NotifyRegistrationStatus: {format_rpc_error(refused)}") from None
    await context.driver_client.wait_until_serving()


async def check_unknown_service(context: CheckContext) -> None:
    """A call of an unknown service or method is answered with UNIMPLEMENTED, and nothing else happens."""
    for path in ("/example.dray.Nobody/DoNothing", "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/DoNothing"):
        call = context.driver_client.channel.unary_unary(path)
        try:
            await call(b"", timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise NotConformantError(
                    f"`{path}` is answered with {refused.code().name}, not UNIMPLEMENTED"
                ) from None
        else:
            raise NotConformantError(f"`{path}` is answered as if it existed")
    await context.driver_client.prepare()


async def check_published_pools(context: CheckContext) -> None:
    """Every pool of the driver is complete: all slices of its newest generation exist."""
    slices = (await context.client.list(ResourceSlice)).items
    incomplete = free_devices.find_incomplete_pools(slices, context.driver_client.identity.driver)
    if incomplete:
        raise NotConformantError("; ".join(incomplete))


async def check_health(context: CheckContext) -> None:
    """The health stream begins at once and reports only published devices."""
    offered = [name for name in _HEALTH_SERVICES if name in context.driver_client.identity.offered_services]
    if not offered:
        raise CheckSkippedError("the driver offers no health stream")
    service = grpc_services.OFFERED_SERVICES[offered[0]]
    stub = grpc_services.GrpcStub(context.driver_client.channel, service)
    request = service.methods["NodeWatchResources"].request()
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            first = await anext(aiter(stub.stream("NodeWatchResources", request)))
    except TimeoutError:
        raise NotConformantError(
            f"nothing came from the stream of `{offered[0]}` in {CALL_TIMEOUT_SECONDS:g} seconds"
        ) from None
    except StopAsyncIteration:
        raise NotConformantError(f"the stream of `{offered[0]}` ended without a message") from None
    except grpc.aio.AioRpcError as refused:
        raise NotConformantError(f"`{offered[0]}` is offered: {format_rpc_error(refused)}") from None
    slices = (await context.client.list(ResourceSlice)).items
    known = {
        (each.spec.pool.name, device.name)
        for each in slices
        if each.spec.driver == context.driver_client.identity.driver
        for device in each.spec.devices
    }
    for each in first.devices:
        device = (each.device.pool_name, each.device.device_name)
        if device not in known:
            raise NotConformantError(
                f"the health stream reports `{'/'.join(device)}`, which is not published"
            )
