"""The simulated network between clients and servers: delay, loss, broken connections and partitions.

Theory of operation: a request is a message to the process of a server, which runs it in a task of its own,
and the response is a message back. Each message takes a time that the conditions of the network draw. A lost
request never reaches the server; a lost response comes from a server that has acted. In both cases the client
learns only that its connection broke. A watch is a sequence of messages that arrive in order, however late.
When a server crashes, its connections break; what it had sent before may still arrive.

Rules for this file: messages are objects of this process and are not encoded; none is delivered twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, Protocol

from dray.client.errors import ServerUnreachableError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.cluster.local.transport import to_server_request, to_transport_response
from dray.cluster.services.component_connection import merge_headers
from dray.server.http.application import ApiApplication
from dray.server.http.requests import RequestUser
from tests.simulated.event_loop import SimulatedLoop, SimulatedProcess

RETRANSMISSION_SECONDS: Final = 1.0
"""How often a message to a process that is cut off is sent again."""
MAX_RETRANSMISSION_SECONDS: Final = 15.0
"""Seconds after which a connection to a process that is cut off breaks."""


class NetworkConditions(Protocol):
    """Draws what happens to each message."""

    def draw_delay(self) -> float:
        """Return how many seconds a message takes."""
        ...

    def loses_request(self, request: TransportRequest) -> bool:
        """Whether a request gets lost on its way to the server."""
        ...

    def loses_response(self, request: TransportRequest) -> bool:
        """Whether a response gets lost on its way to the client."""
        ...

    def cuts_stream(self) -> bool:
        """Whether a watch breaks at this message."""
        ...


class CalmConditions:
    """A network without delay or loss."""

    def draw_delay(self) -> float:
        return 0.0

    def loses_request(self, request: TransportRequest) -> bool:
        return False

    def loses_response(self, request: TransportRequest) -> bool:
        return False

    def cuts_stream(self) -> bool:
        return False


class SimulatedHost:
    """A server as its clients reach it: its process, and its application while it serves."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: SimulatedProcess | None = None
        self.app: ApiApplication | None = None
        self.connections: dict[int, Callable[[], None]] = {}
        """What to call for each open connection when the server crashes."""

    def break_connections(self) -> None:
        """Break every connection, as the end of the process does."""
        broken, self.connections = self.connections, {}
        for tell_client in broken.values():
            tell_client()


