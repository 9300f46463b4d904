"""The verbs of the API on kinds: structs for closed kinds, documents for open ones.

Theory of operation: a call names a kind (its row, or the struct its objects are read as) and gets back what
the server stored, so a field that the server dropped is seen to be missing. An open kind named by its row is
read as documents; named by its struct, as that projection, which is for reading only. The version that goes
over the wire is negotiated; older ones are converted, so callers only ever see the internal form.

Rules for this file: a struct read from the server and written back as a whole erases what we do not know.
Open kinds therefore have no whole update, only patches; `patch_changes` makes one from before and after.
Patches that are written by hand go out as they are, in the version that `get_served_version` names.
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
from dray.api.kinds import Kind, parse_document_kind
from dray.client.errors import KindNotServedError, NotFoundError, ResourceExpiredError
from dray.client.object_refs import (
    SELECT_ALL,
    Document,
    ObjectSelector,
    build_path,
    get_key,
    get_kind,
    get_object_kind,
    get_resource_version,
    get_uid,
    resolve_kind,
)
from dray.client.patches import ApplyPatch, ObjectPatch, add_preconditions, build_merge_patch
from dray.client.response_decoding import ObjectList, ResponseDecoder, is_status
from dray.client.rest_client import ClientOptions, RestClient
from dray.client.transport import JSON, Transport, TransportRequest, TransportResponse, TransportStream
from dray.client.transports.leader_guard import LeaderGuardTransport
from dray.client.version_negotiation import VersionNegotiator

T = TypeVar("T", bound=msgspec.Struct)
DEFAULT_PAGE_SIZE = 500
POD_KIND = get_kind("Pod")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete, and what must be true of the object for it."""

    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    grace_seconds: int | None = None
    dry_run: bool = False

    def to_document(self) -> Document:
        conditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        options: Document = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {name: value for name, value in conditions.items() if value},
            "propagationPolicy": self.propagation,
            "dryRun": ["All"] if self.dry_run else [],
        }
        options = {name: value for name, value in options.items() if value}
        return options if self.grace_seconds is None else options | {"gracePeriodSeconds": self.grace_seconds}


DEFAULT_DELETE_OPTIONS = DeleteOptions()


