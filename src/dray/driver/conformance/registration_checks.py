"""Checks of a driver's registration, of the services that it serves, and of its slices and health stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dray.api.resource import ResourceSlice
from dray.driver.conformance import free_devices
from dray.driver.conformance.check_context import CheckContext
from dray.driver.conformance.driver_client import (
    CALL_TIMEOUT_SECONDS,
    format_rpc_error,
    list_offered_versions,
)
from dray.driver.conformance.results import CheckSkippedError, NotConformantError
from dray.values.names import check_driver_name
from dray.wire import grpc_services, unix_sockets

_HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1beta1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_GET_INFO_SECONDS, _NOTIFY_SECONDS = 1.0, 5.0
"""The deadlines of a kubelet for the calls of a registration."""
_GET_INFO_ATTEMPTS: Final = 5
"""A kubelet tries again, too; a busy machine may need it."""
_HEALTH_SECONDS: Final = 5.0
"""How long the first message of a health stream may take."""
_POOL_ATTEMPTS, _POOL_SECONDS = 20, 0.5
"""How often, and after how many seconds, an incomplete pool is read again."""


async def check_registration(context: CheckContext) -> None:
    """GetInfo names the driver, its endpoint and a version in time; a second registration is accepted too."""
    identity = context.driver_client.identity
    if identity.registration_socket is None:
        raise CheckSkippedError("the socket is not one of a registration")
    plugin = await _get_info_in_time(identity.registration_socket)
    for fault in check_driver_name(plugin.name):
        raise NotConformantError(f"GetInfo: name `{plugin.name}`: {fault.text}", "the name of the driver")
    offered = tuple(plugin.supported_versions)
    versions = list_offered_versions(offered)
    if not versions:
        raise NotConformantError(
            f"GetInfo: supported_versions is {_format_names(offered)}",
            "`v1.DRAPlugin` or `v1beta1.DRAPlugin` among them; a kubelet refuses the driver otherwise",
        )
    for version in versions:
        if version not in identity.served_versions:
            raise NotConformantError(
                f"GetInfo: offers `{version}.DRAPlugin`, and the endpoint answers UNIMPLEMENTED",
                f"only services that `{identity.endpoint}` serves",
            )
    await _notify_registered(identity.registration_socket)
    await context.driver_client.wait_until_serving()


async def _get_info_in_time(path: Path) -> Any:
    """Call GetInfo with the deadline of a kubelet."""
    request = grpc_services.REGISTRATION.get_message_class("InfoRequest")()
    for attempt in range(_GET_INFO_ATTEMPTS):
        async with unix_sockets.open_channel(path) as channel:
            try:
                stub = grpc_services.GrpcStub(channel, grpc_services.REGISTRATION)
                return await stub.call("GetInfo", request, timeout=_GET_INFO_SECONDS)
            except grpc.aio.AioRpcError as refused:
                if attempt == _GET_INFO_ATTEMPTS - 1:
                    raise NotConformantError(
                        f"GetInfo: {format_rpc_error(refused)}",
                        f"an answer within {_GET_INFO_SECONDS:g} second, the deadline of a kubelet",
                    ) from None
    raise AssertionError("the last attempt returns or raises")


async def _notify_registered(path: Path) -> None:
    async with unix_sockets.open_channel(path) as channel:
        stub = grpc_services.GrpcStub(channel, grpc_services.REGISTRATION)
        status = grpc_services.REGISTRATION.get_message_class("RegistrationStatus")(plugin_registered=True)
        try:
            await stub.call("NotifyRegistrationStatus", status, timeout=_NOTIFY_SECONDS)
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(
                f"NotifyRegistrationStatus: {format_rpc_error(refused)}",
                f"an answer within {_NOTIFY_SECONDS:g} seconds, at every registration",
            ) from None


async def check_offered_versions(context: CheckContext) -> None:
    """GetInfo offers every version that the endpoint serves."""
    identity = context.driver_client.identity
    if not identity.offered_services:
        raise CheckSkippedError("the socket is not one of a registration")
    for version in identity.served_versions:
        if f"{version}.DRAPlugin" not in identity.offered_services:
            raise NotConformantError(
                f"GetInfo: supported_versions is {_format_names(identity.offered_services)}, and the "
                f"endpoint serves `{version}.DRAPlugin` too",
                f"`{version}.DRAPlugin` among them",
            )


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "empty"


async def check_unknown_service(context: CheckContext) -> None:
    """A call of an unknown service or method is answered with UNIMPLEMENTED, and nothing else happens."""
    for path in ("/example.dray.Nobody/DoNothing", "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/DoNothing"):
        call = context.driver_client.channel.unary_unary(path)
        try:
            await call(b"", timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise NotConformantError(
                    f"`{path}` is answered with {refused.code().name}", "UNIMPLEMENTED"
                ) from None
        else:
            raise NotConformantError(f"`{path}` is answered as if it existed", "UNIMPLEMENTED")
    await context.driver_client.prepare()


async def check_published_pools(context: CheckContext) -> None:
    """Every pool of the driver is complete: all slices of its newest generation exist."""
    incomplete: list[str] = []
    for _ in range(_POOL_ATTEMPTS):  # the driver may be writing it just now
        slices = (await context.client.list(ResourceSlice)).items
        incomplete = free_devices.find_incomplete_pools(slices, context.driver_client.identity.driver)
        if not incomplete:
            return
        await asyncio.sleep(_POOL_SECONDS)
    raise NotConformantError("; ".join(incomplete), "as many slices as `resourceSliceCount` says")


async def check_health(context: CheckContext) -> None:
    """A health service that is offered can be watched, or answers UNIMPLEMENTED."""
    with contextlib.suppress(TimeoutError):  # a kubelet waits for messages as long as it takes
        await _read_first_report(context)


async def check_health_report(context: CheckContext) -> None:
    """The health stream begins at once and reports only published devices."""
    try:
        first = await _read_first_report(context)
    except TimeoutError:
        raise NotConformantError(
            f"the health stream sent nothing in {_HEALTH_SECONDS:g} seconds",
            "the state of the devices as its first message",
        ) from None
    if first is None:
        raise CheckSkippedError("the health service answers UNIMPLEMENTED: the driver reports no health")
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
                f"the health stream reports `{'/'.join(device)}`, which is not published",
                "devices of the driver's slices",
            )


async def _read_first_report(context: CheckContext) -> Any:
    """Read the first message of the health stream; None when it is UNIMPLEMENTED.

    Raises `TimeoutError` when nothing comes.
    """
    offered = [name for name in _HEALTH_SERVICES if name in context.driver_client.identity.offered_services]
    if not offered:
        raise CheckSkippedError("the driver offers no health stream")
    service = grpc_services.OFFERED_SERVICES[offered[0]]
    stub = grpc_services.GrpcStub(context.driver_client.channel, service)
    request = service.methods["NodeWatchResources"].request()
    expected = "messages, or UNIMPLEMENTED from a driver that reports no health"
    try:
        async with asyncio.timeout(_HEALTH_SECONDS):
            first = await anext(aiter(stub.stream("NodeWatchResources", request)))
    except StopAsyncIteration:
        raise NotConformantError(f"the stream of `{offered[0]}` ended without a message", expected) from None
    except grpc.aio.AioRpcError as refused:
        if refused.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise NotConformantError(
            f"`{offered[0]}` is offered, and answers {format_rpc_error(refused)}", expected
        ) from None
    if first is None:
        raise NotConformantError(f"the stream of `{offered[0]}` sent no message of its type", expected)
    return first
