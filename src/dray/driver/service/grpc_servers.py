"""The sockets of a driver: registration, the DRA services or the classic one, health.

Theory of operation: the agent finds the registration socket in a directory it watches, asks who is there, and
calls the socket that the answer names. All versions of the protocol are served; they differ in the names of
services only, so one function answers both. Two processes of a driver, as during a rolling update, have
sockets of their own: their names carry an instance. Paths that would be too long for a socket give way to
digests, first the name of the socket, then that of the driver's directory.

Rules for this file: what is done with a claim is in `preparer`; here are messages and sockets.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dray.driver.preparing.preparer import ClaimPreparer, PrepareResult, RequestedClaim
from dray.driver.service.health import HealthMonitor
from dray.errors import InputError
from dray.telemetry.logs import StructuredLogger
from dray.wire.grpc_services import (
    CLASSIC_V1ALPHA1,
    DRA_PLUGIN,
    DRA_V1,
    DRA_V1BETA1,
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    HEALTH_V1BETA1,
    OFFERED_SERVICES,
    REGISTRATION,
    RESOURCE_PLUGIN,
    GrpcService,
    ProtobufMessage,
    RpcStatusError,
    build_rpc_handler,
)
from dray.wire.unix_sockets import (
    MAX_SOCKET_PATH_BYTES,
    build_socket_path,
    format_grpc_target,
    remove_stale_socket,
    secure_socket_directory,
)

SHUTDOWN_GRACE_SECONDS: Final = 5.0
"""For how long calls that are under way may go on when the driver ends."""
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class DriverSockets:
    """Where a driver serves."""

    registration: Path
    endpoint: Path


def build_socket_paths(driver: str, plugins: Path, registry: Path, instance: str = "") -> DriverSockets:
    """The sockets of a driver, or of one instance of it; `InputError` when a directory leaves no room."""
    plugins, registry = plugins.absolute(), registry.absolute()  # the agent's place is another
    ending = f"-{instance}" if instance else ""
    home = plugins / driver
    name = f"dra{ending}.sock"
    shortest = len(os.fsencode(home)) + 1 + min(len(name), _DIGEST_LENGTH + len(".sock"))
    if shortest > MAX_SOCKET_PATH_BYTES:
        home = plugins / hashlib.sha256(driver.encode()).hexdigest()[:_DIGEST_LENGTH]
    return DriverSockets(
        build_socket_path(registry, f"{driver}{ending}-reg.sock"), build_socket_path(home, name)
    )


class RegistrationServer:
    """Answers the agent's question who is there, and hears whether it was accepted."""

    def __init__(
        self, driver: str, sockets: DriverSockets, services: Iterable[GrpcService], log: StructuredLogger
    ) -> None:
        self._driver = driver
        self._sockets = sockets
        self._services = tuple(services)
        self._log = log
        self.accepted = asyncio.Event()
        self.refusal = ""
        """What the agent said when it did not accept the driver."""

    @property
    def rpc_handler(self) -> Any:
        """What a server needs."""
        return build_rpc_handler(
            REGISTRATION,
            {"GetInfo": self._get_info, "NotifyRegistrationStatus": self._notify_registration_status},
        )

    async def _get_info(self, _request: ProtobufMessage) -> ProtobufMessage:
        offered = [name for name, service in OFFERED_SERVICES.items() if service in self._services]
        return REGISTRATION.get_message_class("PluginInfo")(
            type=RESOURCE_PLUGIN if CLASSIC_V1ALPHA1 in self._services else DRA_PLUGIN,
            name=self._driver,
            endpoint=str(self._sockets.endpoint),
            supported_versions=offered,
        )

    async def _notify_registration_status(self, request: ProtobufMessage) -> ProtobufMessage:
        if request.plugin_registered:
            self.refusal = ""
            self.accepted.set()
            self._log.info("registered with the agent", driver=self._driver)
        else:
            self.refusal = request.error or "no reason was given"
            self.accepted.clear()
            self._log.error("the agent refused the driver", driver=self._driver, reason=self.refusal)
        return REGISTRATION.get_message_class("RegistrationStatusResponse")()


def build_rpc_handlers(
    preparer: ClaimPreparer, health: HealthMonitor | None, *, classic: bool
) -> list[tuple[GrpcService, Any]]:
    """The services of a driver, each with what answers it."""
    if classic:
        return [(CLASSIC_V1ALPHA1, _build_classic_handler(preparer))]
    served = [(service, _build_dra_handler(service, preparer)) for service in (DRA_V1, DRA_V1BETA1)]
    if health is not None:
        served += [
            (service, build_rpc_handler(service, {"NodeWatchResources": health.build_stream(service)}))
            for service in (HEALTH_V1, HEALTH_V1BETA1, HEALTH_V1ALPHA1)
        ]
    return served


