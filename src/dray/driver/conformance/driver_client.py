"""The gRPC client of the conformance suite: identifies the driver at a socket, and calls it in any version.

Theory of operation: the suite gets the path of a socket. If the socket serves plugin registration,
`GetInfo` returns the driver's name, its services and its endpoint, and the client calls the first version
among them, as a kubelet would; otherwise the socket itself is the endpoint, and the client probes each
version. A call without claims is harmless and shows whether a driver answers. A driver that was restarted
may have sockets of other names, so the client looks for its registration in the same directory.
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
REFUSAL_TIMEOUT_SECONDS: Final = 6.0
"""The time limit of calls that must be refused: a driver may wait in a call for what will pass."""
"""How long a driver may take to answer a call, and to answer after a restart."""
_POLL_SECONDS: Final = 0.1
_MAX_ERROR_LENGTH: Final = 200
"""How many characters of an error are shown."""
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
    """A device in the driver's response."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriverPrepareResponse:
    """The driver's response for one claim."""

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
    """The driver at a socket: its name, its endpoint and the versions that it serves."""

    driver: str
    endpoint: Path
    versions: tuple[str, ...]
    """The versions that an agent may call, the one that it would choose first."""
    offered_services: tuple[str, ...] = ()
    """The services that its registration lists; empty without a registration."""
    served_versions: tuple[str, ...] = ()
    """The versions that the endpoint answers, offered or not."""
    registration_socket: Path | None = None


class CallFailedError(NotConformantError):
    """A call failed as a whole, instead of in the entries of its claims."""

    def __init__(self, found: str, expected: str, code: grpc.StatusCode) -> None:
        super().__init__(found, expected)
        self.code = code


