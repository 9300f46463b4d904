"""The framed transport against a server that the test plays, frame by frame."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from dray.client.errors import NotLeaderError, ServerUnreachableError
from dray.client.transport import TransportRequest, TransportResponse
from dray.client.transports.framed import FramedTransport
from dray.client.transports.leader_guard import LeaderGuardTransport
from dray.wire.frames import (
    STREAM_CREDIT,
    CancelFrame,
    ClosingFrame,
    ComponentFrame,
    CreditFrame,
    EndFrame,
    FrameDecoder,
    PartFrame,
    RequestFrame,
    ResponseFrame,
    StreamFrame,
    encode_frame,
)

PODS = TransportRequest("GET", "/api/v1/pods")
CREATE = TransportRequest("POST", "/api/v1/pods", body=b"{}")
WATCH = TransportRequest("GET", "/api/v1/pods", {"watch": "1"})


class Peer:
    """The other end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._decoder: FrameDecoder[ComponentFrame] = FrameDecoder(ComponentFrame)
        self._frames: list[ComponentFrame] = []

    async def take(self) -> ComponentFrame:
        while not self._frames:
            chunk = await self._reader.read(1 << 16)
            assert chunk, "the connection has ended"
            self._frames += self._decoder.feed(chunk)
        return self._frames.pop(0)

    async def request(self) -> RequestFrame:
        frame = await self.take()
        assert isinstance(frame, RequestFrame), frame
        return frame

    def send(self, *frames: msgspec.Struct) -> None:
        self.writer.write(b"".join(map(encode_frame, frames)))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FramedTransport, Peer]]:
    ours, theirs = socket.socketpair()
    peer = Peer(*await asyncio.open_unix_connection(sock=theirs))
    transport = FramedTransport(ours)
    try:
        yield transport, peer
    finally:
        await transport.close()
        peer.writer.close()


