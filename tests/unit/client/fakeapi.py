"""A scripted API server that records its requests.

Only for what a correct server does not do: responses of 410 and 429 at will, streams that break, events that
come twice. What a correct server does is tested against a real one, in tests/contract.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from dray.client.client import Client
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from tests.support.in_process_transport import InProcessTransport


@dataclass
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    scope: Any = field(repr=False, default=None)

    @property
    def document(self):
        return json.loads(self.body)


@dataclass
class FakeResponse:
    """One answer: a body, or parts that are sent one by one. A part that is an exception is raised."""

    body: Any = b""
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Answer = FakeResponse | Callable[[ReceivedRequest], FakeResponse]


class FakeApi:
    """An ASGI application with a script: answers per method and path, used up in order, the last for ever."""

    def __init__(self) -> None:
        self.asked: list[ReceivedRequest] = []
        self.script: dict[tuple[str, str], deque[Answer]] = {}
        self.left = 0

    def answer(self, method: str, path: str, *answers: Answer) -> None:
        self.script.setdefault((method, path), deque()).extend(answers)

    def requests(self, method: str, path: str) -> list[ReceivedRequest]:
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    async def __call__(self, scope, receive, send) -> None:
        body = (await receive()).get("body", b"")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode()))
        asked = ReceivedRequest(scope["method"], scope["path"], query, headers, body, scope)
        self.asked.append(asked)
        told = self._next(asked)
        given = [(name.encode(), value.encode()) for name, value in told.headers.items()]
        await send({"type": "http.response.start", "status": told.code, "headers": given})
        try:
            await self._send(send, told.body)
        except asyncio.CancelledError:
            self.left += 1
            raise

    def _next(self, asked: ReceivedRequest) -> FakeResponse:
        answers = self.script.get((asked.method, asked.path))
        if not answers:
            return failed(404, "NotFound", "the server could not find the requested resource")
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        return answer if isinstance(answer, FakeResponse) else answer(asked)

    async def _send(self, send, body: Any) -> None:
        if isinstance(body, bytes | dict):
            whole = body if isinstance(body, bytes) else json.dumps(body).encode()
            await send({"type": "http.response.body", "body": whole})
            return
        async for part in body if hasattr(body, "__aiter__") else parts(body):
            if isinstance(part, Exception):
                raise part
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def parts(given: Iterable[Any]) -> AsyncIterator[Any]:
    for part in given:
        yield part


async def forever(*given: bytes) -> AsyncIterator[bytes]:
    """Parts, and then silence."""
    for part in given:
        yield part
    await asyncio.Event().wait()


def failed(code: int, reason: str, message: str, **more: Any) -> FakeResponse:
    """A `Status` that says no; `retry_after` also becomes a header."""
    headers = {"retry-after": str(more["retry_after"])} if "retry_after" in more else {}
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return FakeResponse(status | {"code": code, "details": more.get("details", {})}, code, headers)


class InstantTime:
    """Time that passes only by sleeping; every sleep is remembered."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    @property
    def time_source(self) -> TimeSource:
        return TimeSource(self.clock, self.sleep, lambda: 0.5)


def client_of(api: Any, **options: Any) -> Client:
    """A client of a fake, whose waits take no time."""
    return Client(
        InProcessTransport(api, "tester"),
        ClientOptions(**{"time_source": InstantTime().time_source} | options),
    )


CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
IN_DEFAULT = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def serves(api: FakeApi, *versions: str) -> FakeApi:
    """Let the fake serve claims in these versions."""
    for version in versions:
        resources = {"kind": "APIResourceList", "resources": [{"name": "resourceclaims"}]}
        api.answer("GET", f"/apis/resource.k8s.io/{version}", FakeResponse(resources))
    return api


def claim(
    name: str, version: int, uid: str = "", namespace: str = "default", **labels: str
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}


def listing(version: int, *items: dict[str, Any], more: str = "") -> FakeResponse:
    """A list as kube-apiserver writes it: items do not say what they are."""
    bare = [
        {key: value for key, value in item.items() if key not in ("apiVersion", "kind")} for item in items
    ]
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return FakeResponse({"kind": "ResourceClaimList", "metadata": metadata, "items": bare})


def line(what: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": what, "object": obj}).encode() + b"\n"


def bookmark(version: int, *, initial_end: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": "ResourceClaim", "metadata": metadata, "spec": {"requests": None}})
