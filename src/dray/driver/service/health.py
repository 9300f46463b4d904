"""The health monitor: polls the health of devices and streams it to the agent.

Theory of operation: while an agent has a stream open, the monitor calls the author's `health` every few
seconds and whenever the author calls `changed`. It sends every result to every stream, changed or not: the
agent takes silence for a driver that is gone. When the author's method fails, the monitor logs the error and
sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

from dray.clock import Clock
from dray.driver import metrics as m
from dray.driver.async_driver import AsyncDriver
from dray.driver.base import DeviceState
from dray.errors import InputError
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry
from dray.wire.grpc_services import GrpcService
from dray.wire.protobuf import ProtobufMessage

MAX_TIMEOUT_SECONDS: Final = 24 * 3600
_HEALTH_NAMES: Final = {True: "HEALTHY", False: "UNHEALTHY", None: "UNKNOWN"}


class HealthMonitor:
    """Polls the health of devices while there are streams, and sends it to all of them."""

    def __init__(
        self, async_driver: AsyncDriver, clock: Clock, log: StructuredLogger, metrics: MetricsRegistry
    ) -> None:
        self._async_driver, self._clock, self._log, self._metrics = async_driver, clock, log, metrics
        self._driver = async_driver.driver
        self._listeners: set[asyncio.Queue[Sequence[DeviceState]]] = set()
        self._wake = asyncio.Event()
        self._last: Sequence[DeviceState] | None = None

    def refresh(self) -> None:
        """Poll now."""
        self._wake.set()

    async def run(self) -> None:
        """Poll while there are streams, until cancelled."""
        while True:
            if self._listeners:
                await self._poll()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._driver.health_seconds if self._listeners else None):
                    await self._wake.wait()
            self._wake.clear()

    def build_stream(
        self, service: GrpcService
    ) -> Callable[[ProtobufMessage], AsyncIterator[ProtobufMessage]]:
        """Build the handler of a service's call, which streams messages until the agent hangs up."""

        async def stream(_request: ProtobufMessage) -> AsyncIterator[ProtobufMessage]:
            queue: asyncio.Queue[Sequence[DeviceState]] = asyncio.Queue(1)
            if self._last is not None:
                queue.put_nowait(self._last)
            self._listeners.add(queue)
            self._wake.set()
            try:
                while True:
                    yield self._build_message(service, await queue.get())
            finally:
                self._listeners.discard(queue)
                if not self._listeners:
                    self._last = None

        return stream

    async def _poll(self) -> None:
        try:
            states = _validate_states(await self._async_driver.list_health())
        except Exception as broken:  # the author's code may raise anything
            self._log.error("cannot read the health of devices", driver=self._driver.name, error=broken)
            return
        self._last = states
        self._metrics.set(m.UNHEALTHY, sum(each.healthy is False for each in states), self._driver.name)
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()  # a slow reader gets only the newest states
            queue.put_nowait(states)

    def _build_message(self, service: GrpcService, states: Sequence[DeviceState]) -> ProtobufMessage:
        now = int(self._clock.now().timestamp())
        device_health = service.get_message_class("DeviceHealth")
        identifier = service.get_message_class("DeviceIdentifier")
        health_values = device_health.DESCRIPTOR.fields_by_name["health"].enum_type.values_by_name
        devices = [
            device_health(
                device=identifier(pool_name=each.pool or self._driver.node, device_name=each.device),
                health=health_values[_HEALTH_NAMES[each.healthy]].number,
                last_updated_time=now,
                health_check_timeout_seconds=each.timeout_seconds,
                message=each.message,
            )
            for each in states
        ]
        return service.get_message_class("NodeWatchResourcesResponse")(devices=devices)


def _validate_states(states: Sequence[DeviceState]) -> Sequence[DeviceState]:
    """Check the values that an author's `health` returned."""
    for each in states:
        if not isinstance(each, DeviceState):
            raise InputError(f"`health` must yield `DeviceState` values, not `{each!r}`")
        if not isinstance(each.healthy, bool | None):
            raise InputError(
                f"device `{each.device}`: `healthy` is True, False or None, not `{each.healthy!r}`"
            )
        if not 0 <= each.timeout_seconds <= MAX_TIMEOUT_SECONDS:
            raise InputError(
                f"device `{each.device}`: `timeout_seconds` is at most {MAX_TIMEOUT_SECONDS}, "
                f"not `{each.timeout_seconds!r}`"
            )
    return states