class ConformanceDriverClient:
    """Calls a driver."""

    def __init__(self, identity: DriverIdentity) -> None:
        self.identity = identity
        self._connect(identity)

    def _connect(self, identity: DriverIdentity) -> None:
        self.identity = identity
        self.channel = unix_sockets.open_channel(identity.endpoint)
        self._stubs = {
            name: grpc_services.GrpcStub(self.channel, service) for name, service in _VERSIONS.items()
        }

    async def close(self) -> None:
        await self.channel.close()

    async def prepare(
        self, *claims: ConformanceClaimRef, version: str = "", timeout: float = CALL_TIMEOUT_SECONDS
    ) -> dict[str, DriverPrepareResponse]:
        """Prepare claims and return the response for each by uid; raises `CallFailedError` when the whole
        call fails.
        """
        reply = await self._call("NodePrepareResources", claims, version, timeout)
        return {uid: _parse_response(entry) for uid, entry in reply.claims.items()}

    async def unprepare(self, *claims: ConformanceClaimRef, version: str = "") -> dict[str, str]:
        """Unprepare claims and return the error of each by uid; empty on success."""
        reply = await self._call("NodeUnprepareResources", claims, version)
        return {uid: str(entry.error) for uid, entry in reply.claims.items()}

    async def wait_until_serving(self) -> None:
        """Wait until the driver answers after a restart, at the same sockets or at new ones."""
        deadline = asyncio.get_running_loop().time() + CALL_TIMEOUT_SECONDS
        while True:
            try:
                await self._call_once("NodePrepareResources", (), self.identity.versions[0], 5)
                return
            except grpc.aio.AioRpcError as refused:
                if asyncio.get_running_loop().time() > deadline:
                    raise NotConformantError(
                        f"the driver does not answer: {format_rpc_error(refused)}",
                        f"an answer within {CALL_TIMEOUT_SECONDS:g} seconds after it was restarted",
                    ) from None
            await self._find_new_sockets()
            await asyncio.sleep(_POLL_SECONDS)

    async def _find_new_sockets(self) -> None:
        """Connect to other sockets of the driver: one that is updated in place has a pair per instance."""
        known = self.identity.registration_socket
        if known is None:
            return
        for path in sorted(each for each in known.parent.iterdir() if each.is_socket() and each != known):
            found = await _identify_same(path, self.identity.driver)
            if found is not None:
                await self.close()
                self._connect(found)
                return

    async def _call(
        self,
        method: str,
        claims: Sequence[ConformanceClaimRef],
        version: str,
        timeout: float = CALL_TIMEOUT_SECONDS,
    ) -> Any:
        try:
            return await self._call_once(method, claims, version or self.identity.versions[0], timeout)
        except grpc.aio.AioRpcError as refused:
            raise CallFailedError(
                f"{method} failed as a whole with {format_rpc_error(refused)}",
                "an answer with an entry for each claim",
                refused.code(),
            ) from None
        except grpc_services.UnreadableReplyError as malformed:
            raise NotConformantError(str(malformed), "a message of the protocol") from None

    async def _call_once(
        self, method: str, claims: Sequence[ConformanceClaimRef], version: str, timeout: float
    ) -> Any:
        stub = self._stubs[version]
        claim_message = stub.service.get_message_class("Claim")
        messages = [claim_message(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in claims]
        request = stub.service.methods[method].request(claims=messages)
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
    """Format an RPC error as one line of limited length."""
    details = " ".join(str(refused.details()).split())
    if len(details) > _MAX_ERROR_LENGTH:
        details = f"{details[:_MAX_ERROR_LENGTH]}…"
    return f"{refused.code().name}: {details}"


async def get_registration(socket_path: Path) -> Any:
    """Call `GetInfo` at a socket; None when the socket serves no plugin registration."""
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
    """Raise `InputError` unless a process listens at a socket."""
    length = len(os.fsencode(path))
    if length > unix_sockets.MAX_SOCKET_PATH_BYTES:
        raise InputError(
            f"the path of a socket may have {unix_sockets.MAX_SOCKET_PATH_BYTES} bytes, `{path}` has {length}"
        )
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError(f"`{path}` is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CALL_TIMEOUT_SECONDS)
            connection.connect(os.fspath(path))
    except FileNotFoundError:
        raise InputError(f"there is no socket `{path}`; is the driver running?") from None
    except ConnectionRefusedError:
        raise InputError(f"nobody listens at `{path}`: the driver that made it has ended") from None
    except OSError as refused:
        raise InputError(f"`{path}` cannot be used: {refused.strerror or refused}") from None


def _explain_no_answer(refused: grpc.aio.AioRpcError) -> str:
    """Explain why the process that listens does not answer."""
    if refused.code() is grpc.StatusCode.UNAVAILABLE:
        return "the process that listens there does not answer gRPC calls, or not in time"
    if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"it does not answer GetInfo within {CALL_TIMEOUT_SECONDS:g} seconds"
    return format_rpc_error(refused)


async def identify_driver(socket_path: Path, driver: str) -> DriverIdentity:
    """Identify the driver at a socket; raises `InputError` when none answers in a known version."""
    plugin = await get_registration(socket_path)
    if plugin is not None:
        if plugin.type != grpc_services.DRA_PLUGIN:
            raise InputError(
                f"`{plugin.name}` at `{socket_path}` is a `{plugin.type}`; the suite examines drivers that "
                f"register as `{grpc_services.DRA_PLUGIN}` or `{grpc_services.RESOURCE_PLUGIN}`"
            )
        endpoint = Path(plugin.endpoint) if plugin.endpoint else socket_path
        offered = tuple(plugin.supported_versions)
        served = await _probe_versions(endpoint)
        chosen = tuple(name for name in list_offered_versions(offered) if name in served)
        return DriverIdentity(str(plugin.name), endpoint, chosen or served, offered, served, socket_path)
    if not driver:
        raise InputError(
            f"`{socket_path}` serves no registration, so the driver's name is not known; give --driver NAME"
        )
    served = await _probe_versions(socket_path)
    return DriverIdentity(driver, socket_path, served, served_versions=served)


def list_offered_versions(offered: Sequence[str]) -> tuple[str, ...]:
    """Return the versions of the DRA service among offered services, in the driver's order."""
    names = {f"{name}.DRAPlugin": name for name in _VERSIONS}
    return tuple(names[service] for service in offered if service in names)


async def _identify_same(path: Path, driver: str) -> DriverIdentity | None:
    """Identify a driver at a socket; None unless it has this name."""
    try:
        found = await identify_driver(path, "")
    except InputError:
        return None
    return found if found.driver == driver else None


async def _probe_versions(endpoint: Path) -> tuple[str, ...]:
    """Return the versions that a socket serves, the preferred one first."""
    served, refusals = [], []
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
            served.append(name)
    if not served:
        why = refusals[0] if refusals else "it serves neither DRA v1 nor DRA v1beta1"
        raise InputError(f"no driver answers at `{endpoint}`: {why}")
    return tuple(served)


@asynccontextmanager
async def connect_driver(socket_path: Path, driver: str = "") -> AsyncIterator[ConformanceDriverClient]:
    """Connect to the driver at a socket, which is that of its registration or its endpoint."""
    driver_client = ConformanceDriverClient(await identify_driver(socket_path, driver))
    try:
        yield driver_client
    finally:
        await driver_client.close()
