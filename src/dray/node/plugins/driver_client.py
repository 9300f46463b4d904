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

from dray.client.timing import Tempo
from dray.node.agent_metrics import Metrics
from dray.node.plugins import driver_replies
from dray.node.plugins.driver_interface import (
    ClaimRef,
    DeviceHealth,
    DriverLine,
    Failure,
    Fault,
    PreparedDevice,
    PrepareOutcome,
    UnprepareOutcome,
)
from dray.wire.grpc_services import Message, Service, Stub, Unreadable

T = TypeVar("T")

CLOSED: Final = "the line was closed"
_AT_ONCE: Final = 8
"""Calls of the classic protocol at a time, which has one claim in each."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a driver said about itself when it registered, as far as we speak it."""

    name: str
    classic: bool
    services: tuple[Service, ...]
    health: tuple[Service, ...] = ()
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Habits:
    """How drivers are called."""

    timeout: float = 45.0
    """Seconds in which a call must be answered."""
    most: int = 100
    """Claims in one call."""
    tempo: Tempo = field(default_factory=Tempo)
    metrics: Metrics = field(default_factory=Metrics)


class Calls:
    """Calls a driver, times it, and makes failures of whatever goes wrong."""

    def __init__(self, offer: Offer, channel: Any, habits: Habits) -> None:
        self.offer = offer
        self.channel = channel
        self.habits = habits
        self._stubs = [Stub(channel, service) for service in offer.services]
        self._health = [Stub(channel, service) for service in offer.health]

    async def call(self, method: str, fill: Callable[[Any], Message]) -> Message | Failure:
        """Call a method in the best version that the driver has; `fill` makes the request from its class."""
        *others, last = tuple(self._stubs)
        for stub in others:
            answer = await self._tried(stub, method, fill)
            if not isinstance(answer, Failure) or answer.fault is not Fault.NOT_SPOKEN:
                return answer
            if stub in self._stubs:
                self._stubs.remove(stub)
        return await self._tried(last, method, fill)

    async def _tried(self, stub: Stub, method: str, fill: Callable[[Any], Message]) -> Message | Failure:
        clock, request = self.habits.tempo.clock, fill(stub.service.methods[method].request)
        began, code = clock.monotonic(), grpc.StatusCode.OK
        try:
            return await stub.call(method, request, timeout=self.habits.timeout)
        except grpc.aio.AioRpcError as failed:
            code = failed.code()
            return driver_replies.failure(self.offer.name, code, failed.details() or "", self.habits.timeout)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            if _is_cancelled():
                raise
            return driver_replies.failure(self.offer.name, code, CLOSED, self.habits.timeout)
        except Unreadable as nonsense:
            return driver_replies.refused(self.offer.name, str(nonsense))
        except grpc.aio.UsageError:
            code = grpc.StatusCode.CANCELLED
            return driver_replies.failure(self.offer.name, code, CLOSED, self.habits.timeout)
        finally:
            path = stub.service.methods[method].path
            self.habits.metrics.called(self.offer.name, path, code.name, clock.monotonic() - began)

    async def states(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """The health of all devices whenever the driver tells it; ends with the stream."""
        for stub in tuple(self._health):
            stream: Any = stub.stream(
                "NodeWatchResources", stub.service.message("NodeWatchResourcesRequest")()
            )
            try:
                async for reply in stream:
                    if reply is None:
                        return
                    yield driver_replies.states(reply)
                return
            except grpc.aio.AioRpcError as failed:
                if failed.code() != grpc.StatusCode.UNIMPLEMENTED:
                    return
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                return
            finally:
                stream.cancel()
            if stub in self._health:
                self._health.remove(stub)

    def has_health(self) -> bool:
        """Whether the driver streams the health of its devices, as far as we know."""
        return bool(self._health)


class DraLine:
    """A driver that speaks DRA v1 or v1beta1."""

    classic = False

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def name(self) -> str:
        return self._calls.offer.name

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        return await self._asked("NodePrepareResources", claims, driver_replies.prepared)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        return await self._asked("NodeUnprepareResources", claims, driver_replies.unprepared)

    async def _asked(
        self,
        method: str,
        claims: Sequence[ClaimRef],
        read: Callable[[str, Sequence[ClaimRef], Message], dict[str, T]],
    ) -> dict[str, T | Failure]:
        outcomes: dict[str, T | Failure] = {}
        for start in range(0, len(claims), self._calls.habits.most):
            part = claims[start : start + self._calls.habits.most]
            answer = await self._calls.call(method, partial(_request, part))
            if isinstance(answer, Failure):
                outcomes |= dict.fromkeys((claim.uid for claim in part), answer)
            else:
                outcomes |= read(self.name, part, answer)
        return outcomes

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return self._calls.states() if self._calls.has_health() else None


class ClassicLine:
    """A driver that speaks the classic protocol: one claim a call, known by its uid alone."""

    classic = True

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._turns = asyncio.Semaphore(_AT_ONCE)

    @property
    def name(self) -> str:
        return self._calls.offer.name

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        outcomes = await asyncio.gather(*map(self._prepare, claims))
        return {claim.uid: outcome for claim, outcome in zip(claims, outcomes, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        outcomes = await asyncio.gather(*map(self._unprepare, claims))
        return {claim.uid: outcome for claim, outcome in zip(claims, outcomes, strict=True)}

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return self._calls.states() if self._calls.has_health() else None

    async def _prepare(self, claim: ClaimRef) -> PrepareOutcome:
        async with self._turns:
            answer = await self._calls.call("NodePrepareResource", lambda made: made(resource_uid=claim.uid))
        if isinstance(answer, Failure):
            return answer
        names = tuple(answer.cdi_device)
        return driver_replies.checked(self.name, (PreparedDevice(cdi=names),) if names else ())

    async def _unprepare(self, claim: ClaimRef) -> UnprepareOutcome:
        async with self._turns:
            answer = await self._calls.call(
                "NodeUnprepareResource", lambda made: made(resource_uid=claim.uid, cdi_device=claim.cdi)
            )
        return answer if isinstance(answer, Failure) else None


def line(offer: Offer, channel: Any, habits: Habits) -> DriverLine:
    """The line to a driver, by what it offers."""
    calls = Calls(offer, channel, habits)
    return ClassicLine(calls) if offer.classic else DraLine(calls)


def _request(claims: Sequence[ClaimRef], made: Any) -> Message:
    request = made()
    for claim in claims:
        request.claims.add(namespace=claim.namespace, name=claim.name, uid=claim.uid)
    return request


def _is_cancelled() -> bool:
    """Whether it is we who were cancelled, and not the call because its line was closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
