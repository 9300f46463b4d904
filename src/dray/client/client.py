"""The API client: the verbs of the Kubernetes API on kinds, with structs for closed kinds and documents for
open ones.

Theory of operation: a call names a kind (its row, or the struct its objects are read as) and returns what the
server stored, so a field that the server dropped is seen to be missing. An open kind named by its row is read
as documents; named by its struct, as that projection, which is for reading only. The version on the wire is
negotiated; older ones are converted, so callers only see the internal form.

Rules for this file: a struct read from the server and written back as a whole erases unknown fields. Open
kinds therefore have no whole update, only patches; `patch_changes` computes one from before and after.
Patches that are written by hand are sent as they are, in the version that `get_served_version` names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import msgspec

from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind
from dray.client.errors import InvalidObjectError, KindNotServedError, NotFoundError, ResourceExpiredError
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
from dray.client.request_encoding import encode_binding, encode_eviction, encode_object, to_served_version
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
    """Options and preconditions of a deletion."""

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
        """The address of the server, for messages."""
        return self._rest_client.transport.address

    async def close(self) -> None:
        """Close all connections."""
        await self._rest_client.transport.close()

    def guard_writes(self, is_leader: Callable[[], bool]) -> Client:
        """Return a client on the same connections that sends writes only while `is_leader` is true."""
        return Client(LeaderGuardTransport(self._rest_client.transport, is_leader), self.options)

    async def get_json(self, path: str, **query: str) -> Any:
        """Read any path that responds with JSON, for example `/version`."""
        return read_json((await self._rest_client.call(TransportRequest("GET", path, query))).body)

    async def post_json(self, path: str, document: Mapping[str, Any]) -> Any:
        """Post an object that the server does not store, for example an access review, and return the
        response.
        """
        return read_json(
            (await self._rest_client.call(TransportRequest("POST", path, body=write_json(document)))).body
        )

    async def get_served_version(self, kind: Kind | type[msgspec.Struct]) -> str:
        """Return the version of the kind on the wire."""
        return await self._negotiator.get_version(resolve_kind(kind))

    async def serves(self, kind: Kind | type[msgspec.Struct]) -> bool:
        """Whether the server serves this kind at all, in a version that we support."""
        try:
            return await self._negotiator.serves(resolve_kind(kind))
        except KindNotServedError:
            return False

    @overload
    async def get(self, kind: type[T], name: str, namespace: str = "") -> T: ...
    @overload
    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any: ...
    async def get(self, kind: Kind | type[T], name: str, namespace: str = "") -> Any:
        """Read one object."""
        row = resolve_kind(kind)
        decoder = await self._get_decoder(kind)
        return decoder.decode_response(
            await self._call(row, "GET", build_path(row, decoder.version, namespace, name))
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
        """List all objects at one version: `resource_version` is where a watch may continue."""
        items: ObjectList[Any] | None = None
        try:
            async for part in self.iterate_pages(kind, namespace, selector, page_size=page_size):
                if items is None:
                    items = part
                else:
                    items.items += part.items
        except ResourceExpiredError:
            # The pages took longer than the server keeps the version: read everything in one page instead.
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
        """List all objects page by page, all at the version of the first page; may end in
        `ResourceExpiredError`.
        """
        row, decoder = resolve_kind(kind), await self._get_decoder(kind)
        query = selector.build_query() | ({"limit": str(page_size)} if page_size else {})
        while True:
            path = build_path(row, decoder.version, namespace)
            part = decoder.decode_list((await self._call(row, "GET", path, query)).body)
            yield part
            if not part.continue_token:
                return
            query["continue"] = part.continue_token

    @overload
    async def create(self, obj: T, *, dry_run: bool = False) -> T: ...
    @overload
    async def create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Any: ...
    async def create(self, obj: T | Mapping[str, Any], *, dry_run: bool = False) -> Any:
        """Create an object in the namespace it names; return it as the server stored it."""
        kind = get_object_kind(obj)
        decoder = await self._get_decoder(kind)
        path = build_path(kind, decoder.version, self._require_namespace(kind, obj))
        body = encode_object(obj, decoder.version)
        return decoder.decode_response(
            await self._call(kind, "POST", path, self._build_write_query(dry_run), body)
        )

    async def update(self, obj: T, *, subresource: str = "", dry_run: bool = False) -> T:
        """Replace an object of a closed kind as a whole; `ConflictError` when it is no longer what was
        read.
        """
        if not isinstance(obj, msgspec.Struct):
            raise TypeError("an open object is never replaced as a whole: use `patch_changes` or `patch`")
        kind = get_object_kind(obj)
        decoder = await self._get_decoder(kind)
        path = build_path(kind, decoder.version, *get_key(obj), subresource)
        body = encode_object(obj, decoder.version)
        result: T = decoder.decode_response(
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
        """Write the differences; `ConflictError` when the object is no longer `old`.

        Without a difference no request is made and `old` is returned.
        """
        kind = get_object_kind(old)
        decoder = await self._get_decoder(kind)
        patch = build_merge_patch(
            to_served_version(old, decoder.version),
            to_served_version(new, decoder.version),
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
        """Apply a patch; return the object as the server stored it."""
        row = resolve_kind(kind)
        decoder = await self._get_decoder(row)
        if isinstance(patch, ApplyPatch):
            patch = ApplyPatch(
                to_served_version(patch.document, decoder.version), patch.field_manager, patch.force
            )
        path = build_path(row, decoder.version, namespace, name, subresource)
        query = self._build_write_query(dry_run) | patch.build_query()
        try:
            reply = await self._call(row, "PATCH", path, query, patch.encode_body(), patch.content_type)
        except InvalidObjectError as refused:
            if row.name != "ResourceClaim" or not refused.names_opaque_parameters:
                raise
            # Few claims need it, and the protobuf runtime is slow to import.
            from dray.client.claim_protobuf import repeat_patch

            repeated = await repeat_patch(self._rest_client, path, query, patch)
            if repeated is None:
                raise
            reply = repeated
        return decoder.decode_response(reply)

    async def delete(
        self,
        kind: Kind | type[T],
        name: str,
        namespace: str = "",
        options: DeleteOptions = DEFAULT_DELETE_OPTIONS,
    ) -> Any:
        """Delete an object; return the last state of it, when the server sends that.

        It may still exist: while `deletionTimestamp` is set and finalizers or a grace period hold it.
        """
        row = resolve_kind(kind)
        decoder = await self._get_decoder(row)
        path = build_path(row, decoder.version, namespace, name)
        reply = await self._call(row, "DELETE", path, {}, write_json(options.to_document()))
        return None if is_status(reply.body) else decoder.decode_response(reply)

    async def delete_collection(
        self,
        kind: Kind | type[T],
        namespace: str = "",
        selector: ObjectSelector = SELECT_ALL,
        options: DeleteOptions = DEFAULT_DELETE_OPTIONS,
    ) -> None:
        """Delete all selected objects."""
        row = resolve_kind(kind)
        version = await self._negotiator.get_version(row)
        path = build_path(row, version, namespace)
        await self._call(row, "DELETE", path, selector.build_query(), write_json(options.to_document()))

    async def bind(self, pod: str, namespace: str, node: str, *, uid: str = "") -> None:
        """Bind a pod to a node; `ConflictError` when it has one, or is another pod of that name."""
        body = encode_binding(pod, namespace, node, uid)
        path = build_path(POD_KIND, POD_KIND.version, namespace, pod, "binding")
        await self._call(POD_KIND, "POST", path, self._build_write_query(False), body)

    async def evict(self, pod: str, namespace: str, options: DeleteOptions = DEFAULT_DELETE_OPTIONS) -> None:
        """Evict a pod; `TooManyRequestsError` when a disruption budget does not allow it now."""
        body = encode_eviction(pod, namespace, options.to_document())
        path = build_path(POD_KIND, POD_KIND.version, namespace, pod, "eviction")
        # A budget is not an overload: the caller decides whether to try again.
        await self._rest_client.call(TransportRequest("POST", path, body=body), max_attempts=1)

    async def open_watch(
        self,
        kind: Kind | type[msgspec.Struct],
        namespace: str,
        query: Mapping[str, str],
        *,
        idle_timeout: float,
    ) -> tuple[ResponseDecoder, AbstractAsyncContextManager[TransportStream]]:
        """Open the stream of a watch; return it with the decoder of its lines."""
        decoder = await self._get_decoder(kind)
        path = build_path(decoder.kind, decoder.version, namespace)
        request = TransportRequest("GET", path, {**query, "watch": "true"})
        return decoder, self._rest_client.open_stream(request, idle_timeout=idle_timeout)

    def forget_version(self, kind: Kind) -> None:
        """Negotiate the version of a kind again: the server does not know the one we used."""
        self._negotiator.forget(kind)

    def get_unknown_fields(self, kind: Kind | type[msgspec.Struct]) -> frozenset[str]:
        """Return fields of the kind that this server has sent and we do not know; `update` would erase
        them.
        """
        row = resolve_kind(kind)
        return frozenset().union(
            *(decoder.unknown_fields for (k, *_), decoder in self._decoders.items() if k is row)
        )

    async def _get_decoder(self, kind: Kind | type[msgspec.Struct]) -> ResponseDecoder:
        row, projected = resolve_kind(kind), not isinstance(kind, Kind)
        version = await self._negotiator.get_version(row)
        decoder = self._decoders.get((row, version, projected))
        if decoder is None:
            decoder = self._decoders[row, version, projected] = ResponseDecoder(
                row, version, projected=projected
            )
        return decoder

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
