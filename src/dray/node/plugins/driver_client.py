"""Lines to drivers over gRPC: DRA v1 and v1beta1, and the classic protocol.

Theory of operation: a line belongs to one instance of a driver, and to one connection that comes back by
itself. A call has its time; when it is over, what became of it is unknown and said so, and nobody else waits
for it. The services that the driver offered are tried in the order in which we prefer them: one that answers
`Unimplemented` was a promise that the driver does not keep, and is not tried again.

Connections are never kept awake by pings, which some servers take for an attack. One that was idle for long,
or whose driver was restarted at the same place, is made again by the next call.

Rules for this file: what replies mean is in `replies`; whether a driver may be here is asked in `registry`.
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
from dray.wire.grpc_services import GrpcService, GrpcStub, ProtobufMessage, UnreadableReplyError

T = TypeVar("T")

CONNECTION_CLOSED: Final = "the line was closed"
_MAX_CONCURRENT_CALLS: Final = 8
"""Calls of the classic protocol at a time, which has one claim in each."""


@dataclass(frozen=True, slots=True)
class PluginRegistration:
    """What a driver said about itself when it registered, as far as we speak it."""

    name: str
    classic: bool
    services: tuple[GrpcService, ...]
    health_services: tuple[GrpcService, ...] = ()
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class DriverCallOptions:
    """How drivers are called."""

    timeout: float = 45.0
    """Seconds in which a call must be answered."""
    max_claims: int = 100
    """Claims in one call."""
    time_source: TimeSource = field(default_factory=TimeSource)
    metrics: NodeAgentMetrics = field(default_factory=NodeAgentMetrics)


class DriverConnection:
    """Calls a driver, times it, and makes failures of whatever goes wrong."""

    def __init__(self, registration: PluginRegistration, channel: Any, options: DriverCallOptions) -> None:
        self.registration = registration
        self.channel = channel
        self.options = options
        self._stubs = [GrpcStub(channel, service) for service in registration.services]
        self._health_stubs = [GrpcStub(channel, service) for service in registration.health_services]

    async def call(
        self, method: str, build_request: Callable[[Any], ProtobufMessage]
    ) -> ProtobufMessage | DriverCallFailure:
        """Call a method in the best version that the driver has; `build_request` makes the request from its
        class.
        """
        *others, last = tuple(self._stubs)
        for stub in others:
            answer = await self._call_stub(stub, method, build_request)
            if not isinstance(answer, DriverCallFailure) or answer.fault is not DriverCallFault.NOT_SPOKEN:
                return answer
            if stub in self._stubs:
                self._stubs.remove(stub)
        return await self._call_stub(last, method, build_request)

    async def _call_stub(
        self, stub: GrpcStub, method: str, build_request: Callable[[Any], ProtobufMessage]
    ) -> ProtobufMessage | DriverCallFailure:
        clock, request = self.options.time_source.clock, build_request(stub.service.methods[method].request)
        began, code = clock.monotonic(), grpc.StatusCode.OK
        try:
            return await stub.call(method, request, timeout=self.options.timeout)
        except grpc.aio.AioRpcError as failed:
            code = failed.code()
            return driver_replies.build_call_failure(
                self.registration.name, code, failed.details() or "", self.options.timeout
            )
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            if _is_own_cancellation():
                raise
            return driver_replies.build_call_failure(
                self.registration.name, code, CONNECTION_CLOSED, self.options.timeout
            )
        except UnreadableReplyError as nonsense:
            return driver_replies.build_refusal(self.registration.name, str(nonsense))
        except grpc.aio.UsageError:
            code = grpc.StatusCode.CANCELLED
            return driver_replies.build_call_failure(
                self.registration.name, code, CONNECTION_CLOSED, self.options.timeout
            )
        finally:
            path = stub.service.methods[method].path
            self.options.metrics.observe_call(
                self.registration.name, path, code.name, clock.monotonic() - began
            )

    async def stream_health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """The health of all devices whenever the driver tells it; ends with the stream."""
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
            except grpc.aio.AioRpcError as failed:
                if failed.code() != grpc.StatusCode.UNIMPLEMENTED:
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
        """Whether the driver streams the health of its devices, as far as we know."""
        return bool(self._health_stubs)


class DraDriverClient:
    """A driver that speaks DRA v1 or v1beta1."""

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
            part = claims[start : start + self._connection.options.max_claims]
            answer = await self._connection.call(method, partial(_build_request, part))
            if isinstance(answer, DriverCallFailure):
                outcomes |= dict.fromkeys((claim.uid for claim in part), answer)
            else:
                outcomes |= parse_reply(self.name, part, answer)
        return outcomes

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return self._connection.stream_health() if self._connection.has_health_stream() else None


class ClassicDriverClient:
    """A driver that speaks the classic protocol: one claim a call, known by its uid alone."""

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
            answer = await self._connection.call(
                "NodePrepareResource", lambda made: made(resource_uid=claim.uid)
            )
        if isinstance(answer, DriverCallFailure):
            return answer
        names = tuple(answer.cdi_device)
        return driver_replies.check_cdi_names(self.name, (PreparedDevice(cdi=names),) if names else ())

    async def _unprepare_claim(self, claim: ClaimRef) -> UnprepareOutcome:
        async with self._semaphore:
            answer = await self._connection.call(
                "NodeUnprepareResource", lambda made: made(resource_uid=claim.uid, cdi_device=claim.cdi)
            )
        return answer if isinstance(answer, DriverCallFailure) else None


def build_driver_client(
    registration: PluginRegistration, channel: Any, options: DriverCallOptions
) -> DriverClient:
    """The line to a driver, by what it offers."""
    calls = DriverConnection(registration, channel, options)
    return ClassicDriverClient(calls) if registration.classic else DraDriverClient(calls)


def _build_request(claims: Sequence[ClaimRef], message_type: Any) -> ProtobufMessage:
    request = message_type()
    for claim in claims:
        request.claims.add(namespace=claim.namespace, name=claim.name, uid=claim.uid)
    return request


def _is_own_cancellation() -> bool:
    """Whether it is we who were cancelled, and not the call because its line was closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
