"""An API server in this process on a store in memory, and a client for it."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dray.api.json_text import read_json, write_json
from dray.api.kinds import parse_document_kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.client.transport import JSON, TransportRequest, TransportStream
from dray.clock import SystemClock
from dray.gates import GateSet
from dray.server.app import ApiServer, ApiServerOptions
from dray.server.http.application import ApiApplication
from dray.server.http.limits import ServerLimits
from dray.server.objects.stored_object import build_key, encode_document
from dray.store import Put, Store
from dray.store.memory import MemoryStore
from dray.telemetry.logs import StructuredLogger
from dray.wire import kubernetes
from dray.wire.kubernetes.decoding import PROTOBUF
from tests.support.in_process_transport import InProcessTransport

Document = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

SOON = 10.0
"""Seconds in which the background tasks of the server have finished."""

_GROUPS = {
    **dict.fromkeys(
        ("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"), "resource.k8s.io"
    ),
    "leases": "coordination.k8s.io",
    "poddisruptionbudgets": "policy",
}
_CLUSTER = frozenset({"deviceclasses", "resourceslices", "nodes", "namespaces"})


def path(
    plural: str,
    name: str = "",
    *,
    namespace: str = "default",
    version: str = "v1",
    sub: str = "",
    group: str | None = None,
) -> str:
    """The path of the objects of a kind; with `namespace=""` of all namespaces."""
    found = _GROUPS.get(plural, "") if group is None else group
    top = f"/apis/{found}/{version}" if found else f"/api/{version}"
    place = f"/namespaces/{namespace}" if namespace and plural not in _CLUSTER else ""
    return f"{top}{place}/{plural}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")


@dataclass(frozen=True)
class ServerResponse:
    """A response of the server."""

    code: int
    document: Any
    headers: Mapping[str, str]

    @property
    def warnings(self) -> str:
        return self.headers.get("warning", "")

    @property
    def reason(self) -> str:
        return str(self.document.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.document.get("message", ""))


class Api:
    """A client of a server in this process, as one user."""

    def __init__(
        self, app: ApiApplication, store: Store, user: str = "admin", groups: Sequence[str] = ()
    ) -> None:
        self.app = app
        self.store = store
        self._transport = InProcessTransport(app, user, (*groups, "system:authenticated"))

    def as_user(self, user: str, *groups: str) -> Api:
        """A client of the same server as another user."""
        return Api(self.app, self.store, user, groups)

    async def ask(
        self,
        method: str,
        where: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> ServerResponse:
        """Send a request; a body that is not bytes is sent as JSON."""
        given = {"accept": JSON, "content-type": JSON, **(headers or {})}
        sent = body if isinstance(body, bytes) else b"" if body is None else write_json(body)
        parameters = {name.rstrip("_"): str(value) for name, value in query.items()}
        accept, content = given.pop("accept"), given.pop("content-type")
        reply = await self._transport.request(
            TransportRequest(method, where, parameters, sent, content, accept, given)
        )
        return ServerResponse(
            reply.code, _read_body(reply.headers.get("content-type", ""), reply.body), reply.headers
        )

    async def get(self, where: str, **query: Any) -> Any:
        return _good(await self.ask("GET", where, **query))

    async def create(self, document: Mapping[str, Any], where: str = "", **query: Any) -> Any:
        return _good(await self.ask("POST", where or _home(document), document, **query))

    async def plant(self, document: Mapping[str, Any]) -> None:
        """Store an object as it is, without any check, as servers did that checked less."""
        kind, _ = parse_document_kind(document)
        metadata = document["metadata"]
        key = build_key(kind, metadata.get("namespace", ""), metadata["name"])
        await self.store.txn([], [Put(key, encode_document(kind, document))])

    async def put(self, document: Mapping[str, Any], where: str, **query: Any) -> Any:
        return _good(await self.ask("PUT", where, document, **query))

    async def patch(self, where: str, patch: Any, kind: str = MERGE, **query: Any) -> Any:
        return _good(await self.ask("PATCH", where, patch, headers={"content-type": kind}, **query))

    async def delete(self, where: str, options: Any = None, **query: Any) -> Any:
        return _good(await self.ask("DELETE", where, options, **query))

    async def names(self, where: str, **query: Any) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(where, **query))["items"]]

    @asynccontextmanager
    async def watch(
        self, where: str, accept: str = JSON, *, headers: Any = None, **query: Any
    ) -> AsyncIterator[Watch]:
        """The events of a watch."""
        parameters = {name: str(value) for name, value in query.items()} | {"watch": "true"}
        request = TransportRequest("GET", where, parameters, accept=accept, headers=headers or {})
        async with self._transport.stream(request, idle_timeout=SOON) as stream:
            yield Watch(stream)

    async def gone(self, where: str) -> None:
        """Wait until the object does not exist."""
        await self.until(where, lambda response: response.code == 404)

    async def until(self, where: str, is_so: Any) -> Any:
        """Wait until a response satisfies the condition."""
        now = asyncio.get_running_loop().time
        end = now() + SOON
        while not is_so(response := await self.ask("GET", where)):
            assert now() < end, f"{where} stays as it is: {response.document}"
            await asyncio.sleep(0.005)
        return response.document


class Watch:
    """The lines of a watch, one event at a time."""

    def __init__(self, stream: TransportStream) -> None:
        self.code = stream.code
        self.headers = stream.headers
        self._chunks = stream.chunks
        self._rest = b""

    async def event(self) -> Document:
        """The next event, bookmarks included."""
        while b"\n" not in self._rest:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                raise EOFError
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(read_json(line))

    async def tell(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events, without bookmarks."""
        events: list[tuple[str, str]] = []
        while len(events) < count:
            event = await self.event()
            if event["type"] != "BOOKMARK":
                events.append((event["type"], event["object"]["metadata"]["name"]))
        return events

    async def everything(self) -> list[Document]:
        """All events until the server ends the watch."""
        found = []
        while True:
            try:
                found.append(await self.event())
            except EOFError:
                return found


