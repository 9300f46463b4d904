"""The door: HTTP in, who asks and whether they may, the answer out; every failure ends here as a `Status`.

Theory of operation: a request passes the same stations in the same order: identity, the call it stands for,
the limits, the right to make it, its body, the answer, the record. A whole answer is sent in one piece. A
stream is sent as it comes, beside a look-out for the client's leaving; a client that does not take what it is
sent in time is cut off, so that nobody's silence costs memory.

Rules for this file: it knows HTTP and nothing of objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from dray.api.json_text import write_json
from dray.clock import Clock
from dray.errors import InputError
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_internal_error,
    new_service_unavailable,
    new_too_large,
)
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import (
    ANONYMOUS_USER,
    IN_PROCESS,
    JSON,
    ApiCall,
    ApiRequest,
    ApiResponse,
    RequestUser,
)
from dray.server.http.routing import Router
from dray.server.objects.identifiers import generate_request_ids
from dray.server.objects.stored_object import StoredObject
from dray.store.errors import StoreError
from dray.tasks import cancel_and_wait

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]
Peer = Mapping[str, Any]

STREAM_SEND_SECONDS: Final = 30.0
"""How long a client may take to accept a part of a stream."""


class GrantedAccess(msgspec.Struct, frozen=True):
    """As whom a call is made, and why it is allowed."""

    user: RequestUser
    reason: str = ""


class AccessControl(Protocol):
    """Knows who asks and what they may."""

    def authenticate(self, headers: Headers, peer: Peer | None, path: str) -> RequestUser:
        """Who asks; raises a `ApiStatusError` when they are not who they say."""
        ...

    def authorize(self, call: ApiCall, user: RequestUser, headers: Headers) -> GrantedAccess:
        """The permit for a call; raises a `ApiStatusError` when it is not allowed."""
        ...


class InProcessRequest(msgspec.Struct, frozen=True):
    """A request of somebody in this process; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Headers
    body: bytes = b""


class RequestResult(msgspec.Struct, frozen=True):
    """How a request ended, and how long it took."""

    code: int
    seconds: float
    error: ApiStatusError | None = None
    body: bytes = b""
    stored: StoredObject | None = None
    """The object that the body tells, when it tells one just as it is kept."""


class RequestObserver(Protocol):
    """Sees every request come and go: metrics, audit, logs."""

    async def record_arrival(self, request: ApiRequest) -> None:
        """Called when the request is permitted and whole, before it is carried out; may raise a
        `ApiStatusError`.
        """
        ...

    async def record_response(self, request: ApiRequest, result: RequestResult) -> None:
        """Called when the answer is known, before it is sent; for a stream when it has ended."""
        ...

    def record_fault(self, request: ApiRequest, error: Exception) -> None:
        """Called when something went wrong that nobody foresaw."""
        ...

    def record_cutoff(self, request: ApiRequest) -> None:
        """Called when a client was cut off because it did not read."""
        ...


class FlowControl(Protocol):
    """Lets so many in at a time."""

    def acquire(self, call: ApiCall, user: RequestUser) -> AbstractAsyncContextManager[None]:
        """Holds a place while the call lasts; raises a `ApiStatusError` when there is none."""
        ...


