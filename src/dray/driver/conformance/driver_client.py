"""The line to a driver: who it says it is, and its calls, whichever version they are made in.

Theory of operation: the suite is given a socket. If it answers a registration, that tells the name of the
driver, its versions and the socket that it serves; otherwise the socket itself is taken for that one, and
each version is asked for. A call without claims does no harm and shows whether somebody answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio

from dray.driver.conformance.results import NotConformantError
from dray.errors import InputError
from dray.wire import grpc_services, unix_sockets

CALL_TIMEOUT_SECONDS: Final = 30.0
"""Seconds that a driver has for an answer, and for coming back."""
_POLL_SECONDS: Final = 0.1
_MAX_ERROR_LENGTH: Final = 200
"""Characters of a failure that are shown."""
_VERSIONS: Final[Mapping[str, grpc_services.GrpcService]] = MappingProxyType(
    {"v1": grpc_services.DRA_V1, "v1beta1": grpc_services.DRA_V1BETA1}
)


@dataclass(frozen=True, slots=True)
class ConformanceClaimRef:
    """A claim as an agent names it to a driver."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReportedDevice:
    """A device that a driver says is ready."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriverPrepareResponse:
    """What a driver says about one claim."""

    devices: tuple[ReportedDevice, ...] = ()
    error: str = ""

    @property
    def cdi(self) -> tuple[str, ...]:
        return tuple(name for device in self.devices for name in device.cdi)

    def __str__(self) -> str:
        devices = (
            f"{each.pool}/{each.device} for {', '.join(each.requests) or 'all requests'} "
            f"as {', '.join(each.cdi) or 'nothing'}"
            for each in self.devices
        )
        return f"error `{self.error}`" if self.error else "; ".join(devices) or "no devices"


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """Who answers at a socket, and how it may be asked."""

    driver: str
    endpoint: Path
    versions: tuple[str, ...]
    offered_services: tuple[str, ...] = ()
    """What its registration lists; empty when it was not asked by way of one."""


class ConformanceDriverClient:
    """Calls a driver."""

    def __init__(self, identity: DriverIdentity, channel: Any) -> None:
        self.identity = identity
        self.channel = channel
        self._stubs = {name: grpc_services.GrpcStub(channel, service) for name, service in _VERSIONS.items()}

    async def prepare(
        self, *claims: ConformanceClaimRef, version: str = ""
    ) -> dict[str, DriverPrepareResponse]:
        """What the driver answers, by the uid of each claim; `NotConformantError` when the whole call comes
        to nothing.
        """
        reply = await self._call("NodePrepareResources", claims, version)
        return {uid: _parse_response(entry) for uid, entry in reply.claims.items()}

    async def unprepare(self, *claims: ConformanceClaimRef, version: str = "") -> dict[str, str]:
        """The errors of a call to give claims back, by uid; empty where it went well."""
        reply = await self._call("NodeUnprepareResources", claims, version)
        return {uid: str(entry.error) for uid, entry in reply.claims.items()}

    async def wait_until_serving(self) -> None:
        """Wait until the driver answers, after it was away."""
        end = asyncio.get_running_loop().time() + CALL_TIMEOUT_SECONDS
        while True:
            try:
                await self._call_once("NodePrepareResources", (), self.identity.versions[0], 5)
                return
            except grpc.aio.AioRpcError as refused:
                if asyncio.get_running_loop().time() > end:
                    raise NotConformantError(
                        f"the driver does not answer {CALL_TIMEOUT_SECONDS:g} seconds after it "
                        "was restarted: "
                        f"{format_rpc_error(refused)}"
                    ) from None
            await asyncio.sleep(_POLL_SECONDS)

    async def _call(self, method: str, claims: Sequence[ConformanceClaimRef], version: str) -> Any:
        try:
            return await self._call_once(
                method, claims, version or self.identity.versions[0], CALL_TIMEOUT_SECONDS
            )
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(f"{method} failed as a whole with {format_rpc_error(refused)}") from None

    async def _call_once(
        self, method: str, claims: Sequence[ConformanceClaimRef], version: str, timeout: float
    ) -> Any:
        stub = self._stubs[version]
        named = [
            stub.service.get_message_class("Claim")(namespace=ref.namespace, name=ref.name, uid=ref.uid)
            for ref in claims
        ]
        request = stub.service.methods[method].request(claims=named)
        return await stub.call(method, request, timeout=timeout)


def _parse_response(entry: Any) -> DriverPrepareResponse:
    devices = tuple(
        ReportedDevice(
            tuple(each.request_names),
            str(each.pool_name),
            str(each.device_name),
            tuple(each.cdi_device_ids),
        )
        for each in entry.devices
    )
    return DriverPrepareResponse(devices, str(entry.error))


def format_rpc_error(refused: grpc.aio.AioRpcError) -> str:
    """A failure in a line; what drivers say in the middle of a fault may be long."""
    details = " ".join(str(refused.details()).split())
    return (
        f"{refused.code().name}: "
        f"{details if len(details) <= _MAX_ERROR_LENGTH else details[:_MAX_ERROR_LENGTH] + '…'}"
    )


async def get_registration(socket_path: Path) -> Any:
    """What a registration at this socket says; None when the socket serves none."""
    await asyncio.to_thread(_check_socket, socket_path)
    async with unix_sockets.open_channel(socket_path) as channel:
        stub = grpc_services.GrpcStub(channel, grpc_services.REGISTRATION)
        request = grpc_services.REGISTRATION.get_message_class("InfoRequest")()
        try:
            return await stub.call("GetInfo", request, timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise InputError(f"no driver answers at `{socket_path}`: {_explain_no_answer(refused)}") from None


def _check_socket(path: Path) -> None:
    """Whether somebody listens at a socket; `InputError` says what is there otherwise."""
    length = len(os.fsencode(path))
    if length > unix_sockets.MAX_SOCKET_PATH_BYTES:
        raise InputError(
            f"the path of a socket may have {unix_sockets.MAX_SOCKET_PATH_BYTES} bytes, `{path}` has {length}"
        )
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError(f"`{path}` is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(CALL_TIMEOUT_SECONDS)
            line.connect(os.fspath(path))
    except FileNotFoundError:
        raise InputError(f"there is no socket `{path}`; is the driver running?") from None
    except ConnectionRefusedError:
        raise InputError(f"nobody listens at `{path}`: the driver that made it has ended") from None
    except OSError as refused:
        raise InputError(f"`{path}` cannot be used: {refused.strerror or refused}") from None


def _explain_no_answer(refused: grpc.aio.AioRpcError) -> str:
    """Why somebody who listens does not answer."""
    if refused.code() is grpc.StatusCode.UNAVAILABLE:
        return "what listens there does not speak gRPC, or not in time"
    if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"it does not say who it is within {CALL_TIMEOUT_SECONDS:g} seconds"
    return format_rpc_error(refused)


async def identify_driver(socket_path: Path, driver: str) -> DriverIdentity:
    """Who answers at a socket; `InputError` when nobody does, or nobody that we know how to speak to."""
    told = await get_registration(socket_path)
    if told is not None:
        if told.type != grpc_services.DRA_PLUGIN:
            raise InputError(
                f"`{told.name}` at `{socket_path}` is a `{told.type}`; the suite examines "
                "drivers that register "
                f"as `{grpc_services.DRA_PLUGIN}` or `{grpc_services.RESOURCE_PLUGIN}`"
            )
        endpoint = Path(told.endpoint) if told.endpoint else socket_path
        offered = tuple(told.supported_versions)
        versions = await _probe_versions(endpoint)
        return DriverIdentity(str(told.name), endpoint, versions, offered)
    if not driver:
        raise InputError(
            f"`{socket_path}` serves no registration, so it does not say whose it is; give --driver NAME"
        )
    return DriverIdentity(driver, socket_path, await _probe_versions(socket_path))


async def _probe_versions(endpoint: Path) -> tuple[str, ...]:
    """The versions in which a socket answers, the preferred one first."""
    found, refusals = [], []
    await asyncio.to_thread(_check_socket, endpoint)
    async with unix_sockets.open_channel(endpoint) as channel:
        for name, service in _VERSIONS.items():
            request = service.methods["NodePrepareResources"].request()
            try:
                await grpc_services.GrpcStub(channel, service).call(
                    "NodePrepareResources", request, timeout=CALL_TIMEOUT_SECONDS
                )
            except grpc.aio.AioRpcError as refused:
                if refused.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    refusals.append(_explain_no_answer(refused))
                continue
            found.append(name)
    if not found:
        why = refusals[0] if refusals else "it serves neither DRA v1 nor DRA v1beta1"
        raise InputError(f"no driver answers at `{endpoint}`: {why}")
    return tuple(found)


@asynccontextmanager
async def connect_driver(socket_path: Path, driver: str = "") -> AsyncIterator[ConformanceDriverClient]:
    """A line to the driver at a socket, of a registration or of its own."""
    introduction = await identify_driver(socket_path, driver)
    async with unix_sockets.open_channel(introduction.endpoint) as channel:
        yield ConformanceDriverClient(introduction, channel)
