"""The verbs of the API on kinds: structs for closed kinds, documents for open ones.

Theory of operation: a call names a kind (its row, or the struct its objects are read as) and gets back what
the server stored, so a field that the server dropped is seen to be missing. An open kind named by its row is
read as documents; named by its struct, as that projection, which is for reading only. The version that goes
over the wire is negotiated; older ones are converted, so callers only ever see the internal form.

Rules for this file: a struct read from the server and written back as a whole erases what we do not know.
Open kinds therefore have no whole update, only patches; `amend` makes one from before and after. Patches that
are written by hand go out as they are, in the version that `served_version` names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import msgspec

from dray.api import conversion
from dray.api.codec import encode, to_document
from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind, kind_of
from dray.client.errors import Expired, NotFound, NotServed
from dray.client.object_refs import (
    EVERYTHING,
    Document,
    Selection,
    key_of,
    kind_called,
    kind_of_object,
    path_of,
    resource_version_of,
    row_of,
    uid_of,
)
from dray.client.patches import Apply, Change, amendment, pinned
from dray.client.response_decoding import Listing, Reader, is_status
from dray.client.rest_client import Caller, Habits
from dray.client.transport import JSON, Reply, Request, Stream, Transport
from dray.client.transports.leader_guard import Fence
from dray.client.version_negotiation import Served

T = TypeVar("T", bound=msgspec.Struct)
PAGE = 500
POD = kind_called("Pod")


@dataclass(frozen=True, slots=True)
class Deletion:
    """How to delete, and what must be true of the object for it."""

    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    grace: int | None = None
    dry_run: bool = False

    def document(self) -> Document:
        conditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        options: Document = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {name: value for name, value in conditions.items() if value},
            "propagationPolicy": self.propagation,
            "dryRun": ["All"] if self.dry_run else [],
        }
        options = {name: value for name, value in options.items() if value}
        return options if self.grace is None else options | {"gracePeriodSeconds": self.grace}


PLAINLY = Deletion()


class Client:
    """The API of one server."""

    def __init__(self, transport: Transport, habits: Habits | None = None) -> None:
        self.habits = habits or Habits()
        self._caller = Caller(transport, self.habits)
        self._served = Served(self._caller)
        self._readers: dict[tuple[Kind, str, bool], Reader] = {}

    @property
    def address(self) -> str:
        """Where the server is, for people."""
        return self._caller.transport.address

    async def close(self) -> None:
        """Let go of all connections."""
        await self._caller.transport.close()

    def fenced(self, allowed: Callable[[], bool]) -> Client:
        """The same server on the same connections, for writes that are sent only while they are allowed."""
        return Client(Fence(self._caller.transport, allowed), self.habits)

    async def document(self, path: str, **query: str) -> Any:
        """What the server says at any path that answers JSON, for example `/version`."""
        return read_json((await self._caller.call(Request("GET", path, query))).body)

    async def ask(self, path: str, question: Mapping[str, Any]) -> Any:
        """What the server answers to a question that it does not keep, for example an access review."""
        return read_json((await self._caller.call(Request("POST", path, body=write_json(question)))).body)

    async def served_version(self, kind: Kind | type[msgspec.Struct]) -> str:
        """The version of the kind that goes over the wire."""
        return await self._served.version(row_of(kind))

    async def serves(self, kind: Kind | type[msgspec.Struct]) -> bool:
        """Whether the server has this kind at all, in a version that we speak."""
        try:
            return await self._served.serves(row_of(kind))
        except NotServed:
            return False

    @overload
    async def get(self, kind: type[T], name: str, namespace: str = "") -> T: ...
    @overload
    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any: ...
    async def get(self, kind: Kind | type[T], name: str, namespace: str = "") -> Any:
        """One object as it is now."""
        row = row_of(kind)
        reader = await self._reader(kind)
        return reader.answer(await self._call(row, "GET", path_of(row, reader.version, namespace, name)))

    @overload
    async def list(
        self, kind: type[T], namespace: str = "", select: Selection = EVERYTHING, *, page: int = PAGE
    ) -> Listing[T]: ...
    @overload
    async def list(
        self, kind: Kind, namespace: str = "", select: Selection = EVERYTHING, *, page: int = PAGE
    ) -> Listing[Any]: ...
    async def list(
        self,
        kind: Kind | type[T],
        namespace: str = "",
        select: Selection = EVERYTHING,
        *,
        page: int = PAGE,
    ) -> Listing[Any]:
        """All objects, as they were at one moment: `resource_version` is where a watch may continue."""
        items: Listing[Any] | None = None
        try:
            async for part in self.pages(kind, namespace, select, page=page):
                if items is None:
                    items = part
                else:
                    items.items += part.items
        except Expired:
            # Reading took longer than the server remembers: ask for everything at once instead.
            async for part in self.pages(kind, namespace, select, page=0):
                items = part
        assert items is not None
        items.metadata.continue_ = ""
        return items

    async def pages(
        self,
        kind: Kind | type[msgspec.Struct],
        namespace: str = "",
        select: Selection = EVERYTHING,
        *,
        page: int = PAGE,
    ) -> AsyncIterator[Listing[Any]]:
        """All objects page by page, all as they were when the first page was read; may end in `Expired`."""
        row, reader = row_of(kind), await self._reader(kind)
        query = select.query() | ({"limit": str(page)} if page else {})
        while True:
            path = path_of(row, reader.version, namespace)
            part = reader.listing((await self._call(row, "GET", path, query)).body)
            yield part
            if not part.more:
                return
            query["continue"] = part.more

    @overload
    async def create(self, obj: T, *, dry_run: bool = False) -> T: ...
    @overload
    async def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Any: ...
    async def create(self, obj: T | Mapping[str, Any], *, dry_run: bool = False) -> Any:
        """Create an object in the namespace it names; what the server made of it."""
        kind = kind_of_object(obj)
        reader = await self._reader(kind)
        path = path_of(kind, reader.version, self._home(kind, obj))
        body = self._written(obj, reader)
        return reader.answer(await self._call(kind, "POST", path, self._writing(dry_run), body))

    async def update(self, obj: T, *, subresource: str = "", dry_run: bool = False) -> T:
        """Replace an object of a closed kind as a whole; a `Conflict` when it is no longer what was read."""
        if not isinstance(obj, msgspec.Struct):
            raise TypeError("an open object is never replaced as a whole: use `amend` or `patch`")
        kind = kind_of_object(obj)
        reader = await self._reader(kind)
        path = path_of(kind, reader.version, *key_of(obj), subresource)
        body = self._written(obj, reader)
        result: T = reader.answer(await self._call(kind, "PUT", path, self._writing(dry_run), body))
        return result

    async def update_status(self, obj: T, *, dry_run: bool = False) -> T:
        """Replace the status of an object of a closed kind."""
        return await self.update(obj, subresource="status", dry_run=dry_run)

    @overload
    async def amend(self, old: T, new: T, *, subresource: str = "", dry_run: bool = False) -> T: ...
    @overload
    async def amend(
        self, old: Mapping[str, Any], new: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False
    ) -> Any: ...
    async def amend(self, old: Any, new: Any, *, subresource: str = "", dry_run: bool = False) -> Any:
        """Write what differs, and only that; a `Conflict` when the object is no longer `old`.

        Without a difference nothing is asked of the server and `old` comes back.
        """
        kind = kind_of_object(old)
        reader = await self._reader(kind)
        patch = amendment(self._outgoing(old, reader), self._outgoing(new, reader), subresource=subresource)
        if patch is None:
            return old
        change = pinned(patch, resource_version_of(old), uid_of(old))
        namespace, name = key_of(old)
        return await self.patch(kind, name, change, namespace, subresource=subresource, dry_run=dry_run)

    async def patch(
        self,
        kind: Kind | type[T],
        name: str,
        change: Change,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        """Change what the patch says; the object as it is then."""
        row = row_of(kind)
        reader = await self._reader(row)
        if isinstance(change, Apply):
            change = Apply(self._outgoing(change.document, reader), change.manager, change.force)
        path = path_of(row, reader.version, namespace, name, subresource)
        query = self._writing(dry_run) | change.query()
        reply = await self._call(row, "PATCH", path, query, change.body(), change.content_type)
        return reader.answer(reply)

    async def delete(
        self, kind: Kind | type[T], name: str, namespace: str = "", how: Deletion = PLAINLY
    ) -> Any:
        """Delete an object; the object as the server last saw it, when it tells.

        It may still be there: while `deletionTimestamp` is set and finalizers or a grace period hold it.
        """
        row = row_of(kind)
        reader = await self._reader(row)
        path = path_of(row, reader.version, namespace, name)
        reply = await self._call(row, "DELETE", path, {}, write_json(how.document()))
        return None if is_status(reply.body) else reader.answer(reply)

    async def delete_collection(
        self,
        kind: Kind | type[T],
        namespace: str = "",
        select: Selection = EVERYTHING,
        how: Deletion = PLAINLY,
    ) -> None:
        """Delete all objects selected."""
        row = row_of(kind)
        version = await self._served.version(row)
        path = path_of(row, version, namespace)
        await self._call(row, "DELETE", path, select.query(), write_json(how.document()))

    async def bind(self, pod: str, namespace: str, node: str, *, uid: str = "") -> None:
        """Give a pod its node; a `Conflict` when it has one, or is another pod of that name."""
        metadata = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = path_of(POD, POD.version, namespace, pod, "binding")
        await self._call(POD, "POST", path, self._writing(False), write_json(binding))

    async def evict(self, pod: str, namespace: str, how: Deletion = PLAINLY) -> None:
        """Ask for a pod to go; `TooManyRequests` when a disruption budget does not allow it now."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": how.document(),
        }
        path = path_of(POD, POD.version, namespace, pod, "eviction")
        # A budget is not an overload: whether to try again is for the caller to decide.
        await self._caller.call(Request("POST", path, body=write_json(eviction)), attempts=1)

    async def open_watch(
        self, kind: Kind | type[msgspec.Struct], namespace: str, query: Mapping[str, str], *, silence: float
    ) -> tuple[Reader, AbstractAsyncContextManager[Stream]]:
        """The stream of a watch and the reader of its lines; `watch` makes events of it."""
        reader = await self._reader(kind)
        path = path_of(reader.kind, reader.version, namespace)
        request = Request("GET", path, {**query, "watch": "true"})
        return reader, self._caller.open(request, silence=silence)

    def forget_version(self, kind: Kind) -> None:
        """Ask the server again which version it speaks: it does not know the one we used."""
        self._served.forget(kind)

    def unknown_fields(self, kind: Kind | type[msgspec.Struct]) -> frozenset[str]:
        """Fields of the kind that this server has sent and we do not know; `update` would erase them."""
        row = row_of(kind)
        return frozenset().union(*(reader.unknown for (k, *_), reader in self._readers.items() if k is row))

    async def _reader(self, kind: Kind | type[msgspec.Struct]) -> Reader:
        row, projected = row_of(kind), not isinstance(kind, Kind)
        version = await self._served.version(row)
        reader = self._readers.get((row, version, projected))
        if reader is None:
            reader = self._readers[row, version, projected] = Reader(row, version, projected=projected)
        return reader

    async def _call(
        self,
        kind: Kind,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> Reply:
        try:
            return await self._caller.call(Request(method, path, query or {}, body, content_type))
        except NotFound as missing:
            if missing.of_resource:
                self.forget_version(kind)
            raise

    def _writing(self, dry_run: bool) -> dict[str, str]:
        return {"fieldManager": self.habits.manager} | ({"dryRun": "All"} if dry_run else {})

    def _home(self, kind: Kind, obj: Any) -> str:
        namespace = key_of(obj).namespace
        if kind.namespaced and not namespace:
            raise ValueError(f"{kind.name}: `metadata.namespace` is missing; say where to create it")
        return namespace

    def _written(self, obj: Any, reader: Reader) -> bytes:
        if isinstance(obj, msgspec.Struct):
            return encode(obj, reader.version)
        return write_json(self._outgoing(obj, reader))

    def _outgoing(self, obj: Any, reader: Reader) -> Document:
        """An object in the version the server speaks."""
        if isinstance(obj, msgspec.Struct):
            return to_document(obj, reader.version)
        kind, version = kind_of(obj)
        if version == reader.version:
            return dict(obj)
        return conversion.down(kind, reader.version, conversion.up(kind, version, obj))
