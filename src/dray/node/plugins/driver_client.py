"""gRPC clients of drivers: DRA v1 and v1beta1, and the classic protocol.

Theory of operation: a client belongs to one instance of a driver and has one connection, which reconnects by
itself. Every call has a time limit; after that its outcome is unknown, which is a failure of its own kind.
The services that the driver offers are tried in order of preference: one that returns `Unimplemented` is not
tried again.

Connections use no keepalive pings, which some servers treat as an attack. After a long idle time, or after
the driver was restarted at the same path, the next call reconnects.

Rules for this file: `driver_replies` interprets replies; `registry` decides which drivers are registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from dray.client.timing import TimeSource
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.plugins import driver_replies
from dray.node.plugins.driver_interface import (
    ClaimRef,
    DeviceHealth,
    DriverCallFailure,
    DriverCallFault,
    DriverClient,
    PreparedDevice,
    PrepareOutcome,
    UnprepareOutcome,
)
from dray.wire.grpc_services import GrpcService, GrpcStub, UnreadableReplyError
from dray.wire.protobuf import ProtobufMessage

T = TypeVar("T")

CONNECTION_CLOSED: Final = "the connection was closed"
_MAX_CONCURRENT_CALLS: Final = 8
"""Limit of concurrent calls of the classic protocol, which has one claim per call."""


@dataclass(frozen=True, slots=True)
class PluginRegistration:
    """The registration of a driver, reduced to the services that this agent supports."""

    name: str
    classic: bool
    services: tuple[GrpcService, ...]
    health_services: tuple[GrpcService, ...] = ()
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class DriverCallOptions:
    """Options of driver calls."""

    timeout: float = 45.0
    """Time limit of a call in seconds."""
    max_claims: int = 100
    """Limit of claims in one call."""
    time_source: TimeSource = field(default_factory=TimeSource)
    metrics: NodeAgentMetrics = field(default_factory=NodeAgentMetrics)


class DriverConnection:
    """Calls a driver, measures the time, and turns errors into failures."""

    def __init__(self, registration: PluginRegistration, channel: Any, options: DriverCallOptions) -> None:
        self.registration = registration
        self.channel = channel
        self.options = options
        self._stubs = [GrpcStub(channel, service) for service in registration.services]
        self._health_stubs = [GrpcStub(channel, service) for service in registration.health_services]

    async def call(
        self, method: str, build_request: Callable[[Any], ProtobufMessage]
    ) -> ProtobufMessage | DriverCallFailure:
        """Call a method of the preferred service; `build_request` builds the request from its class."""
        *others, last = tuple(self._stubs)
        for stub in others:
            reply = await self._call_stub(stub, method, build_request)
            if not isinstance(reply, DriverCallFailure) or reply.fault is not DriverCallFault.NOT_SPOKEN:
                return reply
            if stub in self._stubs:
                self._stubs.remove(stub)
        return await self._call_stub(last, method, build_request)

    async def _call_stub(
        self, stub: GrpcStub, method: str, build_request: Callable[[Any], ProtobufMessage]
    ) -> ProtobufMessage | DriverCallFailure:
        clock, request = self.options.time_source.clock, build_request(stub.service.methods[method].request)
        started, code = clock.monotonic(), grpc.StatusCode.OK
        try:
            return await stub.call(method, request, timeout=self.options.timeout)
        except grpc.aio.AioRpcError as error:
            code = error.code()
            return driver_replies.build_call_failure(
                self.registration.name, code, error.details() or "", self.options.timeout
            )
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            if _is_own_cancellation():
                raise
            return driver_replies.build_call_failure(
                self.registration.name, code, CONNECTION_CLOSED, self.options.timeout
            )
        except UnreadableReplyError as error:
            return driver_replies.build_refusal(self.registration.name, str(error))
        except grpc.aio.UsageError:
            code = grpc.StatusCode.CANCELLED
            return driver_replies.build_call_failure(
                self.registration.name, code, CONNECTION_CLOSED, self.options.timeout
            )
        finally:
            path = stub.service.methods[method].path
            self.options.metrics.observe_call(
                self.registration.name, path, code.name, clock.monotonic() - started
            )

    async def stream_health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """Yield the health of all devices whenever the driver reports it; ends with the stream."""
        for stub in tuple(self._health_stubs):
            stream: Any = stub.stream(
                "NodeWatchResources", stub.service.get_message_class("NodeWatchResourcesRequest")()
            )
            try:
                async for reply in stream:
                    if reply is None:
                        return
                    yield driver_replies.parse_health(reply)
                return
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                    return
            except asyncio.CancelledError:
                if _is_own_cancellation():
                    raise
                return
            finally:
                stream.cancel()
            if stub in self._health_stubs:
                self._health_stubs.remove(stub)

    def has_health_stream(self) -> bool:
        """Return whether the driver streams the health of its devices, as far as is known."""
        return bool(self._health_stubs)


class DraDriverClient:
    """Client of a driver that implements DRA v1 or v1beta1."""

    classic = False

    def __init__(self, connection: DriverConnection) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        return self._connection.registration.name

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        return await self._call_in_batches("NodePrepareResources", claims, driver_replies.parse_prepared)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        return await self._call_in_batches("NodeUnprepareResources", claims, driver_replies.parse_unprepared)

    async def _call_in_batches(
        self,
        method: str,
        claims: Sequence[ClaimRef],
        parse_reply: Callable[[str, Sequence[ClaimRef], ProtobufMessage], dict[str, T]],
    ) -> dict[str, T | DriverCallFailure]:
        outcomes: dict[str, T | DriverCallFailure] = {}
        for start in range(0, len(claims), self._connection.options.max_claims):
            batch = claims[start : start + self._connection.options.max_claims]
            reply = await self._connection.call(method, partial(_build_request, batch))
            if isinstance(reply, DriverCallFailure):
                outcomes |= dict.fromkeys((claim.uid for claim in batch), reply)
            else:
                outcomes |= parse_reply(self.name, batch, reply)
        return outcomes

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return self._connection.stream_health() if self._connection.has_health_stream() else None


class ClassicDriverClient:
    """Client of a driver that implements the classic protocol: one claim per call, identified by uid."""

    classic = True

    def __init__(self, connection: DriverConnection) -> None:
        self._connection = connection
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT_CALLS)

    @property
    def name(self) -> str:
        return self._connection.registration.name

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        outcomes = await asyncio.gather(*map(self._prepare_claim, claims))
        return {claim.uid: outcome for claim, outcome in zip(claims, outcomes, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        outcomes = await asyncio.gather(*map(self._unprepare_claim, claims))
        return {claim.uid: outcome for claim, outcome in zip(claims, outcomes, strict=True)}

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return self._connection.stream_health() if self._connection.has_health_stream() else None

    async def _prepare_claim(self, claim: ClaimRef) -> PrepareOutcome:
        async with self._semaphore:
            reply = await self._connection.call(
                "NodePrepareResource", lambda message_type: message_type(resource_uid=claim.uid)
            )
        if isinstance(reply, DriverCallFailure):
            return reply
        names = tuple(reply.cdi_device)
        return driver_replies.check_cdi_names(self.name, (PreparedDevice(cdi=names),) if names else ())

    async def _unprepare_claim(self, claim: ClaimRef) -> UnprepareOutcome:
        async with self._semaphore:
            reply = await self._connection.call(
                "NodeUnprepareResource",
                lambda message_type: message_type(resource_uid=claim.uid, cdi_device=claim.cdi),
            )
        return reply if isinstance(reply, DriverCallFailure) else None


def build_driver_client(
    registration: PluginRegistration, channel: Any, options: DriverCallOptions
) -> DriverClient:
    """Build the client of a driver for the protocol that it offers."""
    connection = DriverConnection(registration, channel, options)
    return ClassicDriverClient(connection) if registration.classic else DraDriverClient(connection)


def _build_request(claims: Sequence[ClaimRef], message_type: Any) -> ProtobufMessage:
    request = message_type()
    for claim in claims:
        request.claims.add(namespace=claim.namespace, name=claim.name, uid=claim.uid)
    return request


def _is_own_cancellation() -> bool:
    """Return whether this task was cancelled, and not only the call because its connection closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
