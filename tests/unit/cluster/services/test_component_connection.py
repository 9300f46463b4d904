"""The socket of a component: its rights, its limits, and bytes that are no frames."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.cluster.services import component_connection
from dray.cluster.services.api_server import AUDIT_FILE, RunningServer, ServerProcessOptions, open_server
from dray.cluster.services.component_connection import ComponentConnection, connect_component
from dray.server.http.requests import AUTHENTICATED, RequestUser
from dray.wire.frames import (
    LENGTH_BYTES,
    CancelFrame,
    ClosingFrame,
    CreditFrame,
    EndFrame,
    FrameDecoder,
    PartFrame,
    RequestFrame,
    ResponseFrame,
    ServerFrame,
    StreamFrame,
    encode_frame,
)

SCHEDULER = "dray:scheduler"
JSON = {"accept": "application/json", "content-type": "application/json"}


class Peer:
    """A component that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder: FrameDecoder[ServerFrame] = FrameDecoder(ServerFrame)
        self._frames: list[ServerFrame] = []

    async def take(self) -> ServerFrame | None:
        """The next frame; None when the connection has ended."""
        while not self._frames:
            chunk = await self.reader.read(1 << 16)
            if not chunk:
                return None
            self._frames += self._decoder.feed(chunk)
        return self._frames.pop(0)

    async def response(self) -> ResponseFrame:
        frame = await self.take()
        assert isinstance(frame, ResponseFrame), frame
        return frame

    def send(self, *frames: msgspec.Struct) -> None:
        self.writer.write(b"".join(map(encode_frame, frames)))


Work = Callable[[RunningServer, ComponentConnection, Peer], Awaitable[None]]


def played(folder: Path, work: Work, user: str = SCHEDULER, *groups: str) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            open_server(ServerProcessOptions(folder, "memory:", port=0)) as server,
            connected(server, RequestUser(user, (*groups, AUTHENTICATED))) as (connection, peer),
        ):
            await work(server, connection, peer)

    asyncio.run(main())


@asynccontextmanager
async def connected(
    server: RunningServer, user: RequestUser
) -> AsyncIterator[tuple[ComponentConnection, Peer]]:
    ours, theirs = socket.socketpair()
    connection = await connect_component(ours, server.app, user)
    peer = Peer(*await asyncio.open_unix_connection(sock=theirs))
    try:
        yield connection, peer
    finally:
        peer.writer.close()
        await connection.close()


def asked(number: int, method: str, path: str, document: Any = None, **query: str) -> RequestFrame:
    body = b"" if document is None else json.dumps(document).encode()
    return RequestFrame(number, method, path, query, JSON, body, "watch" in query)


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


