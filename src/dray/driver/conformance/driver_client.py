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

from dray.driver.conformance.results import Wrong
from dray.errors import InputError
from dray.wire import grpc_services, unix_sockets

PATIENCE: Final = 30.0
"""Seconds that a driver has for an answer, and for coming back."""
_PAUSE: Final = 0.1
_LONGEST: Final = 200
"""Characters of a failure that are shown."""
_VERSIONS: Final[Mapping[str, grpc_services.Service]] = MappingProxyType(
    {"v1": grpc_services.DRA_V1, "v1beta1": grpc_services.DRA_V1BETA1}
)


@dataclass(frozen=True, slots=True)
class Ref:
    """A claim as an agent names it to a driver."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Made:
    """A device that a driver says is ready."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a driver says about one claim."""

    devices: tuple[Made, ...] = ()
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
class Introduction:
    """Who answers at a socket, and how it may be asked."""

    driver: str
    endpoint: Path
    versions: tuple[str, ...]
    offered: tuple[str, ...] = ()
    """What its registration lists; empty when it was not asked by way of one."""


class Line:
    """Calls a driver."""

    def __init__(self, introduction: Introduction, channel: Any) -> None:
        self.introduction = introduction
        self.channel = channel
        self._stubs = {name: grpc_services.Stub(channel, service) for name, service in _VERSIONS.items()}

    async def prepare(self, *claims: Ref, version: str = "") -> dict[str, Answer]:
        """What the driver answers, by the uid of each claim; `Wrong` when the whole call comes to nothing."""
        reply = await self._call("NodePrepareResources", claims, version)
        return {uid: _answer(entry) for uid, entry in reply.claims.items()}

    async def unprepare(self, *claims: Ref, version: str = "") -> dict[str, str]:
        """The errors of a call to give claims back, by uid; empty where it went well."""
        reply = await self._call("NodeUnprepareResources", claims, version)
        return {uid: str(entry.error) for uid, entry in reply.claims.items()}

    async def back(self) -> None:
        """Wait until the driver answers, after it was away."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                await self._ask("NodePrepareResources", (), self.introduction.versions[0], 5)
                return
            except grpc.aio.AioRpcError as refused:
                if asyncio.get_running_loop().time() > end:
                    raise Wrong(
                        f"the driver does not answer {PATIENCE:g} seconds after it was restarted: "
                        f"{said(refused)}"
                    ) from None
            await asyncio.sleep(_PAUSE)

    async def _call(self, method: str, claims: Sequence[Ref], version: str) -> Any:
        try:
            return await self._ask(method, claims, version or self.introduction.versions[0], PATIENCE)
        except grpc.aio.AioRpcError as refused:
            raise Wrong(f"{method} failed as a whole with {said(refused)}") from None

    async def _ask(self, method: str, claims: Sequence[Ref], version: str, patience: float) -> Any:
        stub = self._stubs[version]
        named = [
            stub.service.message("Claim")(namespace=ref.namespace, name=ref.name, uid=ref.uid)
            for ref in claims
        ]
        request = stub.service.methods[method].request(claims=named)
        return await stub.call(method, request, timeout=patience)


def _answer(entry: Any) -> Answer:
    devices = tuple(
        Made(
            tuple(each.request_names),
            str(each.pool_name),
            str(each.device_name),
            tuple(each.cdi_device_ids),
        )
        for each in entry.devices
    )
    return Answer(devices, str(entry.error))


def said(refused: grpc.aio.AioRpcError) -> str:
    """A failure in a line; what drivers say in the middle of a fault may be long."""
    details = " ".join(str(refused.details()).split())
    return f"{refused.code().name}: {details if len(details) <= _LONGEST else details[:_LONGEST] + '…'}"


async def registration(place: Path) -> Any:
    """What a registration at this socket says; None when the socket serves none."""
    await asyncio.to_thread(_judge, place)
    async with unix_sockets.channel(place) as channel:
        stub = grpc_services.Stub(channel, grpc_services.REGISTRATION)
        request = grpc_services.REGISTRATION.message("InfoRequest")()
        try:
            return await stub.call("GetInfo", request, timeout=PATIENCE)
        except grpc.aio.AioRpcError as refused:
            if refused.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise InputError(f"no driver answers at `{place}`: {_silence(refused)}") from None


def _judge(path: Path) -> None:
    """Whether somebody listens at a socket; `InputError` says what is there otherwise."""
    length = len(os.fsencode(path))
    if length > unix_sockets.LONGEST:
        raise InputError(f"the path of a socket may have {unix_sockets.LONGEST} bytes, `{path}` has {length}")
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError(f"`{path}` is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(PATIENCE)
            line.connect(os.fspath(path))
    except FileNotFoundError:
        raise InputError(f"there is no socket `{path}`; is the driver running?") from None
    except ConnectionRefusedError:
        raise InputError(f"nobody listens at `{path}`: the driver that made it has ended") from None
    except OSError as refused:
        raise InputError(f"`{path}` cannot be used: {refused.strerror or refused}") from None


def _silence(refused: grpc.aio.AioRpcError) -> str:
    """Why somebody who listens does not answer."""
    if refused.code() is grpc.StatusCode.UNAVAILABLE:
        return "what listens there does not speak gRPC, or not in time"
    if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"it does not say who it is within {PATIENCE:g} seconds"
    return said(refused)


async def introduced(place: Path, driver: str) -> Introduction:
    """Who answers at a socket; `InputError` when nobody does, or nobody that we know how to speak to."""
    told = await registration(place)
    if told is not None:
        if told.type != grpc_services.DRA_PLUGIN:
            raise InputError(
                f"`{told.name}` at `{place}` is a `{told.type}`; the suite examines drivers that register "
                f"as `{grpc_services.DRA_PLUGIN}` or `{grpc_services.RESOURCE_PLUGIN}`"
            )
        endpoint = Path(told.endpoint) if told.endpoint else place
        offered = tuple(told.supported_versions)
        versions = await _answered(endpoint)
        return Introduction(str(told.name), endpoint, versions, offered)
    if not driver:
        raise InputError(
            f"`{place}` serves no registration, so it does not say whose it is; give --driver NAME"
        )
    return Introduction(driver, place, await _answered(place))


async def _answered(endpoint: Path) -> tuple[str, ...]:
    """The versions in which a socket answers, the preferred one first."""
    found, refusals = [], []
    await asyncio.to_thread(_judge, endpoint)
    async with unix_sockets.channel(endpoint) as channel:
        for name, service in _VERSIONS.items():
            request = service.methods["NodePrepareResources"].request()
            try:
                await grpc_services.Stub(channel, service).call(
                    "NodePrepareResources", request, timeout=PATIENCE
                )
            except grpc.aio.AioRpcError as refused:
                if refused.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    refusals.append(_silence(refused))
                continue
            found.append(name)
    if not found:
        why = refusals[0] if refusals else "it serves neither DRA v1 nor DRA v1beta1"
        raise InputError(f"no driver answers at `{endpoint}`: {why}")
    return tuple(found)


@asynccontextmanager
async def open_line(place: Path, driver: str = "") -> AsyncIterator[Line]:
    """A line to the driver at a socket, of a registration or of its own."""
    introduction = await introduced(place, driver)
    async with unix_sockets.channel(introduction.endpoint) as channel:
        yield Line(introduction, channel)