@asynccontextmanager
async def serve_sockets(
    sockets: DriverSockets, registration: RegistrationServer, rpc_handlers: Iterable[Any]
) -> AsyncIterator[None]:
    """Serve while the context is open: the services first, so that whoever registers us can call at once."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_serve_socket(sockets.endpoint, rpc_handlers))
        await stack.enter_async_context(_serve_socket(sockets.registration, [registration.rpc_handler]))
        yield


@asynccontextmanager
async def _serve_socket(path: Path, rpc_handlers: Iterable[Any]) -> AsyncIterator[None]:
    secure_socket_directory(path.parent)
    remove_stale_socket(path)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers(tuple(rpc_handlers))
    try:
        server.add_insecure_port(format_grpc_target(path))
    except RuntimeError as refused:
        raise InputError(
            f"cannot listen on the socket `{path}`: {_explain_bind_failure(path, refused)}"
        ) from None
    await server.start()
    path.chmod(0o600)
    mine = path.stat().st_ino
    try:
        yield
    finally:
        kept = _hide_foreign_socket(path, mine)
        await server.stop(SHUTDOWN_GRACE_SECONDS)
        if kept is not None:
            kept.replace(path)


def _hide_foreign_socket(path: Path, mine: int) -> Path | None:
    """A server that stops unlinks its path: hide the socket of another process that took it over."""
    try:
        if path.stat().st_ino == mine:
            return None
    except FileNotFoundError:
        return None
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    path.replace(hidden)
    return hidden


def _explain_bind_failure(path: Path, refused: RuntimeError) -> str:
    try:
        writable = os.access(path.parent, os.W_OK)
    except OSError:
        writable = False
    return str(refused) if writable else f"its directory `{path.parent}` cannot be written to"


# --- messages ---


def _build_dra_handler(service: GrpcService, preparer: ClaimPreparer) -> Any:
    reply, part = (
        service.get_message_class("NodePrepareResourcesResponse"),
        service.get_message_class("NodePrepareResourceResponse"),
    )
    device = service.get_message_class("Device")
    gone, gone_part = (
        service.get_message_class("NodeUnprepareResourcesResponse"),
        service.get_message_class("NodeUnprepareResourceResponse"),
    )

    def prepared(outcome: PrepareResult) -> ProtobufMessage:
        if outcome.error:
            return part(error=outcome.error)
        return part(
            devices=[
                device(
                    request_names=[each.request],
                    pool_name=each.pool,
                    device_name=each.device,
                    cdi_device_ids=each.cdi,
                )
                for each in outcome.devices
            ]
        )

    async def prepare(request: ProtobufMessage) -> ProtobufMessage:
        outcomes = await preparer.prepare(_parse_claims(request))
        return reply(claims={uid: prepared(outcome) for uid, outcome in outcomes.items()})

    async def unprepare(request: ProtobufMessage) -> ProtobufMessage:
        outcomes = await preparer.unprepare(_parse_claims(request))
        return gone(claims={uid: gone_part(error=outcome.error) for uid, outcome in outcomes.items()})

    return build_rpc_handler(service, {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare})


def _parse_claims(request: ProtobufMessage) -> list[RequestedClaim]:
    return [RequestedClaim(each.uid, each.namespace, each.name) for each in request.claims]


def _build_classic_handler(preparer: ClaimPreparer) -> Any:
    async def prepare(request: ProtobufMessage) -> ProtobufMessage:
        outcome = (await preparer.prepare([RequestedClaim(request.resource_uid)]))[request.resource_uid]
        _raise_on_error(outcome)
        names = [name for answer in outcome.devices for name in answer.cdi]
        return CLASSIC_V1ALPHA1.get_message_class("NodePrepareResourceResponse")(cdi_device=names)

    async def unprepare(request: ProtobufMessage) -> ProtobufMessage:
        _raise_on_error(
            (await preparer.unprepare([RequestedClaim(request.resource_uid)]))[request.resource_uid]
        )
        return CLASSIC_V1ALPHA1.get_message_class("NodeUnprepareResourceResponse")()

    return build_rpc_handler(
        CLASSIC_V1ALPHA1, {"NodePrepareResource": prepare, "NodeUnprepareResource": unprepare}
    )


def _raise_on_error(result: PrepareResult) -> None:
    if result.error:
        code = grpc.StatusCode.NOT_FOUND if result.not_found else grpc.StatusCode.INTERNAL
        raise RpcStatusError(code, result.error)