def _read_body(content_type: str, body: bytes) -> Any:
    if content_type.startswith(JSON):
        return read_json(body)
    if content_type == "application/octet-stream":
        return body
    return kubernetes.decode(body) if content_type.startswith(PROTOBUF) else body.decode()


def _good(response: ServerResponse) -> Any:
    assert response.code in (200, 201, 202), response.document
    return response.document


def _home(document: Mapping[str, Any]) -> str:
    plural = {"DeviceClass": "deviceclasses"}.get(document["kind"], document["kind"].lower() + "s")
    group, _, version = document["apiVersion"].rpartition("/")
    namespace = document["metadata"].get("namespace", "default")
    return path(plural, namespace=namespace, version=version, group=group)


@lru_cache(maxsize=1)
def keys() -> Path:
    """The keys of the server, generated once for all tests."""
    folder = tempfile.mkdtemp(prefix="dray-keys-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@asynccontextmanager
async def serving(
    store: Store | None = None,
    gates: GateSet | None = None,
    limits: ServerLimits | None = None,
    audit: Path | None = None,
) -> AsyncIterator[Api]:
    """A running server and a client of an administrator; a given store stays open, a given audit log stays.

    A fault inside the server fails the test, whatever its response was.
    """
    opened = store or MemoryStore()
    lines: list[str] = []

    def write_line(line: bytes) -> bool:
        lines.append(line.decode())
        return True

    with tempfile.TemporaryDirectory() as folder:
        options = ApiServerOptions(
            FeatureGateFilter(gates or GateSet.from_defaults()),
            keys(),
            audit or Path(folder) / "audit.log",
            StructuredLogger(write_line, SystemClock()),
            limits=limits or ServerLimits(),
        )
        try:
            async with ApiServer(opened, options).run() as app:
                yield Api(app, opened, groups=("system:masters",))
        finally:
            if store is None:
                await opened.close()
    assert [line for line in lines if "fault of the server" in line] == []
