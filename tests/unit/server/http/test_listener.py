"""The listener stops in time and leaves no connection open."""

from __future__ import annotations

import asyncio
import contextlib

from dray.server.http.limits import ServerLimits
from dray.server.http.listener import HttpListener, listen


def test_an_open_request_is_aborted_after_the_grace_period(monkeypatch):
    monkeypatch.setattr("dray.server.http.listener.GRACE_SECONDS", 0.2)
    asyncio.run(_cut_off())


async def _cut_off() -> None:
    asked, stubborn = asyncio.Event(), asyncio.Event()

    async def serve(scope, receive, send):
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await stubborn.wait()

    sock = listen("127.0.0.1", 0)
    httpd = HttpListener(serve, sock, None, ServerLimits(), lambda why: None)
    serving = asyncio.create_task(httpd.run_until_stopped())
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
    await asked.wait()
    httpd.stop()
    await asyncio.wait_for(serving, 30)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 30) == b""
    assert httpd.connections == 0
    writer.close()
    stubborn.set()
    await asyncio.sleep(0)
