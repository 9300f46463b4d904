"""The ASGI application: authenticates, routes, authorizes and answers requests, and renders every error.

Theory of operation: every request passes the same steps in the same order: authentication, routing,
impersonation, authorization, flow control, body, endpoint, record. Requests from the same process skip
authentication and the ASGI messages and nothing else. Whatever an endpoint raises becomes a `Status` here.

Rules for this file: it knows HTTP and nothing of objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from dray.clock import Clock
from dray.errors import InputError
from dray.server.http.asgi_messages import (
    Headers,
    Receive,
    Scope,
    Send,
    get_source_address,
    new_body_too_large,
    read_body,
    read_headers,
    read_target,
    send_stream,
    send_whole,
    serve_lifespan,
)
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_internal_error,
    new_service_unavailable,
)
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import (
    ANONYMOUS_USER,
    IN_PROCESS,
    JSON,
    ApiCall,
    ApiRequest,
    ApiResponse,
    PartResult,
    RequestUser,
)
from dray.server.http.routing import Router, check_served
from dray.server.objects.identifiers import generate_request_ids
from dray.server.objects.stored_object import StoredObject
from dray.store.errors import StoreError

Peer = Mapping[str, Any]


class AccessControl(Protocol):
    """Authenticates and authorizes requests."""

    def authenticate(self, headers: Headers, peer: Peer | None, path: str) -> RequestUser:
        """The user of a request; raises an `ApiStatusError` when the credentials are not valid."""
        ...

    def impersonate(self, user: RequestUser, headers: Headers) -> RequestUser:
        """The user whose rights count: `user` itself, or the one it impersonates; raises an `ApiStatusError`
        when it may not.
        """
        ...

    def authorize(self, call: ApiCall, user: RequestUser) -> str:
        """Why a call is allowed; raises an `ApiStatusError` when it is not."""
        ...


class InProcessRequest(msgspec.Struct, frozen=True):
    """A request from a component in this process; names of headers are in lower case."""

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
    """The object in the body, when the body is its stored form."""
    parts: tuple[PartResult, ...] = ()
    """What became of the requests inside a transaction that was carried out."""


class RequestObserver(Protocol):
    """Records every request: metrics, audit, logs."""

    async def record_arrival(self, request: ApiRequest) -> ApiRequest:
        """Called when the request is authorized and complete, before it is carried out; may raise an
        `ApiStatusError`. Returns the request with what its first commit must record.
        """
        ...

    async def record_response(self, request: ApiRequest, result: RequestResult) -> None:
        """Called when the response is known, before it is sent; for a stream when it has ended."""
        ...

    def record_fault(self, request: ApiRequest, error: Exception) -> None:
        """Called on an unexpected exception."""
        ...

    def record_cutoff(self, request: ApiRequest) -> None:
        """Called when a client was disconnected because it did not read its stream."""
        ...


class FlowControl(Protocol):
    """Bounds the number of requests carried out at a time."""

    def acquire(self, call: ApiCall, user: RequestUser) -> AbstractAsyncContextManager[None]:
        """Hold a slot while the call lasts; entering raises an `ApiStatusError` when there is none."""
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
    parse_transaction: Callable[[ApiRequest], ApiRequest]
    """Finds the requests inside a transaction."""
    max_body_bytes: int = ServerLimits().max_body_bytes
    audit_ids: Iterator[str] = field(default_factory=generate_request_ids)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self.clock.monotonic()
        headers = read_headers(scope["headers"])
        path, query = read_target(scope)
        audit_id = headers.get("audit-id", "")[:64] or next(self.audit_ids)
        source = get_source_address(scope)
        request = ApiRequest(
            ApiCall(scope["method"].lower(), path), ANONYMOUS_USER, headers, b"", audit_id, source
        )
        try:
            user = self._authenticate(scope, headers, path)
            request = ApiRequest(request.call, user, headers, b"", audit_id, source)
            call = self.router.route(scope["method"], path, query)
            request = self._impersonate(ApiRequest(call, user, headers, b"", audit_id, source))
            reason = self.access_control.authorize(call, request.user)
            check_served(call)
            async with self.flow_control.acquire(call, user):
                body = await read_body(receive, headers, self.max_body_bytes)
                request = replace(request, body=body, authorization_reason=reason)
                if call.is_transaction:
                    request = self.parse_transaction(request)
                request = await self.observer.record_arrival(request)
                response = await self._answer(request)
                if isinstance(response.body, bytes):
                    await self._finish(send, request, response, started)
                    return
                await self._send_stream(send, receive, response, request)
        except ApiStatusError as error:
            await self._finish(send, request, _build_error_response(error), started, error)
            return
        except Exception as error:
            self.observer.record_fault(request, error)
            raise
        result = RequestResult(response.code, self.clock.monotonic() - started)
        await self.observer.record_response(request, result)

    async def serve_in_process(self, in_process_request: InProcessRequest, user: RequestUser) -> ApiResponse:
        """Answer a component in this process through the same steps; an error is a response, too.

        The caller closes a stream: until then it counts as open.
        """
        started, audit_id = self.clock.monotonic(), next(self.audit_ids)
        method, path, headers = (
            in_process_request.method,
            in_process_request.path,
            in_process_request.headers,
        )
        request = ApiRequest(ApiCall(method.lower(), path), user, headers, b"", audit_id, IN_PROCESS)
        try:
            call = self.router.route_parsed(method, path, in_process_request.query)
            request = self._impersonate(ApiRequest(call, user, headers, b"", audit_id, IN_PROCESS))
            reason = self.access_control.authorize(call, request.user)
            check_served(call)
            if len(in_process_request.body) > self.max_body_bytes:
                raise new_body_too_large(self.max_body_bytes)
            request = replace(
                request, body=in_process_request.body, authorization_reason=reason, has_unique_fields=True
            )
            if call.is_long_running:
                return await self._open_in_process_stream(request, started)
            async with self.flow_control.acquire(call, user):
                if call.is_transaction:
                    request = self.parse_transaction(request)
                request = await self.observer.record_arrival(request)
                response = await self._answer(request)
                await self._record_response(request, response, started)
                return response
        except ApiStatusError as error:
            response = _build_error_response(error)
            await self._record_response(request, response, started, error)
            return response

    async def _open_in_process_stream(self, request: ApiRequest, started: float) -> ApiResponse:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.flow_control.acquire(request.call, request.caller))
            request = await self.observer.record_arrival(request)
            response = await self._answer(request)
            assert not isinstance(response.body, bytes)
            first = await anext(response.body, b"")  # the stream misses no event from here on
            slot = stack.pop_all()

        async def close() -> None:
            await slot.aclose()
            result = RequestResult(response.code, self.clock.monotonic() - started)
            await self.observer.record_response(request, result)

        stream = InProcessStream(first, response.body, close)
        return ApiResponse(response.code, stream, response.content_type, response.headers)

    async def _record_response(
        self, request: ApiRequest, response: ApiResponse, started: float, error: ApiStatusError | None = None
    ) -> None:
        """Record a response whose body is complete."""
        assert isinstance(response.body, bytes)
        seconds = self.clock.monotonic() - started
        result = RequestResult(response.code, seconds, error, response.body, response.stored, response.parts)
        await self.observer.record_response(request, result)

    async def _finish(
        self,
        send: Send,
        request: ApiRequest,
        response: ApiResponse,
        started: float,
        error: ApiStatusError | None = None,
    ) -> None:
        """Record a complete response, then send it."""
        await self._record_response(request, response, started, error)
        await send_whole(send, response, request)

    async def _send_stream(
        self, send: Send, receive: Receive, response: ApiResponse, request: ApiRequest
    ) -> None:
        """Send a stream; its head is out already, so an exception is recorded and ends the connection."""
        try:
            if not await send_stream(send, receive, response, request):
                self.observer.record_cutoff(request)
        except Exception as error:
            self.observer.record_fault(request, error)

    async def _answer(self, request: ApiRequest) -> ApiResponse:
        try:
            if request.call.is_resource:
                return await self.resource_endpoint(request)
            return await self.path_endpoint(request)
        except ApiStatusError:
            raise
        except InputError as error:
            raise new_bad_request(str(error)) from None
        except StoreError as error:
            raise new_service_unavailable(f"the store does not answer: {error}") from None
        except Exception as error:
            self.observer.record_fault(request, error)
            raise new_internal_error(
                f"a fault of dray itself, noted under audit id {request.audit_id}"
            ) from error

    def _impersonate(self, request: ApiRequest) -> ApiRequest:
        """The request of the user that its headers impersonate; itself, when they impersonate nobody.

        From here on a denial is recorded with both users.
        """
        user = self.access_control.impersonate(request.user, request.headers)
        return request if user is request.user else replace(request, user=user, impersonator=request.user)

    def _authenticate(self, scope: Scope, headers: Headers, path: str) -> RequestUser:
        extensions = scope.get("extensions") or {}
        in_process_user = extensions.get("dray.user")
        if in_process_user is not None and scope.get("client") is None:
            name, groups = in_process_user
            return RequestUser(name, tuple(groups))
        peer = (extensions.get("tls") or {}).get("client_cert")
        return self.access_control.authenticate(headers, peer, path)


class InProcessStream:
    """A stream read by a component in this process; `on_close` is called once, when it closes the stream."""

    __slots__ = ("_first", "_on_close", "_parts")

    def __init__(
        self, first: bytes, parts: AsyncIterator[bytes], on_close: Callable[[], Awaitable[None]]
    ) -> None:
        self._first, self._parts, self._on_close = first, parts, on_close

    def __aiter__(self) -> InProcessStream:
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, b""
        return first or await anext(self._parts)

    async def aclose(self) -> None:
        try:
            await self._parts.aclose()  # type: ignore[attr-defined]
        finally:
            await self._on_close()


def _build_error_response(error: ApiStatusError) -> ApiResponse:
    return ApiResponse(error.code, error.encode(), JSON, error.headers)