def played(work: Callable[[FramedTransport, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), connected() as (transport, peer):
            await work(transport, peer)

    asyncio.run(main())


def test_answers_find_their_requests_in_any_order() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        calls = [asyncio.create_task(transport.request(each)) for each in (PODS, CREATE)]
        first, second = await peer.request(), await peer.request()
        assert first == RequestFrame(1, "GET", PODS.path, {}, {"accept": "application/json"})
        assert second.headers == {"accept": "application/json", "content-type": "application/json"}
        assert (second.method, second.body) == ("POST", b"{}")
        peer.send(ResponseFrame(second.number, 201, {"x": "y"}, b"two"), ResponseFrame(first.number, 200, {}))
        answers = await asyncio.gather(*calls)
        assert answers == [TransportResponse(200, {}), TransportResponse(201, {"x": "y"}, b"two")]

    played(work)


def test_a_stream_is_read_as_it_comes_and_can_be_left() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(lead(transport))
            asked = await peer.request()
            assert (asked.query, asked.is_stream) == ({"watch": "1"}, True)
            peer.send(StreamFrame(asked.number, 200, {}), PartFrame(asked.number, b"one"))
            assert await peer.take() == CancelFrame(asked.number)
            peer.send(PartFrame(asked.number, b"too late"), EndFrame(asked.number))
            call = tasks.create_task(transport.request(PODS))  # what came too late harms nobody
            peer.send(ResponseFrame((await peer.request()).number, 200, {}))
            assert (await call).code == 200

    async def lead(transport: FramedTransport) -> None:
        async with transport.stream(WATCH, idle_timeout=60) as stream:
            assert stream.code == 200
            assert await anext(aiter(stream.chunks)) == b"one"

    played(work)


def test_the_end_of_a_stream_says_whether_it_is_complete() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        for problem in ("", "the store is gone"):
            call = asyncio.create_task(read(transport))
            number = (await peer.request()).number
            peer.send(StreamFrame(number, 200, {}), PartFrame(number, b"one"), EndFrame(number, problem))
            if problem:
                with pytest.raises(ServerUnreachableError, match="GET /api/v1/pods: the store is gone"):
                    await call
            else:
                assert await call == [b"one"]

    async def read(transport: FramedTransport) -> list[bytes]:
        async with transport.stream(WATCH, idle_timeout=60) as stream:
            return [part async for part in stream.chunks]

    played(work)


def test_a_reader_gives_back_credit_for_what_it_has_taken() -> None:
    part = bytes(STREAM_CREDIT // 4)

    async def work(transport: FramedTransport, peer: Peer) -> None:
        go_on = asyncio.Event()
        call = asyncio.create_task(read(transport, go_on))
        number = (await peer.request()).number
        peer.send(StreamFrame(number, 200, {}), *[PartFrame(number, part)] * 4)
        go_on.set()
        given = [await peer.take(), await peer.take()]
        assert given == [CreditFrame(number, STREAM_CREDIT // 2)] * 2
        peer.send(EndFrame(number))
        assert await call == 4

    async def read(transport: FramedTransport, go_on: asyncio.Event) -> int:
        async with transport.stream(WATCH, idle_timeout=60) as stream:
            await go_on.wait()
            return len([part async for part in stream.chunks])

    played(work)


def test_a_server_that_ignores_credit_is_disconnected() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        async with transport_stream(transport, peer) as number:
            peer.send(PartFrame(number, bytes(STREAM_CREDIT)), PartFrame(number, b"more"))
            assert "more came of stream 1 than was asked for" in await transport.wait_closed()

    played(work)


@asynccontextmanager
async def transport_stream(transport: FramedTransport, peer: Peer) -> AsyncIterator[int]:
    """The number of a stream that is open and not read."""
    is_open, done = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with transport.stream(WATCH, idle_timeout=60):
            is_open.set()
            await done.wait()

    holding = asyncio.create_task(hold())
    number = (await peer.request()).number
    peer.send(StreamFrame(number, 200, {}))
    await is_open.wait()
    try:
        yield number
    finally:
        done.set()
        await holding


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([ResponseFrame(7, 200, {})], "an answer to request 7, which was not sent"),
        ([ResponseFrame(0, 200, {})], "an answer to request 0, which was not sent"),
        ([PartFrame(1, b"x")], "a part of stream 1, which has not begun"),
        ([EndFrame(1)], "a part of stream 1, which has not begun"),
        ([StreamFrame(1, 200, {}), StreamFrame(1, 200, {})], "a second answer to request 1"),
        ([CancelFrame(1)], "not a frame"),
        ([ClosingFrame("no such thing")], "no such thing"),
    ],
)
def test_a_server_that_breaks_the_protocol_is_disconnected(
    frames: list[msgspec.Struct], problem: str
) -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        call = asyncio.create_task(transport.request(PODS))
        await peer.request()
        peer.send(*frames)
        if isinstance(frames[-1], ClosingFrame):
            peer.writer.close()
        with pytest.raises(ServerUnreachableError, match=problem) as failed:
            await call
        assert failed.value.sent
        assert problem in await transport.wait_closed()
        with pytest.raises(ServerUnreachableError, match=problem) as later:
            await transport.request(PODS)
        assert not later.value.sent

    played(work)


def test_nothing_in_time_is_an_error_and_the_late_answer_is_dropped() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        first = asyncio.create_task(transport.request(PODS))  # opens the connection, without a limit
        peer.send(ResponseFrame((await peer.request()).number, 200, {}))
        await first
        with pytest.raises(ServerUnreachableError, match=r"no answer to GET /api/v1/pods in 0\.01 seconds"):
            await transport.request(PODS, timeout=0.01)
        with pytest.raises(ServerUnreachableError, match=r"in 0\.01 seconds"):
            async with transport.stream(WATCH, idle_timeout=0.01):
                pytest.fail("it has not begun")
        late = [(await peer.take()).number for _ in range(4)]  # two requests, and that nobody waits for them
        assert late == [2, 2, 3, 3]
        peer.send(ResponseFrame(2, 200, {}), StreamFrame(3, 200, {}), EndFrame(3))
        call = asyncio.create_task(transport.request(CREATE))
        peer.send(ResponseFrame((await peer.request()).number, 201, {}))
        assert (await call).code == 201

    played(work)


def test_a_stream_that_falls_silent_is_an_error() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        async def read() -> None:
            async with transport.stream(WATCH, idle_timeout=0.01) as stream:
                async for _ in stream.chunks:
                    pytest.fail("nothing was sent")

        call = asyncio.create_task(read())
        number = (await peer.request()).number
        peer.send(StreamFrame(number, 200, {}))
        # On a slow machine its head may be late as well.
        with pytest.raises(ServerUnreachableError, match=r"(nothing came for|in) 0\.01 seconds"):
            await call

    played(work)


def test_a_server_that_is_gone_fails_what_waits() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        call = asyncio.create_task(transport.request(PODS))
        await peer.request()
        peer.writer.close()
        with pytest.raises(ServerUnreachableError, match="the connection to the server has ended") as failed:
            await call
        assert failed.value.sent
        assert await transport.wait_closed() == ""

    played(work)


def test_a_write_that_waited_for_the_socket_is_checked_again() -> None:
    async def work(transport: FramedTransport, peer: Peer) -> None:
        filling = TransportRequest("POST", "/fill", body=bytes(8 << 20))
        calls = [asyncio.create_task(transport.request(filling))]
        leads = True
        guarded = LeaderGuardTransport(transport, lambda: leads)
        while transport._connection.is_writable or transport._connection._last_number == 0:
            await asyncio.sleep(0)
        write = asyncio.create_task(guarded.request(CREATE))
        for _ in range(5):  # until it waits for the socket
            await asyncio.sleep(0)
        leads = False
        peer.send(ResponseFrame((await peer.request()).number, 200, {}))
        with pytest.raises(NotLeaderError):
            await write
        assert (await calls[0]).code == 200

    played(work)
