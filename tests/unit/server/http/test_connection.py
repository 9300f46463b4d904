"""Connections beyond a limit are refused and closed; others are served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import uvicorn

from dray.server.http.connection import LimitedConnection, build_connection_class
from dray.server.http.limits import ServerLimits

GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
SMALL = ServerLimits(max_header_bytes=2000, max_headers=20, max_url_bytes=500, max_connections=4)


async def app(scope, receive, send) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    if scope["path"] == "/crash":
        raise ZeroDivisionError
    forged = [(b"warning", b"a\r\nset-cookie: b")] if scope["path"] == "/forged" else []
    if scope["path"] == "/length":
        forged = [(b"content-length", b"%d" % len(b"%d" % len(body)))]
    await send({"type": "http.response.start", "status": 200, "headers": forged})
    if scope["path"] == "/flood":
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
    await send({"type": "http.response.body", "body": b"%d" % len(body)})


@asynccontextmanager
async def served(limits: ServerLimits, refused: list[str]) -> AsyncIterator[int]:
    protocol = build_connection_class(LimitedConnection, limits, refused.append)
    config = uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, log_level="error"
    )
    config.load()
    state = uvicorn.server.ServerState()
    make: Callable[[], asyncio.Protocol] = lambda: protocol(config, state, {})  # noqa: E731
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for connection in list(state.connections):
            connection.transport.abort()
        server.close()
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def send_pieces(port: int, *pieces: bytes) -> tuple[int, str]:
    """Send pieces; the code and the message of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        return await answer(reader)
    except ConnectionError:
        return 0, ""
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    code = int(head.split()[1])
    if code == 200:
        return code, ""
    body = json.loads(await reader.read())
    assert (body["kind"], body["code"]) == ("Status", code)
    assert "connection: close" in head
    return code, body["message"]


def run(test, limits: ServerLimits = SMALL) -> list[str]:
    refused: list[str] = []

    async def main() -> None:
        async with asyncio.timeout(20), served(limits, refused) as port:
            await test(port)
            assert (await send_pieces(port, GET))[0] == 200, "the others are served"

    asyncio.run(main())
    return refused


@pytest.mark.parametrize(
    ("pieces", "code", "limit"),
    [
        ([b"GET /" + b"a" * 600 + b" HTTP/1.1\r\nhost: x\r\n\r\n"], 414, "max_url_bytes"),
        ([b"GET /x HTTP/1.1\r\n" + b"a: b\r\n" * 30 + b"\r\n"], 431, "max_headers"),
        ([b"GET /x HTTP/1.1\r\na: " + b"b" * 3000 + b"\r\n\r\n"], 431, "max_header_bytes"),
        ([b"GET /x HTTP/1.1\r\na: ", *([b"b" * 400] * 8)], 431, "max_header_bytes"),
        ([b"GET /x HTTP/1.1\r\n" + (b"a: " + b"b" * 500 + b"\r\n") * 5], 431, "max_header_bytes"),
    ],
)
def test_a_head_beyond_a_limit_is_refused_and_the_connection_closed(pieces, code, limit):
    async def test(port):
        assert (await send_pieces(port, *pieces))[0] == code

    assert run(test) == [limit]


def test_requests_within_the_limits_are_served_one_after_another_and_together():
    async def test(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert (await answer(reader))[0] == 200
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(GET + GET)
        for _ in range(2):
            assert (await answer(reader))[0] == 200
            await reader.readuntil(b"0\r\n\r\n")
        writer.close()

    assert run(test) == []


def test_connections_beyond_the_limit_are_refused():
    async def test(port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        await asyncio.sleep(0.05)
        code, text = await send_pieces(port)
        assert (code, text) == (503, "4 connections are open, no more are served")
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.05)

    assert run(test) == ["max_connections"]


def test_a_request_that_does_not_arrive_in_time_is_refused():
    async def test(port):
        beginnings = (b"", b"\r\nhost: x", b"\r\ncontent-length: 9\r\n\r\nab")
        for beginning in beginnings:
            begun = b"PUT /x HTTP/1.1" + beginning
            code, text = await send_pieces(port, begun)
            assert (code, text) == (408, "a request must arrive within 0.1 seconds")

    assert run(test, replace(SMALL, request_seconds=0.1)) == ["request_seconds"] * 3


def test_a_connection_without_a_request_is_closed():
    async def test(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()

    assert run(test, replace(SMALL, idle_seconds=0.1)) == ["idle_seconds"]


def test_a_client_that_does_not_read_is_disconnected():
    async def test(port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(GET.replace(b"/x", b"/flood"))
        await asyncio.sleep(0.6)
        writer.close()

    assert run(test, replace(SMALL, stalled_seconds=0.2)) == ["stalled_seconds"]


async def raw(port: int, *pieces: bytes, until: bytes = b"0\r\n\r\n") -> bytes:
    """Send pieces, read until something comes or the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.01)
    try:
        return await reader.readuntil(until)
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    finally:
        writer.close()


@pytest.mark.parametrize("path", [b"/crash", b"/forged"])
def test_a_fault_of_the_application_is_a_500_and_the_end_of_the_connection(path, caplog):
    async def test(port):
        said = await raw(port, GET.replace(b"/x", path), until=b"never")
        assert said.startswith(b"HTTP/1.1 500 ")
        assert b"set-cookie" not in said

    run(test)
    assert "the application failed" in caplog.text


def test_a_body_comes_whole_however_it_is_sent():
    async def test(port):
        head = b"PUT /x HTTP/1.1\r\nhost: x\r\n"
        sized = head + b"content-length: 200000\r\n\r\n"
        assert b"\r\n200000\r\n" in await raw(port, sized, *([b"x" * 20_000] * 10))
        chunked = head + b"transfer-encoding: chunked\r\n\r\n"
        assert b"\r\n6\r\n" in await raw(port, chunked, b"3\r\nabc\r\n", b"3\r\ndef\r\n0\r\n\r\n")

    assert run(test) == []


def test_expect_100_continue_is_answered():
    async def test(port):
        head = b"PUT /x HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"
        said = await raw(port, head, b"abc")
        assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")

    assert run(test) == []


def test_the_response_to_head_has_no_body():
    async def test(port):
        said = await raw(
            port, b"HEAD /length HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", until=b"never"
        )
        assert b"content-length: 1\r\n" in said
        assert said.endswith(b"\r\n\r\n")

    assert run(test) == []


def test_a_response_of_known_length_is_not_chunked():
    async def test(port):
        said = await raw(port, GET.replace(b"/x", b"/length"), until=b"\r\n\r\n0")
        assert b"transfer-encoding" not in said

    assert run(test) == []


@pytest.mark.parametrize("ending", [b" HTTP/1.0\r\n\r\n", b" HTTP/1.1\r\nconnection: close\r\n\r\n"])
def test_connection_close_closes_the_connection(ending):
    async def test(port):
        said = await raw(port, b"GET /length" + ending, until=b"never")
        assert b"connection: close\r\n" in said
        assert said.endswith(b"\r\n\r\n0")

    assert run(test) == []


def test_a_request_that_is_not_http_is_a_400():
    async def test(port):
        assert (await raw(port, b"\x16\x03\x01 hello\r\n\r\n", until=b"never")).startswith(b"HTTP/1.1 400 ")

    run(test)