@dataclass(frozen=True)
class ApiApplication:
    """The API server as an ASGI application."""

    router: Router
    access_control: AccessControl
    flow_control: FlowControl
    observer: RequestObserver
    resource_endpoint: Callable[[ApiRequest], Awaitable[ApiResponse]]
    path_endpoint: Callable[[ApiRequest], Awaitable[ApiResponse]]
    clock: Clock
    max_body_bytes: int = ServerLimits().max_body_bytes
    """So many bytes a body may have."""
    audit_ids: Iterator[str] = field(default_factory=generate_request_ids)
    """What requests are called in the audit log."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _serve_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self.clock.monotonic()
        headers = _read_headers(scope["headers"])
        path, query = _read_target(scope)
        audit_id, source = (
            headers.get("audit-id", "")[:64] or next(self.audit_ids),
            _get_source_address(scope),
        )
        request = ApiRequest(
            ApiCall(scope["method"].lower(), path), ANONYMOUS_USER, headers, b"", audit_id, source
        )
        try:
            user = self._authenticate(scope, headers, path)
            request = ApiRequest(request.call, user, headers, b"", audit_id, source)
            call = self.router.route(scope["method"], path, query)
            request = ApiRequest(call, user, headers, b"", audit_id, source)
            permit = self.access_control.authorize(call, user, headers)
            async with self.flow_control.acquire(call, permit.user):
                body = await _read_body(receive, headers, self.max_body_bytes)
                request = ApiRequest(call, permit.user, headers, body, audit_id, source, permit.reason)
                await self.observer.record_arrival(request)
                answer = await self._answer(request)
                if isinstance(answer.body, bytes):
                    await self._finish(send, request, answer, began)
                    return
                await self._send_stream_response(send, receive, answer, request)
        except ApiStatusError as refused:
            await self._finish(send, request, _build_error_response(refused), began, refused)
            return
        except Exception as broken:
            self.observer.record_fault(request, broken)
            raise
        await self.observer.record_response(
            request, RequestResult(answer.code, self.clock.monotonic() - began)
        )

    async def serve_in_process(self, in_process_request: InProcessRequest, user: RequestUser) -> ApiResponse:
        """The answer to somebody in this process, past the same stations; a failure is an answer, too.

        Whoever gets a stream closes it: until then it counts as open.
        """
        began, audit_id = self.clock.monotonic(), next(self.audit_ids)
        request = ApiRequest(
            ApiCall(in_process_request.method.lower(), in_process_request.path),
            user,
            in_process_request.headers,
            b"",
            audit_id,
            IN_PROCESS,
        )
        try:
            call = self.router.route_parsed(
                in_process_request.method, in_process_request.path, in_process_request.query
            )
            request = ApiRequest(call, user, in_process_request.headers, b"", audit_id, IN_PROCESS)
            permit = self.access_control.authorize(call, user, in_process_request.headers)
            if len(in_process_request.body) > self.max_body_bytes:
                raise _new_body_too_large(self.max_body_bytes)
            request = ApiRequest(
                call,
                permit.user,
                in_process_request.headers,
                in_process_request.body,
                audit_id,
                IN_PROCESS,
                permit.reason,
                has_unique_fields=True,
            )
            if call.is_long_running:
                return await self._open_in_process_stream(request, began)
            async with self.flow_control.acquire(call, permit.user):
                await self.observer.record_arrival(request)
                answer = await self._answer(request)
                await self._record_response(request, answer, began)
                return answer
        except ApiStatusError as refused:
            answer = _build_error_response(refused)
            await self._record_response(request, answer, began, refused)
            return answer

    async def _open_in_process_stream(self, request: ApiRequest, began: float) -> ApiResponse:
        async with AsyncExitStack() as visit:
            await visit.enter_async_context(self.flow_control.acquire(request.call, request.user))
            await self.observer.record_arrival(request)
            answer = await self._answer(request)
            assert not isinstance(answer.body, bytes)
            first = await anext(answer.body, b"")  # from here on nothing is missed
            kept = visit.pop_all()

        async def left() -> None:
            await kept.aclose()
            await self.observer.record_response(
                request, RequestResult(answer.code, self.clock.monotonic() - began)
            )

        return ApiResponse(
            answer.code, InProcessStream(first, answer.body, left), answer.content_type, answer.headers
        )

    async def _record_response(
        self, request: ApiRequest, response: ApiResponse, began: float, error: ApiStatusError | None = None
    ) -> None:
        """Put on record how a whole answer came out."""
        assert isinstance(response.body, bytes)
        seconds = self.clock.monotonic() - began
        ending = RequestResult(response.code, seconds, error, response.body, response.stored)
        await self.observer.record_response(request, ending)

    async def _finish(
        self,
        send: Send,
        request: ApiRequest,
        response: ApiResponse,
        began: float,
        error: ApiStatusError | None = None,
    ) -> None:
        """Send a whole answer, once it is on record."""
        await self._record_response(request, response, began, error)
        await _send_whole(send, response, request)

    async def _send_stream_response(
        self, send: Send, receive: Receive, response: ApiResponse, request: ApiRequest
    ) -> None:
        """Send a stream; what breaks behind its head can only be noted, and the connection ends."""
        try:
            if not await _send_stream(send, receive, response, request):
                self.observer.record_cutoff(request)
        except Exception as broken:
            self.observer.record_fault(request, broken)

    async def _answer(self, request: ApiRequest) -> ApiResponse:
        try:
            if request.call.is_resource:
                return await self.resource_endpoint(request)
            return await self.path_endpoint(request)
        except ApiStatusError:
            raise
        except InputError as wrong:
            raise new_bad_request(str(wrong)) from None
        except StoreError as broken:
            raise new_service_unavailable(f"the store does not answer: {broken}") from None
        except Exception as broken:
            self.observer.record_fault(request, broken)
            raise new_internal_error(
                f"a fault of dray itself, noted under audit id {request.audit_id}"
            ) from broken

    def _authenticate(self, scope: Scope, headers: Headers, path: str) -> RequestUser:
        extensions = scope.get("extensions") or {}
        inside = extensions.get("dray.user")
        if inside is not None and scope.get("client") is None:
            name, groups = inside
            return RequestUser(name, tuple(groups))
        peer = (extensions.get("tls") or {}).get("client_cert")
        return self.access_control.authenticate(headers, peer, path)


class InProcessStream:
    """A stream that somebody in this process holds; `on_close` is called once, when they close it."""

    __slots__ = ("_first", "_left", "_parts")

    def __init__(
        self, first: bytes, parts: AsyncIterator[bytes], on_close: Callable[[], Awaitable[None]]
    ) -> None:
        self._first, self._parts, self._left = first, parts, on_close

    def __aiter__(self) -> InProcessStream:
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, b""
        return first or await anext(self._parts)

    async def aclose(self) -> None:
        try:
            await self._parts.aclose()  # type: ignore[attr-defined]
        finally:
            await self._left()


async def _serve_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _read_target(scope: Scope) -> tuple[str, str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1"), scope.get("query_string", b"").decode("latin-1")


def _read_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name; what came several times is joined by commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in given:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _get_source_address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else IN_PROCESS


async def _read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _new_body_too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise new_bad_request("the client left before its request was whole")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _new_body_too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _new_body_too_large(max_bytes: int) -> ApiStatusError:
    return new_too_large(f"the body of a request has at most {max_bytes} bytes")


def _build_error_response(error: ApiStatusError) -> ApiResponse:
    return ApiResponse(error.code, write_json(error.to_status()), JSON, error.headers)


def _build_headers(response: ApiResponse, request: ApiRequest) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"audit-id", request.audit_id.encode("latin-1", "replace")),
        (b"content-type", response.content_type.encode()),
    ]
    given = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in response.headers]
    if not any(name == b"cache-control" for name, _ in given):
        headers.append((b"cache-control", b"no-cache, private"))
    return headers + given


async def _send_whole(send: Send, response: ApiResponse, request: ApiRequest) -> None:
    assert isinstance(response.body, bytes)
    headers = _build_headers(response, request)
    headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.code, "headers": headers})
    body = b"" if request.call.path and response.code == 304 else response.body
    await send({"type": "http.response.body", "body": body})


async def _send_stream(send: Send, receive: Receive, response: ApiResponse, request: ApiRequest) -> bool:
    """Send parts until they end or the client leaves; False when the client stopped reading."""
    assert not isinstance(response.body, bytes)
    await send(
        {"type": "http.response.start", "status": response.code, "headers": _build_headers(response, request)}
    )
    progress = _SendProgress()
    sending = asyncio.ensure_future(_send_parts(send, response.body, progress))
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        while not (sending.done() or leaving.done()):
            if (patience := progress.compute_timeout()) <= 0:
                return False
            await asyncio.wait((sending, leaving), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        return sending.result() if sending.done() else True
    finally:
        await cancel_and_wait(sending, leaving)


class _SendProgress:
    """Since when a part of a stream waits to be accepted; one clock for all parts, as most never wait."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.waiting_since: float | None = None

    def compute_timeout(self) -> float:
        """How long it is at least until a part has waited too long."""
        return (
            STREAM_SEND_SECONDS
            if self.waiting_since is None
            else self.waiting_since + STREAM_SEND_SECONDS - self.now()
        )


async def _send_parts(send: Send, parts: AsyncIterator[bytes], progress: _SendProgress) -> bool:
    async with aclosing(parts) as lines:  # type: ignore[type-var]
        async for line in lines:
            progress.waiting_since = progress.now()
            await send({"type": "http.response.body", "body": line, "more_body": True})
            progress.waiting_since = None
    await send({"type": "http.response.body", "body": b""})
    return True


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