class Client:
    """The API of one server."""

    def __init__(self, transport: Transport, options: ClientOptions | None = None) -> None:
        self.options = options or ClientOptions()
        self._rest_client = RestClient(transport, self.options)
        self._negotiator = VersionNegotiator(self._rest_client)
        self._decoders: dict[tuple[Kind, str, bool], ResponseDecoder] = {}

    @property
    def address(self) -> str:
        """Where the server is, for people."""
        return self._rest_client.transport.address

    async def close(self) -> None:
        """Let go of all connections."""
        await self._rest_client.transport.close()

    def guard_writes(self, is_leader: Callable[[], bool]) -> Client:
        """The same server on the same connections, for writes that are sent only while they are allowed."""
        return Client(LeaderGuardTransport(self._rest_client.transport, is_leader), self.options)

    async def get_json(self, path: str, **query: str) -> Any:
        """What the server says at any path that answers JSON, for example `/version`."""
        return read_json((await self._rest_client.call(TransportRequest("GET", path, query))).body)

    async def post_json(self, path: str, document: Mapping[str, Any]) -> Any:
        """What the server answers to a question that it does not keep, for example an access review."""
        return read_json(
            (await self._rest_client.call(TransportRequest("POST", path, body=write_json(document)))).body
        )

    async def get_served_version(self, kind: Kind | type[msgspec.Struct]) -> str:
        """The version of the kind that goes over the wire."""
        return await self._negotiator.get_version(resolve_kind(kind))

    async def serves(self, kind: Kind | type[msgspec.Struct]) -> bool:
        """Whether the server has this kind at all, in a version that we speak."""
        try:
            return await self._negotiator.serves(resolve_kind(kind))
        except KindNotServedError:
            return False

    @overload
    async def get(self, kind: type[T], name: str, namespace: str = "") -> T: ...
    @overload
    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any: ...
    async def get(self, kind: Kind | type[T], name: str, namespace: str = "") -> Any:
        """One object as it is now."""
        row = resolve_kind(kind)
        reader = await self._get_decoder(kind)
        return reader.decode_response(
            await self._call(row, "GET", build_path(row, reader.version, namespace, name))
        )

    @overload
    async def list(
        self,
        kind: type[T],
        namespace: str = "",
        selector: ObjectSelector = SELECT_ALL,
        *,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> ObjectList[T]: ...
    @overload
    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        selector: ObjectSelector = SELECT_ALL,
        *,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> ObjectList[Any]: ...
    async def list(
        self,
        kind: Kind | type[T],
        namespace: str = "",
        selector: ObjectSelector = SELECT_ALL,
        *,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> ObjectList[Any]:
        """All objects, as they were at one moment: `resource_version` is where a watch may continue."""
        items: ObjectList[Any] | None = None
        try:
            async for part in self.iterate_pages(kind, namespace, selector, page_size=page_size):
                if items is None:
                    items = part
                else:
                    items.items += part.items
        except ResourceExpiredError:
            # Reading took longer than the server remembers: ask for everything at once instead.
            async for part in self.iterate_pages(kind, namespace, selector, page_size=0):
                items = part
        assert items is not None
        items.metadata.continue_ = ""
        return items

    async def iterate_pages(
        self,
        kind: Kind | type[msgspec.Struct],
        namespace: str = "",
        selector: ObjectSelector = SELECT_ALL,
        *,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[ObjectList[Any]]:
        """All objects page by page, all as they were when the first page was read; may end in
        `ResourceExpiredError`.
        """
        row, reader = resolve_kind(kind), await self._get_decoder(kind)
        query = selector.build_query() | ({"limit": str(page_size)} if page_size else {})
        while True:
            path = build_path(row, reader.version, namespace)
            part = reader.decode_list((await self._call(row, "GET", path, query)).body)
            yield part
            if not part.continue_token:
                return
            query["continue"] = part.continue_token

    @overload
    async def create(self, obj: T, *, dry_run: bool = False) -> T: ...
    @overload
    async def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Any: ...
    async def create(self, obj: T | Mapping[str, Any], *, dry_run: bool = False) -> Any:
        """Create an object in the namespace it names; what the server made of it."""
        kind = get_object_kind(obj)
        reader = await self._get_decoder(kind)
        path = build_path(kind, reader.version, self._require_namespace(kind, obj))
        body = self._encode_object(obj, reader)
        return reader.decode_response(
            await self._call(kind, "POST", path, self._build_write_query(dry_run), body)
        )

    async def update(self, obj: T, *, subresource: str = "", dry_run: bool = False) -> T:
        """Replace an object of a closed kind as a whole; a `Conflict` when it is no longer what was read."""
        if not isinstance(obj, msgspec.Struct):
            raise TypeError("an open object is never replaced as a whole: use `patch_changes` or `patch`")
        kind = get_object_kind(obj)
        reader = await self._get_decoder(kind)
        path = build_path(kind, reader.version, *get_key(obj), subresource)
        body = self._encode_object(obj, reader)
        result: T = reader.decode_response(
            await self._call(kind, "PUT", path, self._build_write_query(dry_run), body)
        )
        return result

    async def update_status(self, obj: T, *, dry_run: bool = False) -> T:
        """Replace the status of an object of a closed kind."""
        return await self.update(obj, subresource="status", dry_run=dry_run)

    @overload
    async def patch_changes(self, old: T, new: T, *, subresource: str = "", dry_run: bool = False) -> T: ...
    @overload
    async def patch_changes(
        self, old: Mapping[str, Any], new: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False
    ) -> Any: ...
    async def patch_changes(self, old: Any, new: Any, *, subresource: str = "", dry_run: bool = False) -> Any:
        """Write what differs, and only that; a `Conflict` when the object is no longer `old`.

        Without a difference nothing is asked of the server and `old` comes back.
        """
        kind = get_object_kind(old)
        reader = await self._get_decoder(kind)
        patch = build_merge_patch(
            self._to_served_version(old, reader),
            self._to_served_version(new, reader),
            subresource=subresource,
        )
        if patch is None:
            return old
        change = add_preconditions(patch, get_resource_version(old), get_uid(old))
        namespace, name = get_key(old)
        return await self.patch(kind, name, change, namespace, subresource=subresource, dry_run=dry_run)

    async def patch(
        self,
        kind: Kind | type[T],
        name: str,
        patch: ObjectPatch,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Any:
        """Change what the patch says; the object as it is then."""
        row = resolve_kind(kind)
        reader = await self._get_decoder(row)
        if isinstance(patch, ApplyPatch):
            patch = ApplyPatch(
                self._to_served_version(patch.document, reader), patch.field_manager, patch.force
            )
        path = build_path(row, reader.version, namespace, name, subresource)
        query = self._build_write_query(dry_run) | patch.build_query()
        reply = await self._call(row, "PATCH", path, query, patch.encode_body(), patch.content_type)
        return reader.decode_response(reply)

    async def delete(
        self,
        kind: Kind | type[T],
        name: str,
        namespace: str = "",
        options: DeleteOptions = DEFAULT_DELETE_OPTIONS,
    ) -> Any:
        """Delete an object; the object as the server last saw it, when it tells.

        It may still be there: while `deletionTimestamp` is set and finalizers or a grace period hold it.
        """
        row = resolve_kind(kind)
        reader = await self._get_decoder(row)
        path = build_path(row, reader.version, namespace, name)
        reply = await self._call(row, "DELETE", path, {}, write_json(options.to_document()))
        return None if is_status(reply.body) else reader.decode_response(reply)

    async def delete_collection(
        self,
        kind: Kind | type[T],
        namespace: str = "",
        selector: ObjectSelector = SELECT_ALL,
        options: DeleteOptions = DEFAULT_DELETE_OPTIONS,
    ) -> None:
        """Delete all objects selected."""
        row = resolve_kind(kind)
        version = await self._negotiator.get_version(row)
        path = build_path(row, version, namespace)
        await self._call(row, "DELETE", path, selector.build_query(), write_json(options.to_document()))

    async def bind(self, pod: str, namespace: str, node: str, *, uid: str = "") -> None:
        """Give a pod its node; a `Conflict` when it has one, or is another pod of that name."""
        metadata = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = build_path(POD_KIND, POD_KIND.version, namespace, pod, "binding")
        await self._call(POD_KIND, "POST", path, self._build_write_query(False), write_json(binding))

    async def evict(self, pod: str, namespace: str, options: DeleteOptions = DEFAULT_DELETE_OPTIONS) -> None:
        """Ask for a pod to go; `TooManyRequests` when a disruption budget does not allow it now."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": options.to_document(),
        }
        path = build_path(POD_KIND, POD_KIND.version, namespace, pod, "eviction")
        # A budget is not an overload: whether to try again is for the caller to decide.
        await self._rest_client.call(
            TransportRequest("POST", path, body=write_json(eviction)), max_attempts=1
        )

    async def open_watch(
        self,
        kind: Kind | type[msgspec.Struct],
        namespace: str,
        query: Mapping[str, str],
        *,
        idle_timeout: float,
    ) -> tuple[ResponseDecoder, AbstractAsyncContextManager[TransportStream]]:
        """The stream of a watch and the reader of its lines; `watch` makes events of it."""
        reader = await self._get_decoder(kind)
        path = build_path(reader.kind, reader.version, namespace)
        request = TransportRequest("GET", path, {**query, "watch": "true"})
        return reader, self._rest_client.open_stream(request, idle_timeout=idle_timeout)

    def forget_version(self, kind: Kind) -> None:
        """Ask the server again which version it speaks: it does not know the one we used."""
        self._negotiator.forget(kind)

    def get_unknown_fields(self, kind: Kind | type[msgspec.Struct]) -> frozenset[str]:
        """Fields of the kind that this server has sent and we do not know; `update` would erase them."""
        row = resolve_kind(kind)
        return frozenset().union(
            *(reader.unknown_fields for (k, *_), reader in self._decoders.items() if k is row)
        )

    async def _get_decoder(self, kind: Kind | type[msgspec.Struct]) -> ResponseDecoder:
        row, projected = resolve_kind(kind), not isinstance(kind, Kind)
        version = await self._negotiator.get_version(row)
        reader = self._decoders.get((row, version, projected))
        if reader is None:
            reader = self._decoders[row, version, projected] = ResponseDecoder(
                row, version, projected=projected
            )
        return reader

    async def _call(
        self,
        kind: Kind,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> TransportResponse:
        try:
            return await self._rest_client.call(
                TransportRequest(method, path, query or {}, body, content_type)
            )
        except NotFoundError as missing:
            if missing.is_unknown_resource:
                self.forget_version(kind)
            raise

    def _build_write_query(self, dry_run: bool) -> dict[str, str]:
        return {"fieldManager": self.options.field_manager} | ({"dryRun": "All"} if dry_run else {})

    def _require_namespace(self, kind: Kind, obj: Any) -> str:
        namespace = get_key(obj).namespace
        if kind.namespaced and not namespace:
            raise ValueError(f"{kind.name}: `metadata.namespace` is missing; say where to create it")
        return namespace

    def _encode_object(self, obj: Any, decoder: ResponseDecoder) -> bytes:
        if isinstance(obj, msgspec.Struct):
            return encode(obj, decoder.version)
        return write_json(self._to_served_version(obj, decoder))

    def _to_served_version(self, obj: Any, decoder: ResponseDecoder) -> Document:
        """An object in the version the server speaks."""
        if isinstance(obj, msgspec.Struct):
            return to_document(obj, decoder.version)
        kind, version = parse_document_kind(obj)
        if version == decoder.version:
            return dict(obj)
        return conversion.convert_from_internal(
            kind, decoder.version, conversion.convert_to_internal(kind, version, obj)
        )
