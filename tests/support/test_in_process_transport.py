"""The transport to an ASGI application in this process."""

from __future__ import annotations

import asyncio

import pytest

from dray.client.errors import ServerUnreachableError
from dray.client.transport import TransportRequest
from tests.support.in_process_transport import MAX_QUEUED_CHUNKS, InProcessTransport
from tests.unit.client.fakeapi import FakeApi, FakeResponse, forever


async def test_a_request_arrives_as_it_was_made():
    api = FakeApi()
    api.answer("POST", "/a b/ü", FakeResponse(b"made", 201, {"X-One": "1"}))
    request = TransportRequest(
        "POST", "/a%20b/%C3%BC", {"q": "x=y & z"}, b"{}", "application/x", headers={"User-Agent": "me"}
    )
    reply = await InProcessTransport(api, "ann", ("dev", "ops")).request(request)
    assert (reply.code, reply.headers, reply.body) == (201, {"x-one": "1"}, b"made")
    asked = api.asked[0]
    assert asked.query == {"q": "x=y & z"}
    assert asked.headers == {
        "accept": "application/json",
        "content-type": "application/x",
        "content-length": "2",
        "user-agent": "me",
    }
    assert asked.scope["raw_path"] == b"/a%20b/%C3%BC"
    assert asked.scope["client"] is None
    assert asked.scope["extensions"] == {"dray.user": ("ann", ("dev", "ops"))}


async def test_leaving_a_stream_ends_the_application():
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(forever(b"one")))
    async with InProcessTransport(api, "u").stream(TransportRequest("GET", "/x"), idle_timeout=5) as stream:
        assert stream.code == 200
        assert await anext(aiter(stream.chunks)) == b"one"
    assert api.left == 1


async def test_an_application_that_nobody_reads_has_to_wait():
    sent = 0

    async def eager():
        nonlocal sent
        while True:
            sent += 1
            yield b"x"

    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(eager()))
    async with InProcessTransport(api, "u").stream(TransportRequest("GET", "/x"), idle_timeout=5) as stream:
        await asyncio.sleep(0.01)
        assert sent <= MAX_QUEUED_CHUNKS + 2
        assert await anext(aiter(stream.chunks)) == b"x"


async def test_an_application_learns_that_its_reader_left():
    told: list[str] = []

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            told.append((await receive())["type"])
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async with InProcessTransport(app, "u").stream(TransportRequest("GET", "/x"), idle_timeout=5):
        await asyncio.sleep(0)
    assert told == ["cancelled"] or told == ["http.disconnect"]


async def test_an_idle_stream_fails_before_and_after_the_response_head():
    async def mute(scope, receive, send):
        await asyncio.Event().wait()

    with pytest.raises(ServerUnreachableError, match="said nothing"):
        async with InProcessTransport(mute, "u").stream(TransportRequest("GET", "/x"), idle_timeout=0.01):
            pytest.fail("there is no head")
    with pytest.raises(ServerUnreachableError, match=r"no answer to GET /x in 0\.01 seconds"):
        await InProcessTransport(mute, "u").request(TransportRequest("GET", "/x"), timeout=0.01)


async def test_a_fault_of_the_application_is_not_hidden():
    async def broken(scope, receive, send):
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await InProcessTransport(broken, "u").request(TransportRequest("GET", "/x"))
    with pytest.raises(TimeoutError, match="mine"):
        async with InProcessTransport(broken, "u").stream(TransportRequest("GET", "/x"), idle_timeout=5):
            pytest.fail("there is no head")


async def test_an_application_that_answers_nothing_is_noticed():
    async def empty(scope, receive, send):
        return

    with pytest.raises(ServerUnreachableError, match="answered nothing"):
        async with InProcessTransport(empty, "u").stream(TransportRequest("GET", "/x"), idle_timeout=5):
            pytest.fail("there is no head")
    with pytest.raises(ServerUnreachableError, match="answered nothing"):
        await InProcessTransport(empty, "u").request(TransportRequest("GET", "/x"))