class SimulatedNetwork:
    """The network of a cluster."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.hosts: list[SimulatedHost] = []
        self.conditions: NetworkConditions = CalmConditions()
        self.cut_off: set[str] = set()
        """Names of processes that reach nobody and that nobody reaches."""
        self.on_response: Callable[[str, TransportRequest, TransportResponse], None] | None = None
        self.on_chunk: Callable[[int, str, TransportRequest, bytes | None], None] | None = None
        """Called with the number of a stream, its client and its request for every part that arrives."""
        self.messages = 0
        self._numbers = 0

    def is_cut(self, client: str, host: SimulatedHost) -> bool:
        """Whether a client and a server cannot reach each other."""
        return client in self.cut_off or host.name in self.cut_off

    def next_number(self) -> int:
        """Return a number for a connection."""
        self._numbers += 1
        return self._numbers

    def build_transport(self, client: str, user: str, *groups: str, first: int = 0) -> SimulatedTransport:
        """Build the transport of a client; it begins with the server of a number."""
        return SimulatedTransport(self, client, RequestUser(user, groups), first)


class SimulatedTransport:
    """A transport over the simulated network. After a failure it tries the next server."""

    def __init__(self, network: SimulatedNetwork, client: str, user: RequestUser, first: int) -> None:
        self._network = network
        self._client = client
        self._user = user
        self._server = first

    @property
    def address(self) -> str:
        return "the simulated network"

    async def close(self) -> None:
        """Do nothing: a connection lasts as long as its request."""

    def _choose_host(self) -> SimulatedHost:
        hosts = self._network.hosts
        return hosts[self._server % len(hosts)]

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        call = _Call(self._network, self._choose_host(), self._client, request, timeout)
        try:
            response = await call.send(self._user)
        except ServerUnreachableError:
            self._server += 1
            raise
        if self._network.on_response is not None:
            self._network.on_response(self._client, request, response)
        return response

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        connection = _Stream(self._network, self._choose_host(), self._client, request, idle_timeout)
        try:
            code, headers = await connection.open(self._user)
            yield TransportStream(code, headers, connection.iterate())
        except ServerUnreachableError:
            self._server += 1
            raise
        finally:
            connection.leave()


class _Connection:
    """What a request and a stream have in common: one server, one client, and one number."""

    def __init__(
        self,
        network: SimulatedNetwork,
        host: SimulatedHost,
        client: str,
        request: TransportRequest,
        timeout: float,
    ) -> None:
        self.network = network
        self.loop = network.loop
        self.host = host
        self.client = client
        self.request = request
        self.timeout = timeout
        self.number = network.next_number()
        self.waiter: asyncio.Future[Any] = self.loop.create_future()

    def fail(self, why: str, *, sent: bool = True) -> None:
        """Let the client learn that its connection broke."""
        self.host.connections.pop(self.number, None)
        if not self.waiter.done():
            self.waiter.set_exception(ServerUnreachableError(f"{self.request.path}: {why}", sent=sent))

    def _break(self) -> None:
        self.loop.call_later(self.network.conditions.draw_delay(), self.fail, "the server has crashed")

    def reach(self, work: Callable[[], Any]) -> None:
        """Let the server begin to work, if the request gets there."""
        network, host = self.network, self.host
        network.messages += 1
        if network.is_cut(self.client, host):
            wait = min(self.timeout, MAX_RETRANSMISSION_SECONDS)
            self.loop.call_later(wait, self.fail, "no answer in time")
        elif host.process is None or host.app is None:
            self.fail("connection refused", sent=False)
        elif network.conditions.loses_request(self.request):
            self.fail("the connection broke before the request was read")
        else:
            host.connections[self.number] = self._break
            self.loop.spawn(host.process, work())


class _Call(_Connection):
    """One request and its response."""

    async def send(self, user: RequestUser) -> TransportResponse:
        """Return the response; raise `ServerUnreachableError` when none comes."""
        delay = self.network.conditions.draw_delay()
        if delay:
            self.loop.call_later(delay, self.reach, lambda: self._serve(user))
        else:
            self.reach(lambda: self._serve(user))
        limit = self.loop.call_later(self.timeout, self.fail, "no answer in time")
        try:
            response: TransportResponse = await self.waiter
            return response
        finally:
            limit.cancel()

    async def _serve(self, user: RequestUser) -> None:
        app = self.host.app
        if app is None:
            return
        answer = await app.serve_in_process(to_server_request(self.request), user)
        response = to_transport_response(answer)
        network = self.network
        network.messages += 1
        self.host.connections.pop(self.number, None)
        if network.conditions.loses_response(self.request):
            network.loop.call_later(
                network.conditions.draw_delay(),
                self.fail,
                "the connection broke before the answer",
                context=self.loop.outside.context,
            )
        else:
            # The message is on its way: it arrives even when the server crashes now.
            until = self.loop.time() + MAX_RETRANSMISSION_SECONDS
            network.loop.call_later(
                network.conditions.draw_delay(),
                self._arrive,
                response,
                until,
                context=self.loop.outside.context,
            )

    def _arrive(self, response: TransportResponse, until: float) -> None:
        """Deliver the response; what a partition holds back is sent again, until the connection breaks."""
        if self.network.is_cut(self.client, self.host):
            if self.loop.time() >= until:
                self.fail("the connection broke before the answer")
            else:
                outside = self.loop.outside.context
                self.loop.call_later(RETRANSMISSION_SECONDS, self._arrive, response, until, context=outside)
        elif not self.waiter.done():
            self.waiter.set_result(response)


class _Stream(_Connection):
    """A response in chunks, which arrive in their order."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._chunks: deque[bytes | None] = deque()
        self._held: deque[bytes | None] = deque()
        self._hold_until = 0.0
        self._reader: asyncio.Future[Any] | None = None
        self._broken = ""
        self._arrives_at = 0.0
        self._pump: asyncio.Task[Any] | None = None

    async def open(self, user: RequestUser) -> tuple[int, Any]:
        """Return code and headers, once they are known."""
        delay = self.network.conditions.draw_delay()
        self.loop.call_later(delay, self.reach, lambda: self._serve(user))
        limit = self.loop.call_later(self.timeout, self.fail, "no answer in time")
        try:
            code, headers = await self.waiter
            return code, headers
        finally:
            limit.cancel()

    async def iterate(self) -> AsyncIterator[bytes]:
        """Yield the chunks as they arrive; raise `ServerUnreachableError` when the connection broke."""
        while True:
            while not self._chunks:
                if self._broken:
                    raise ServerUnreachableError(f"{self.request.path}: {self._broken}")
                await self._wait()
            chunk = self._chunks.popleft()
            if chunk is None:
                return
            yield chunk

    async def _wait(self) -> None:
        reader = self._reader = self.loop.create_future()
        timer = self.loop.call_later(self.timeout, self._break_off, "the stream was idle for too long")
        try:
            await reader
        finally:
            timer.cancel()
            self._reader = None

    def leave(self) -> None:
        """Close the connection from the side of the client."""
        self.host.connections.pop(self.number, None)
        pump, process = self._pump, self.host.process
        if pump is not None and process is not None and not pump.done():
            self.loop.call_later(self.network.conditions.draw_delay(), pump.cancel, context=process.context)

    async def _serve(self, user: RequestUser) -> None:
        app = self.host.app
        if app is None:
            return
        self._pump = asyncio.current_task()
        answer = await app.serve_in_process(to_server_request(self.request), user)
        self._later(self._open, (answer.code, merge_headers(answer)))
        if isinstance(answer.body, bytes):
            self._send(answer.body)
        else:
            async with aclosing(answer.body) as parts:  # type: ignore[type-var]
                async for part in parts:
                    if part and self.network.conditions.cuts_stream():
                        self._later(self._break_off, "the connection broke")
                        return
                    if part:
                        self._send(part)
        self.host.connections.pop(self.number, None)
        self._send(None)

    def _open(self, head: tuple[int, Any]) -> None:
        if not self.waiter.done():
            self.waiter.set_result(head)

    def _send(self, chunk: bytes | None) -> None:
        self.network.messages += 1
        self._later(self._arrive, chunk)

    def _later(self, callback: Callable[..., None], *args: Any) -> None:
        """Call when the message arrives, after all messages before it."""
        at = self.loop.time() + self.network.conditions.draw_delay()
        self._arrives_at = max(at, self._arrives_at)
        self.loop.call_at(self._arrives_at, callback, *args, context=self.loop.outside.context)

    def _arrive(self, chunk: bytes | None) -> None:
        if self._broken:
            return
        if self._held or self.network.is_cut(self.client, self.host):
            if not self._held:
                self._hold_until = self.loop.time() + MAX_RETRANSMISSION_SECONDS
                self._retry_later()
            self._held.append(chunk)
            return
        self._deliver(chunk)
        self._wake()

    def _deliver(self, chunk: bytes | None) -> None:
        if self.network.on_chunk is not None:
            self.network.on_chunk(self.number, self.client, self.request, chunk)
        self._chunks.append(chunk)

    def _retry_later(self) -> None:
        self.loop.call_later(RETRANSMISSION_SECONDS, self._retransmit, context=self.loop.outside.context)

    def _retransmit(self) -> None:
        """Deliver what was held back by a partition; after too long the connection breaks."""
        if not self.network.is_cut(self.client, self.host):
            for chunk in self._held:
                self._deliver(chunk)
            self._held.clear()
            self._wake()
        elif self.loop.time() >= self._hold_until:
            self._break_off("the connection broke")
        else:
            self._retry_later()

    def _break_off(self, why: str) -> None:
        self._broken = self._broken or why
        self._wake()

    def _break(self) -> None:
        self._later(self._break_off, "the server has crashed")
        self._later(self.fail, "the server has crashed")

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