CONFIGS = "/api/v1/namespaces/default/configmaps"
REFUSED = [
    pytest.param(asked(1, "GET", "/api/v1/namespaces/kube-system/secrets"), id="to read secrets"),
    pytest.param(asked(1, "POST", CONFIGS, config("a")), id="to write what no scheduler writes"),
    pytest.param(
        asked(1, "DELETE", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a"),
        id="to delete claims",
    ),
    pytest.param(
        RequestFrame(1, "GET", "/api/v1/nodes", {}, {**JSON, "impersonate-user": "dray:up"}), id="to pose"
    ),
    pytest.param(
        RequestFrame(1, "GET", "/api/v1/secrets", {}, {**JSON, "authorization": "Bearer x"}),
        id="with a token",
    ),
]


@pytest.mark.parametrize("frame", REFUSED)
def test_a_component_may_do_nothing_beyond_its_role(tmp_path: Path, frame: RequestFrame) -> None:
    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.send(frame)
        answer = await peer.response()
        assert answer.code == 403
        assert SCHEDULER in json.loads(answer.body)["message"]
        peer.send(asked(2, "GET", "/api/v1/nodes"))
        assert (await peer.response()).code == 200

    played(tmp_path, work)


def test_a_write_has_its_audit_lines(tmp_path: Path) -> None:
    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.send(asked(1, "POST", CONFIGS, config("a")))
        assert (await peer.response()).code == 201

    played(tmp_path, work, "ann", "system:masters")
    lines = [json.loads(line) for line in (tmp_path / AUDIT_FILE).read_text().splitlines()]
    mine = [line for line in lines if line.get("user") == "ann"]
    assert [(line["event"], line["verb"], line["path"], line["source"]) for line in mine] == [
        ("received", "create", CONFIGS, "inside"),
        ("complete", "create", CONFIGS, "inside"),
    ]


HOSTILE = [
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", "a frame has at most", id="another protocol"),
    pytest.param(b"\0\0\0\1\xc1", "not a frame", id="no MessagePack"),
    pytest.param(encode_frame(ResponseFrame(1, 200, {})), "not a frame", id="an answer"),
    pytest.param(encode_frame(asked(0, "GET", "/")), "request 0 came after request 0", id="request zero"),
    pytest.param(
        encode_frame(asked(5, "GET", "/version")) + encode_frame(asked(4, "GET", "/version")),
        "request 4 came after request 5",
        id="numbers that descend",
    ),
    pytest.param(encode_frame(CancelFrame(9)), "stream 9 was not asked for", id="an unknown stream"),
    pytest.param((1 << 30).to_bytes(LENGTH_BYTES), "a frame has at most", id="a length of a gigabyte"),
    pytest.param(
        encode_frame(asked(1, "GET", "/api/v1/nodes", watch="1")) + encode_frame(CreditFrame(1, 1)),
        "credit for 1 bytes, of which not so many were sent",
        id="credit for nothing",
    ),
]


@pytest.mark.parametrize(("text", "problem"), HOSTILE)
def test_what_is_no_frame_ends_the_connection_and_nothing_else(
    tmp_path: Path, text: bytes, problem: str
) -> None:
    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.writer.write(text)
        last: ServerFrame | None = None
        while (frame := await peer.take()) is not None:
            last = frame
        assert isinstance(last, ClosingFrame)
        assert problem in last.problem
        await connection.closed.wait()
        assert connection.problem == last.problem
        async with connected(server, RequestUser(SCHEDULER, (AUTHENTICATED,))) as (_, other):
            other.send(asked(1, "GET", "/version"))
            assert (await other.response()).code == 200

    played(tmp_path, work)


def test_an_end_within_a_frame_is_noticed(tmp_path: Path) -> None:
    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.writer.write(encode_frame(asked(1, "GET", "/version"))[:-1])
        peer.writer.close()
        await connection.closed.wait()
        assert connection.problem == "the connection ended within a frame"

    played(tmp_path, work)


def test_a_body_beyond_the_limit_is_refused_by_the_server(tmp_path: Path) -> None:
    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        body = bytes(server.app.max_body_bytes + 1)
        peer.send(RequestFrame(1, "POST", CONFIGS, {}, JSON, body))
        assert (await peer.response()).code == 413

    played(tmp_path, work, "ann", "system:masters")


def test_requests_that_arrived_are_carried_out_when_the_component_is_gone(tmp_path: Path) -> None:
    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.send(*(asked(number, "POST", CONFIGS, config(f"c{number}")) for number in range(1, 30)))
        await peer.response()
        peer.writer.close()
        await connection.close()
        async with connected(server, RequestUser("ann", ("system:masters",))) as (_, other):
            other.send(asked(1, "GET", CONFIGS))
            found = json.loads((await other.response()).body)["items"]
            assert len([item for item in found if item["metadata"]["name"].startswith("c")]) == 29

    played(tmp_path, work, "ann", "system:masters")


def test_more_requests_than_are_carried_out_at_a_time_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component_connection, "MAX_REQUESTS", 3)

    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        for number in range(1, 101):
            peer.send(asked(number, "GET", "/version"))
            if number % 10 == 0:
                await peer.writer.drain()
        assert sorted([(await peer.response()).number for _ in range(100)]) == list(range(1, 101))

    played(tmp_path, work)


def test_a_stream_waits_for_credit_and_ends_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component_connection, "STREAM_CREDIT", 10)

    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.send(asked(1, "GET", CONFIGS, watch="1"), asked(2, "POST", CONFIGS, config("a")))
        frames = [await peer.take() for _ in range(3)]
        parts = [frame for frame in frames if isinstance(frame, PartFrame)]
        assert {type(frame) for frame in frames} == {StreamFrame, ResponseFrame, PartFrame}
        peer.send(asked(3, "POST", CONFIGS, config("b")))
        assert (await peer.response()).number == 3  # and no part: there is no credit
        peer.send(CreditFrame(1, len(parts[0].body)))
        more = await peer.take()
        assert isinstance(more, PartFrame)
        assert b'"b"' in more.body
        peer.send(CancelFrame(1), asked(4, "POST", CONFIGS, config("c")))
        peer.send(CreditFrame(1, len(more.body)))  # it has ended: this harms nobody
        assert (await peer.response()).number == 4
        peer.send(asked(5, "GET", "/version"))
        assert (await peer.response()).number == 5

    played(tmp_path, work, "ann", "system:masters")


def test_a_component_that_does_not_read_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component_connection, "STREAM_SEND_SECONDS", 0.05)

    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        number = 0
        while not connection.closed.is_set():
            number += 1
            peer.send(asked(number, "GET", "/openapi/v2"))
            await asyncio.sleep(0.001)
        assert "nothing was read" in connection.problem

    played(tmp_path, work, "ann", "system:masters")


def test_a_stream_that_is_not_read_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(component_connection, "STREAM_CREDIT", 1)
    monkeypatch.setattr(component_connection, "STREAM_SEND_SECONDS", 0.05)

    async def work(server: RunningServer, connection: ComponentConnection, peer: Peer) -> None:
        peer.send(asked(1, "GET", CONFIGS, watch="1"))
        assert isinstance(await peer.take(), StreamFrame)
        peer.send(asked(2, "POST", CONFIGS, config("a")))
        assert {type(await peer.take()) for _ in range(2)} == {ResponseFrame, PartFrame}
        peer.send(asked(3, "POST", CONFIGS, config("b")))
        frames = [await peer.take() for _ in range(2)]
        assert EndFrame(1, "nothing was read for 0.05 seconds") in frames

    played(tmp_path, work, "ann", "system:masters")
