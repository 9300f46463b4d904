"""The transport over real sockets: credentials, TLS, and connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import warnings

import pytest
import uvicorn

from dray.client.config.client_config import (
    ClientConfig,
    ClientConfigError,
    ClientCredential,
    StaticCredentialProvider,
)
from dray.client.errors import NotLeaderError, ServerUnreachableError
from dray.client.transport import TransportRequest
from dray.client.transports.http import HttpTransport, open_keepalive_socket
from dray.client.transports.leader_guard import LeaderGuardTransport
from tests.unit.client.certificates import Authority
from tests.unit.client.fakeapi import FakeApi, FakeResponse, forever


@contextlib.asynccontextmanager
async def serving(app, tls=None):
    """The port on which an application answers."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=1)
    config.load()
    config.ssl = tls
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve([sock]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        sock.close()


@contextlib.asynccontextmanager
async def reaching(access):
    transport = HttpTransport(access)
    try:
        yield transport
    finally:
        await transport.close()


class Renewable:
    """Credentials with a next proof."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.renewals = 0

    async def get_credential(self) -> ClientCredential:
        return ClientCredential(self.tokens[0])

    async def renew_credential(self, refused: ClientCredential) -> ClientCredential:
        self.renewals += 1
        if refused.token == self.tokens[0] and len(self.tokens) > 1:
            self.tokens.pop(0)
        return ClientCredential(self.tokens[0])


async def test_requests_and_answers_over_a_socket():
    api = FakeApi()
    api.answer("POST", "/a b", FakeResponse(b"made", 201, {"Warning": '299 - "x"'}))
    async with serving(api) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}/")) as transport:
        request = TransportRequest(
            "POST", "/a%20b", {"q": "x=y&z"}, b"{}", "application/x", headers={"X-Y": "z"}
        )
        reply = await transport.request(request)
        assert (reply.code, reply.body, reply.headers["warning"]) == (201, b"made", '299 - "x"')
        assert transport.address == f"http://127.0.0.1:{port}"
    asked = api.asked[0]
    assert (asked.query, asked.body) == ({"q": "x=y&z"}, b"{}")
    assert asked.headers["content-type"] == "application/x"
    assert asked.headers["accept"] == "application/json"
    assert asked.headers["x-y"] == "z"
    assert "authorization" not in asked.headers


async def test_connections_are_kept():
    ports = set()

    async def app(scope, receive, send):
        ports.add(scope["client"][1])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with serving(app) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        for _ in range(5):
            await transport.request(TransportRequest("GET", "/x"))
    assert len(ports) == 1


async def test_a_write_that_is_not_allowed_any_more_when_the_connection_is_there_is_not_sent():
    api, answers = FakeApi(), iter((True, False))
    async with serving(api) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        with pytest.raises(NotLeaderError, match="POST /x was not sent"):
            await LeaderGuardTransport(transport, lambda: next(answers)).request(
                TransportRequest("POST", "/x", body=b"{}")
            )
        assert api.asked == []
        api.answer("POST", "/x", FakeResponse(b"made", 201))
        assert (
            await LeaderGuardTransport(transport, lambda: True).request(
                TransportRequest("POST", "/x", body=b"{}")
            )
        ).code == 201


def test_a_machine_that_is_gone_is_noticed_by_the_kernel():
    address = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))
    with open_keepalive_socket(address) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert not made.getblocking()


async def test_a_refused_token_is_renewed_and_the_request_sent_again():
    def judge(asked):
        return FakeResponse(asked.body, 200 if asked.headers["authorization"] == "Bearer new" else 401)

    api, credentials = FakeApi(), Renewable("old", "new")
    api.answer("POST", "/x", judge)
    async with serving(api) as port:
        access = ClientConfig(f"http://127.0.0.1:{port}", credential_provider=credentials)
        async with reaching(access) as transport:
            reply = await transport.request(TransportRequest("POST", "/x", body=b"hello"))
            assert (reply.code, reply.body) == (200, b"hello")
            async with transport.stream(
                TransportRequest("POST", "/x", body=b"again"), idle_timeout=5
            ) as stream:
                assert stream.code == 200
    assert credentials.renewals == 1


async def test_a_token_that_cannot_be_renewed_is_refused_once():
    api, credentials = FakeApi(), Renewable("old")
    api.answer("GET", "/x", FakeResponse(b"", 401))
    async with serving(api) as port:
        access = ClientConfig(f"http://127.0.0.1:{port}", credential_provider=credentials)
        async with reaching(access) as transport:
            assert (await transport.request(TransportRequest("GET", "/x"))).code == 401
    assert len(api.asked) == 1


async def test_redirects_are_answers():
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(b"", 302, {"Location": "/elsewhere"}))
    async with serving(api) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        assert (await transport.request(TransportRequest("GET", "/x"))).code == 302
    assert [asked.path for asked in api.asked] == ["/x"]


async def test_proxies_of_the_environment_are_not_asked(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(b"direct"))
    async with serving(api) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        assert (await transport.request(TransportRequest("GET", "/x"))).body == b"direct"


async def test_streams_come_as_they_are_sent_and_end_when_left():
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(forever(b"one\n", b"two\n")))
    async with serving(api) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        got = b""
        async with transport.stream(TransportRequest("GET", "/x"), idle_timeout=5) as stream:
            async for chunk in stream.chunks:
                got += chunk
                if got.endswith(b"two\n"):
                    break
        assert got == b"one\ntwo\n"


async def test_an_idle_stream_fails():
    async def mute(scope, receive, send):
        await asyncio.sleep(0.5)
        with contextlib.suppress(Exception):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(forever(b"one\n")))
    async with serving(api) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        with pytest.raises(ServerUnreachableError, match=r"nothing came for 0\.05 seconds"):
            async with transport.stream(TransportRequest("GET", "/x"), idle_timeout=0.05) as stream:
                assert [chunk async for chunk in stream.chunks] == []
    async with serving(mute) as port, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        with pytest.raises(ServerUnreachableError, match=r"nothing came for 0\.05 seconds") as late:
            await transport.request(TransportRequest("GET", "/x"), timeout=0.05)
        assert late.value.sent


async def _answering(reader, writer, text: bytes) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(text)
    await writer.drain()
    writer.close()


CUT = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n"


async def test_a_connection_that_breaks_may_have_done_something():
    async def reset(reader, writer):
        await _answering(reader, writer, b"")

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        with pytest.raises(ServerUnreachableError) as broken:
            await transport.request(TransportRequest("POST", "/x", body=b"{}"))
        assert broken.value.sent


async def test_a_stream_cut_off_is_not_a_stream_that_ended():
    async def cut(reader, writer):
        await _answering(reader, writer, CUT)

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
        got: list[bytes] = []

        async def read() -> None:
            async with transport.stream(TransportRequest("GET", "/x"), idle_timeout=5) as stream:
                async for chunk in stream.chunks:
                    got.append(chunk)

        with pytest.raises(ServerUnreachableError):
            await read()
    assert got == [b"one\n"]


async def test_nobody_there_means_nothing_happened():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with reaching(ClientConfig(f"http://127.0.0.1:{port}")) as transport:
            with pytest.raises(ServerUnreachableError, match=f"POST http://127.0.0.1:{port}/x") as refused:
                await transport.request(TransportRequest("POST", "/x", body=b"{}"))
    assert not refused.value.sent


@pytest.fixture(scope="module")
def authority():
    return Authority()


def server_tls(authority, tmp_path, name="localhost", days=1):
    certificate, key = authority.issue(name, days=days)
    (tmp_path / "server.pem").write_bytes(certificate + key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem")
    tls.load_verify_locations(cadata=authority.certificate.decode())
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls


async def test_certificates_are_shown_and_checked(authority, tmp_path):
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(b"safe"))
    tls = server_tls(authority, tmp_path)
    certificate, key = authority.issue("ann")
    async with serving(api, tls) as port:
        tls.verify_mode = ssl.CERT_REQUIRED
        shown = StaticCredentialProvider(ClientCredential("", certificate, key))
        access = ClientConfig(
            f"https://127.0.0.1:{port}", ca=authority.certificate, credential_provider=shown
        )
        async with reaching(access) as transport:
            assert (await transport.request(TransportRequest("GET", "/x"))).body == b"safe"
        async with reaching(ClientConfig(access.server, ca=authority.certificate)) as transport:
            with pytest.raises(ServerUnreachableError):
                await transport.request(TransportRequest("GET", "/x"))


async def test_a_server_with_an_untrusted_certificate_gets_no_request(authority, tmp_path):
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse(b"safe"))
    async with serving(api, server_tls(authority, tmp_path)) as port:
        server, other = f"https://127.0.0.1:{port}", Authority().certificate
        async with reaching(ClientConfig(server, ca=other, source="my/config")) as transport:
            with pytest.raises(
                ServerUnreachableError, match=r"certificate authority comes from `my/config`"
            ) as refused:
                await transport.request(TransportRequest("GET", "/x"))
            assert not refused.value.sent
        async with reaching(ClientConfig(server, ca=other, insecure=True)) as transport:
            assert (await transport.request(TransportRequest("GET", "/x"))).body == b"safe"
        async with reaching(
            ClientConfig(server, ca=authority.certificate, server_name="localhost")
        ) as transport:
            assert (await transport.request(TransportRequest("GET", "/x"))).body == b"safe"
        async with reaching(ClientConfig(server, ca=authority.certificate, server_name="other")) as transport:
            with pytest.raises(ServerUnreachableError, match="certificate"):
                await transport.request(TransportRequest("GET", "/x"))


async def test_an_expired_certificate_of_a_server_is_called_that(authority, tmp_path):
    async with serving(FakeApi(), server_tls(authority, tmp_path, days=-1)) as port:
        config = ClientConfig(f"https://127.0.0.1:{port}", ca=authority.certificate, source="my/config")
        async with reaching(config) as transport:
            with pytest.raises(ServerUnreachableError) as refused:
                await transport.request(TransportRequest("GET", "/x"))
    assert str(refused.value) == (
        f"no answer to GET https://127.0.0.1:{port}/x: the certificate of the server is not accepted: "
        "certificate has expired; the certificate authority comes from `my/config`"
    )


async def test_invalid_certificates_are_reported():
    for access, message in (
        (ClientConfig("https://x", ca=b"nonsense"), "certificate authority of `https://x`"),
        (
            ClientConfig(
                "https://x", credential_provider=StaticCredentialProvider(ClientCredential("", b"a", b"b"))
            ),
            "client certificate and key for",
        ),
    ):
        async with reaching(access) as transport:
            with pytest.raises(ClientConfigError, match=message):
                await transport.request(TransportRequest("GET", "/x"))


class Deaf:
    """A TLS server in a thread that answers with an endless stream, and hears nothing after that."""

    def __init__(self, tls):
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer)
        self.port = self._listener.getsockname()[1]

    def _answer(self):
        connection = self._tls.wrap_socket(self._listener.accept()[0], server_side=True)
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        self._over.wait()
        connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *broken):
        self._over.set()
        self._thread.join()
        self._listener.close()


def test_a_stream_that_is_left_closes_its_socket_also_when_the_server_does_not_answer(authority, tmp_path):
    """TLS takes leave of its peer; whoever leaves a stream, and then the loop, does not wait for that."""

    async def leave(port):
        access = ClientConfig(f"https://127.0.0.1:{port}", ca=authority.certificate)
        request = TransportRequest("GET", "/")
        async with reaching(access) as way, way.stream(request, idle_timeout=30) as stream:
            assert await anext(aiter(stream.chunks)) == b"x"

    with Deaf(server_tls(authority, tmp_path)) as server, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(leave(server.port))
        gc.collect()
    assert not [str(warning.message) for warning in told if warning.category is ResourceWarning]
