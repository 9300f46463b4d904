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
from typing import Any, TypeVar, overload

import msgspec

from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind
from dray.client.errors import InvalidObjectError, KindNotServedError, NotFoundError, ResourceExpiredError
from dray.client.object_refs import SELECT_ALL, ObjectSelector, build_path, resolve_kind
from dray.client.patches import ObjectPatch
from dray.client.response_decoding import ObjectList, ResponseDecoder
from dray.client.rest_client import ClientOptions, RestClient
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import TransactionSupport
from dray.client.transport import Transport, TransportRequest, TransportResponse, TransportStream
from dray.client.transports.leader_guard import LeaderGuardTransport
from dray.client.write_requests import (
    DEFAULT_DELETE_OPTIONS,
    POD_KIND,
    DeleteOptions,
    ObjectWrite,
    ResponseDecoders,
    WriteRequests,
    encode_eviction,
)

__all__ = ["DEFAULT_DELETE_OPTIONS", "DEFAULT_PAGE_SIZE", "Client", "DeleteOptions"]

T = TypeVar("T", bound=msgspec.Struct)
DEFAULT_PAGE_SIZE = 500


class Client:
    """The API of one server."""

    def __init__(self, transport: Transport, options: ClientOptions | None = None) -> None:
        self.options = options or ClientOptions()
        self._rest_client = RestClient(transport, self.options)
        self._decoders = ResponseDecoders(self._rest_client)
        self._negotiator = self._decoders.negotiator
        self._writes = WriteRequests(self._decoders, self.options.field_manager)
        self.transactions = TransactionSupport(self._rest_client, self._writes, self._negotiator.forget)

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
        decoder = await self._decoders.get(kind)
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
        row, decoder = resolve_kind(kind), await self._decoders.get(kind)
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
        return await self._write(await self._writes.create(obj, dry_run=dry_run))

    async def update(self, obj: T, *, subresource: str = "", dry_run: bool = False) -> T:
        """Replace an object of a closed kind as a whole; `ConflictError` when it is no longer what was
        read.
        """
        write = await self._writes.update(obj, subresource=subresource, dry_run=dry_run)
        result: T = await self._write(write)
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
        write = await self._writes.patch_changes(old, new, subresource=subresource, dry_run=dry_run)
        return old if write is None else await self._write_patch(write)

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
        write = await self._writes.patch(
            kind, name, patch, namespace, subresource=subresource, dry_run=dry_run
        )
        return await self._write_patch(write)

    async def _write_patch(self, write: ObjectWrite) -> Any:
        try:
            return await self._write(write)
        except InvalidObjectError as refused:
            of_claim = write.kind.name == "ResourceClaim"
            if write.patch is None or not of_claim or not refused.names_opaque_parameters:
                raise
            # Few claims need it, and the protobuf runtime is slow to import.
            from dray.client.claim_protobuf import repeat_patch

            repeated = await repeat_patch(
                self._rest_client, write.request.path, write.request.query, write.patch
            )
            if repeated is None:
                raise
            return write.decode_response(repeated)

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
        return await self._write(await self._writes.delete(kind, name, namespace, options))

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
        """Bind a pod to a node; `ConflictError` when it has one, or is another pod of that name.

        Bindings that are posted at the same time are sent together.
        """
        binding = ObjectTransaction().bind(pod, namespace, node, uid=uid)
        await self.transactions.commit(binding, wants_objects=False)

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
        decoder = await self._decoders.get(kind)
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
        return self._decoders.list_unknown_fields(resolve_kind(kind))

    async def _write(self, write: ObjectWrite) -> Any:
        return write.decode_response(await self._send(write.kind, write.request))

    async def _call(
        self, kind: Kind, method: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> TransportResponse:
        return await self._send(kind, TransportRequest(method, path, query or {}, body))

    async def _send(self, kind: Kind, request: TransportRequest) -> TransportResponse:
        try:
            return await self._rest_client.call(request)
        except NotFoundError as missing:
            if missing.is_unknown_resource:
                self.forget_version(kind)
            raise
