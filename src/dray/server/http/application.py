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
from dray.server.http.errors import Failure, bad_request, internal, too_large, unavailable
from dray.server.http.limits import Limits
from dray.server.http.requests import INSIDE, JSON, NOBODY, Answer, Call, Request, User
from dray.server.http.routing import Routes
from dray.server.objects.identifiers import request_ids
from dray.server.objects.stored_object import Held
from dray.store.errors import StoreError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[str, str]
Peer = Mapping[str, Any]

SEND_SECONDS: Final = 30.0
"""How long a client may take to accept a part of a stream."""


class Permit(msgspec.Struct, frozen=True):
    """As whom a call is made, and why it is allowed."""

    user: User
    reason: str = ""


class Doorman(Protocol):
    """Knows who asks and what they may."""

    def identify(self, headers: Headers, peer: Peer | None, path: str) -> User:
        """Who asks; raises a `Failure` when they are not who they say."""
        ...

    def permit(self, call: Call, user: User, headers: Headers) -> Permit:
        """The permit for a call; raises a `Failure` when it is not allowed."""
        ...


class Asked(msgspec.Struct, frozen=True):
    """A request of somebody in this process; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Headers
    body: bytes = b""


class Ending(msgspec.Struct, frozen=True):
    """How a request ended, and how long it took."""

    code: int
    seconds: float
    failure: Failure | None = None
    body: bytes = b""
    held: Held | None = None
    """The object that the body tells, when it tells one just as it is kept."""


class Observer(Protocol):
    """Sees every request come and go: metrics, audit, logs."""

    async def arrived(self, request: Request) -> None:
        """Called when the request is permitted and whole, before it is carried out; may raise a `Failure`."""
        ...

    async def answered(self, request: Request, ending: Ending) -> None:
        """Called when the answer is known, before it is sent; for a stream when it has ended."""
        ...

    def broke(self, request: Request, error: Exception) -> None:
        """Called when something went wrong that nobody foresaw."""
        ...

    def cut(self, request: Request) -> None:
        """Called when a client was cut off because it did not read."""
        ...


class Turnstile(Protocol):
    """Lets so many in at a time."""

    def entered(self, call: Call, user: User) -> AbstractAsyncContextManager[None]:
        """Holds a place while the call lasts; raises a `Failure` when there is none."""
        ...


@dataclass(frozen=True)
class App:
    """The API server as an ASGI application."""

    routes: Routes
    doorman: Doorman
    turnstile: Turnstile
    observer: Observer
    resources: Callable[[Request], Awaitable[Answer]]
    paths: Callable[[Request], Awaitable[Answer]]
    clock: Clock
    body_bytes: int = Limits().max_body_bytes
    """So many bytes a body may have."""
    ids: Iterator[str] = field(default_factory=request_ids)
    """What requests are called in the audit log."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self.clock.monotonic()
        headers = _read_headers(scope["headers"])
        path, query = _target(scope)
        audit_id, source = headers.get("audit-id", "")[:64] or next(self.ids), _source(scope)
        request = Request(Call(scope["method"].lower(), path), NOBODY, headers, b"", audit_id, source)
        try:
            user = self._identity(scope, headers, path)
            request = Request(request.call, user, headers, b"", audit_id, source)
            call = self.routes.call(scope["method"], path, query)
            request = Request(call, user, headers, b"", audit_id, source)
            permit = self.doorman.permit(call, user, headers)
            async with self.turnstile.entered(call, permit.user):
                body = await _body(receive, headers, self.body_bytes)
                request = Request(call, permit.user, headers, body, audit_id, source, permit.reason)
                await self.observer.arrived(request)
                answer = await self._answer(request)
                if isinstance(answer.body, bytes):
                    await self._finish(send, request, answer, began)
                    return
                await self._stream(send, receive, answer, request)
        except Failure as refused:
            await self._finish(send, request, _told(refused), began, refused)
            return
        except Exception as broken:
            self.observer.broke(request, broken)
            raise
        await self.observer.answered(request, Ending(answer.code, self.clock.monotonic() - began))

    async def inside(self, asked: Asked, user: User) -> Answer:
        """The answer to somebody in this process, past the same stations; a failure is an answer, too.

        Whoever gets a stream closes it: until then it counts as open.
        """
        began, audit_id = self.clock.monotonic(), next(self.ids)
        request = Request(Call(asked.method.lower(), asked.path), user, asked.headers, b"", audit_id, INSIDE)
        try:
            call = self.routes.asked(asked.method, asked.path, asked.query)
            request = Request(call, user, asked.headers, b"", audit_id, INSIDE)
            permit = self.doorman.permit(call, user, asked.headers)
            if len(asked.body) > self.body_bytes:
                raise _too_much(self.body_bytes)
            request = Request(
                call, permit.user, asked.headers, asked.body, audit_id, INSIDE, permit.reason, tidy=True
            )
            if call.is_long:
                return await self._watched_inside(request, began)
            async with self.turnstile.entered(call, permit.user):
                await self.observer.arrived(request)
                answer = await self._answer(request)
                await self._noted(request, answer, began)
                return answer
        except Failure as refused:
            answer = _told(refused)
            await self._noted(request, answer, began, refused)
            return answer

    async def _watched_inside(self, request: Request, began: float) -> Answer:
        async with AsyncExitStack() as visit:
            await visit.enter_async_context(self.turnstile.entered(request.call, request.user))
            await self.observer.arrived(request)
            answer = await self._answer(request)
            assert not isinstance(answer.body, bytes)
            first = await anext(answer.body, b"")  # from here on nothing is missed
            kept = visit.pop_all()

        async def left() -> None:
            await kept.aclose()
            await self.observer.answered(request, Ending(answer.code, self.clock.monotonic() - began))

        return Answer(answer.code, Watched(first, answer.body, left), answer.content_type, answer.headers)

    async def _noted(
        self, request: Request, answer: Answer, began: float, failure: Failure | None = None
    ) -> None:
        """Put on record how a whole answer came out."""
        assert isinstance(answer.body, bytes)
        seconds = self.clock.monotonic() - began
        ending = Ending(answer.code, seconds, failure, answer.body, answer.held)
        await self.observer.answered(request, ending)

    async def _finish(
        self, send: Send, request: Request, answer: Answer, began: float, failure: Failure | None = None
    ) -> None:
        """Send a whole answer, once it is on record."""
        await self._noted(request, answer, began, failure)
        await _send_whole(send, answer, request)

    async def _stream(self, send: Send, receive: Receive, answer: Answer, request: Request) -> None:
        """Send a stream; what breaks behind its head can only be noted, and the connection ends."""
        try:
            if not await _send_stream(send, receive, answer, request):
                self.observer.cut(request)
        except Exception as broken:
            self.observer.broke(request, broken)

    async def _answer(self, request: Request) -> Answer:
        try:
            if request.call.is_resource:
                return await self.resources(request)
            return await self.paths(request)
        except Failure:
            raise
        except InputError as wrong:
            raise bad_request(str(wrong)) from None
        except StoreError as broken:
            raise unavailable(f"the store does not answer: {broken}") from None
        except Exception as broken:
            self.observer.broke(request, broken)
            raise internal(f"a fault of dray itself, noted under audit id {request.audit_id}") from broken

    def _identity(self, scope: Scope, headers: Headers, path: str) -> User:
        extensions = scope.get("extensions") or {}
        inside = extensions.get("dray.user")
        if inside is not None and scope.get("client") is None:
            name, groups = inside
            return User(name, tuple(groups))
        peer = (extensions.get("tls") or {}).get("client_cert")
        return self.doorman.identify(headers, peer, path)


