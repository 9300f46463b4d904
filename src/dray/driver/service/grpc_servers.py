"""gRPC servers of a driver: plugin registration, the DRA services or the classic one, and health.

Theory of operation: the agent finds the registration socket in a directory that it watches, calls `GetInfo`
there, and then calls the socket that the response names. The driver serves all versions of the protocol; they
differ only in the names of services and in `share_id`, so one function serves both. Two processes of a
driver, as during a rolling update, have sockets of their own, with an instance in their names. A path that
would be too long for a socket is shortened with a digest, first the name of the socket, then that of the
driver's directory.

Rules for this file: only messages and paths; `served_sockets` opens the sockets, `preparer` works on claims.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from dray.driver.preparing.prepared_records import PreparedDeviceRecord
from dray.driver.preparing.preparer import ClaimPreparer, PrepareResult, RequestedClaim
from dray.driver.service.health import HealthMonitor
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
    RpcStatusError,
    build_blocking_rpc_handler,
    build_rpc_handler,
    get_remaining_seconds,
)
from dray.wire.protobuf import ProtobufMessage
from dray.wire.unix_sockets import (
    MAX_SOCKET_PATH_BYTES,
    build_socket_path,
)

_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class DriverSockets:
    """The paths of the sockets that a driver serves."""

    registration: Path
    endpoint: Path


def build_socket_paths(driver: str, plugins: Path, registry: Path, instance: str = "") -> DriverSockets:
    """Build the socket paths of a driver, or of one instance of it; raises `InputError` when a directory's
    path is too long for any socket.
    """
    plugins, registry = plugins.absolute(), registry.absolute()  # the agent has another working directory
    suffix = f"-{instance}" if instance else ""
    directory = plugins / driver
    name = f"dra{suffix}.sock"
    shortest = len(os.fsencode(directory)) + 1 + min(len(name), _DIGEST_LENGTH + len(".sock"))
    if shortest > MAX_SOCKET_PATH_BYTES:
        directory = plugins / hashlib.sha256(driver.encode()).hexdigest()[:_DIGEST_LENGTH]
    return DriverSockets(
        build_socket_path(registry, f"{driver}{suffix}-reg.sock"), build_socket_path(directory, name)
    )


class RegistrationServer:
    """Serves plugin registration, and records whether the agent accepted the driver.

    Its methods run in threads of their own; what they record, they record in the event loop.
    """

    def __init__(
        self,
        driver: str,
        sockets: DriverSockets,
        services: Iterable[GrpcService],
        accepted: asyncio.Event,
        log: StructuredLogger,
    ) -> None:
        self._driver, self._log, self._loop = driver, log, asyncio.get_running_loop()
        served = tuple(services)
        self._plugin_info = REGISTRATION.get_message_class("PluginInfo")(
            type=RESOURCE_PLUGIN if CLASSIC_V1ALPHA1 in served else DRA_PLUGIN,
            name=driver,
            endpoint=str(sockets.endpoint),
            supported_versions=[name for name, service in OFFERED_SERVICES.items() if service in served],
        )
        self.accepted = accepted
        self.refusal = ""
        """The agent's reason when it did not accept the driver."""

    @property
    def rpc_handler(self) -> Any:
        """The handler of the registration service."""
        return build_blocking_rpc_handler(
            REGISTRATION,
            {"GetInfo": self._get_info, "NotifyRegistrationStatus": self._notify_registration_status},
        )

    def _get_info(self, _request: ProtobufMessage) -> ProtobufMessage:
        return self._plugin_info

    def _notify_registration_status(self, request: ProtobufMessage) -> ProtobufMessage:
        refusal = "" if request.plugin_registered else request.error or "no reason was given"
        self._loop.call_soon_threadsafe(self._record_status, refusal)
        return REGISTRATION.get_message_class("RegistrationStatusResponse")()

    def _record_status(self, refusal: str) -> None:
        self.refusal = refusal
        if refusal:
            self.accepted.clear()
            self._log.error("the agent refused the driver", driver=self._driver, reason=refusal)
        else:
            self.accepted.set()
            self._log.info("registered with the agent", driver=self._driver)


def build_rpc_handlers(
    preparer: ClaimPreparer, health: HealthMonitor | None, *, classic: bool
) -> list[tuple[GrpcService, Any]]:
    """Build the services of a driver, each with its handler."""
    if classic:
        return [(CLASSIC_V1ALPHA1, _build_classic_handler(preparer))]
    handlers = [(service, _build_dra_handler(service, preparer)) for service in (DRA_V1, DRA_V1BETA1)]
    if health is not None:
        handlers += [
            (service, build_rpc_handler(service, {"NodeWatchResources": health.build_stream(service)}))
            for service in (HEALTH_V1, HEALTH_V1BETA1, HEALTH_V1ALPHA1)
        ]
    return handlers


# --- messages ---


def _build_dra_handler(service: GrpcService, preparer: ClaimPreparer) -> Any:
    get_class = service.get_message_class
    prepare_response = get_class("NodePrepareResourcesResponse")
    prepare_claim_response = get_class("NodePrepareResourceResponse")
    unprepare_response = get_class("NodeUnprepareResourcesResponse")
    unprepare_claim_response = get_class("NodeUnprepareResourceResponse")
    device_message = get_class("Device")
    has_share_ids = "share_id" in device_message.DESCRIPTOR.fields_by_name

    def build_claim_response(result: PrepareResult) -> ProtobufMessage:
        if result.error:
            return prepare_claim_response(error=result.error)
        return prepare_claim_response(devices=[build_device(each) for each in result.devices])

    def build_device(device: PreparedDeviceRecord) -> ProtobufMessage:
        share = {"share_id": device.share_id} if device.share_id and has_share_ids else {}
        return device_message(
            request_names=[device.request],
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi,
            **share,
        )

    async def prepare(request: ProtobufMessage) -> ProtobufMessage:
        results = await preparer.prepare(_parse_claims(request), get_remaining_seconds())
        return prepare_response(claims={uid: build_claim_response(each) for uid, each in results.items()})

    async def unprepare(request: ProtobufMessage) -> ProtobufMessage:
        results = await preparer.unprepare(_parse_claims(request))
        claims = {uid: unprepare_claim_response(error=each.error) for uid, each in results.items()}
        return unprepare_response(claims=claims)

    return build_rpc_handler(service, {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare})


def _parse_claims(request: ProtobufMessage) -> list[RequestedClaim]:
    return [RequestedClaim(each.uid, each.namespace, each.name) for each in request.claims]


def _build_classic_handler(preparer: ClaimPreparer) -> Any:
    async def prepare(request: ProtobufMessage) -> ProtobufMessage:
        uid = request.resource_uid
        result = (await preparer.prepare([RequestedClaim(uid)], get_remaining_seconds()))[uid]
        _raise_on_error(result)
        names = [name for device in result.devices for name in device.cdi]
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