class Watched:
    """A stream that somebody in this process holds; `left` is called once, when they close it."""

    __slots__ = ("_first", "_left", "_parts")

    def __init__(
        self, first: bytes, parts: AsyncIterator[bytes], left: Callable[[], Awaitable[None]]
    ) -> None:
        self._first, self._parts, self._left = first, parts, left

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> bytes:
        first, self._first = self._first, b""
        return first or await anext(self._parts)

    async def aclose(self) -> None:
        try:
            await self._parts.aclose()  # type: ignore[attr-defined]
        finally:
            await self._left()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _target(scope: Scope) -> tuple[str, str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1"), scope.get("query_string", b"").decode("latin-1")


def _read_headers(given: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name; what came several times is joined by commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in given:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _source(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else INSIDE


async def _body(receive: Receive, headers: Headers, most: int) -> bytes:
    announced = headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > most:
        raise _too_much(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("the client left before its request was whole")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_much(most)
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_much(most: int) -> Failure:
    return too_large(f"the body of a request has at most {most} bytes")


def _told(failure: Failure) -> Answer:
    return Answer(failure.code, write_json(failure.document()), JSON, failure.headers)


def _headers(answer: Answer, request: Request) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"audit-id", request.audit_id.encode("latin-1", "replace")),
        (b"content-type", answer.content_type.encode()),
    ]
    given = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers]
    if not any(name == b"cache-control" for name, _ in given):
        headers.append((b"cache-control", b"no-cache, private"))
    return headers + given


async def _send_whole(send: Send, answer: Answer, request: Request) -> None:
    assert isinstance(answer.body, bytes)
    headers = _headers(answer, request)
    headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    body = b"" if request.call.path and answer.code == 304 else answer.body
    await send({"type": "http.response.body", "body": body})


async def _send_stream(send: Send, receive: Receive, answer: Answer, request: Request) -> bool:
    """Send parts until they end or the client leaves; False when the client stopped reading."""
    assert not isinstance(answer.body, bytes)
    await send({"type": "http.response.start", "status": answer.code, "headers": _headers(answer, request)})
    progress = _Progress()
    sending = asyncio.ensure_future(_send_parts(send, answer.body, progress))
    leaving = asyncio.ensure_future(_left(receive))
    try:
        while not (sending.done() or leaving.done()):
            if (patience := progress.patience()) <= 0:
                return False
            await asyncio.wait((sending, leaving), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        return sending.result() if sending.done() else True
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


class _Progress:
    """Since when a part of a stream waits to be accepted; one clock for all parts, as most never wait."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.since: float | None = None

    def patience(self) -> float:
        """How long it is at least until a part has waited too long."""
        return SEND_SECONDS if self.since is None else self.since + SEND_SECONDS - self.now()


async def _send_parts(send: Send, parts: AsyncIterator[bytes], progress: _Progress) -> bool:
    async with aclosing(parts) as lines:  # type: ignore[type-var]
        async for line in lines:
            progress.since = progress.now()
            await send({"type": "http.response.body", "body": line, "more_body": True})
            progress.since = None
    await send({"type": "http.response.body", "body": b""})
    return True


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
