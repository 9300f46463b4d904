"""The requests of writes: what is sent to create, change, delete or bind an object.

Theory of operation: a write is built in the version that the server serves. `Client` sends one at a time; a
transaction (`dray.client.transactions`) sends several in one call.

Rules for this file: nothing is written here; at most the server is asked which version it serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api import conversion
from dray.api.codec import encode, to_document
from dray.api.json_text import write_json
from dray.api.kinds import Kind, parse_document_kind
from dray.client.object_refs import (
    Document,
    ObjectKey,
    build_path,
    get_key,
    get_kind,
    get_object_kind,
    get_resource_version,
    get_uid,
    resolve_kind,
)
from dray.client.patches import ApplyPatch, ObjectPatch, add_preconditions, build_merge_patch
from dray.client.response_decoding import ResponseDecoder, is_status
from dray.client.rest_client import RestClient
from dray.client.transport import JSON, TransportRequest, TransportResponse
from dray.client.version_negotiation import VersionNegotiator

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


class ResponseDecoders:
    """The decoders of all kinds, each in the version that the server serves."""

    def __init__(self, rest_client: RestClient) -> None:
        self.negotiator = VersionNegotiator(rest_client)
        self._decoders: dict[tuple[Kind, str, bool], ResponseDecoder] = {}

    async def get(self, kind: Kind | type[msgspec.Struct]) -> ResponseDecoder:
        row, projected = resolve_kind(kind), not isinstance(kind, Kind)
        version = await self.negotiator.get_version(row)
        decoder = self._decoders.get((row, version, projected))
        if decoder is None:
            decoder = self._decoders[row, version, projected] = ResponseDecoder(
                row, version, projected=projected
            )
        return decoder

    def list_unknown_fields(self, kind: Kind) -> frozenset[str]:
        """List the fields of a kind that the server has sent and we do not know."""
        return frozenset().union(
            *(decoder.unknown_fields for (row, *_), decoder in self._decoders.items() if row is kind)
        )


class ObjectWrite(msgspec.Struct, frozen=True):
    """One write, and the decoder of its response; None when the response is no object."""

    kind: Kind
    key: ObjectKey
    """The object that is written; its name is empty when the server is to choose one."""
    request: TransportRequest
    decoder: ResponseDecoder | None = None
    patch: ObjectPatch | None = None
    """What a PATCH applies, in the version that the server serves."""

    def decode_response(self, response: TransportResponse) -> Any:
        """Return the object as the server stored it; None when the server does not send it."""
        if self.decoder is None or (self.request.method == "DELETE" and is_status(response.body)):
            return None
        return self.decoder.decode_response(response)


class WriteRequests:
    """Builds the requests of writes in the name of one field manager."""

    def __init__(self, decoders: ResponseDecoders, field_manager: str) -> None:
        self._decoders = decoders
        self._query = {"fieldManager": field_manager}

    async def create(self, obj: Any, *, dry_run: bool = False) -> ObjectWrite:
        """Build the creation of an object in the namespace it names."""
        kind = get_object_kind(obj)
        decoder = await self._decoders.get(kind)
        key = _get_namespaced_key(kind, obj)
        path = build_path(kind, decoder.version, key.namespace)
        body = encode_object(obj, decoder.version)
        request = TransportRequest("POST", path, self._build_query(dry_run), body)
        return ObjectWrite(kind, key, request, decoder)

    async def update(self, obj: Any, *, subresource: str = "", dry_run: bool = False) -> ObjectWrite:
        """Build the replacement of an object of a closed kind."""
        if not isinstance(obj, msgspec.Struct):
            raise TypeError("an open object is never replaced as a whole: use `patch_changes` or `patch`")
        kind = get_object_kind(obj)
        decoder = await self._decoders.get(kind)
        key = get_key(obj)
        path = build_path(kind, decoder.version, *key, subresource)
        body = encode_object(obj, decoder.version)
        request = TransportRequest("PUT", path, self._build_query(dry_run), body)
        return ObjectWrite(kind, key, request, decoder)

    async def patch_changes(
        self, old: Any, new: Any, *, subresource: str = "", dry_run: bool = False
    ) -> ObjectWrite | None:
        """Build the patch from `old`, in this version, to `new`; None without a difference."""
        kind = get_object_kind(old)
        version = (await self._decoders.get(kind)).version
        patch = build_merge_patch(
            to_served_version(old, version), to_served_version(new, version), subresource=subresource
        )
        if patch is None:
            return None
        change = add_preconditions(patch, get_resource_version(old), get_uid(old))
        namespace, name = get_key(old)
        return await self.patch(kind, name, change, namespace, subresource=subresource, dry_run=dry_run)

    async def patch(
        self,
        kind: Kind | type[msgspec.Struct],
        name: str,
        patch: ObjectPatch,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> ObjectWrite:
        """Build the application of a patch."""
        row = resolve_kind(kind)
        decoder = await self._decoders.get(row)
        if isinstance(patch, ApplyPatch):
            patch = ApplyPatch(
                to_served_version(patch.document, decoder.version), patch.field_manager, patch.force
            )
        path = build_path(row, decoder.version, namespace, name, subresource)
        query = self._build_query(dry_run) | patch.build_query()
        request = TransportRequest("PATCH", path, query, patch.encode_body(), patch.content_type)
        return ObjectWrite(row, ObjectKey(namespace, name), request, decoder, patch)

    async def delete(
        self,
        kind: Kind | type[msgspec.Struct],
        name: str,
        namespace: str = "",
        options: DeleteOptions = DEFAULT_DELETE_OPTIONS,
    ) -> ObjectWrite:
        """Build the deletion of an object."""
        decoder = await self._decoders.get(resolve_kind(kind))
        path = build_path(decoder.kind, decoder.version, namespace, name)
        request = TransportRequest("DELETE", path, {}, write_json(options.to_document()))
        return ObjectWrite(decoder.kind, ObjectKey(namespace, name), request, decoder)

    async def bind(self, pod: str, namespace: str, node: str, *, uid: str = "") -> ObjectWrite:
        """Build the binding of a pod to a node."""
        body = encode_binding(pod, namespace, node, uid)
        path = build_path(POD_KIND, POD_KIND.version, namespace, pod, "binding")
        request = TransportRequest("POST", path, self._build_query(False), body, JSON)
        return ObjectWrite(POD_KIND, ObjectKey(namespace, pod), request)

    def _build_query(self, dry_run: bool) -> dict[str, str]:
        return {**self._query, "dryRun": "All"} if dry_run else self._query


def _get_namespaced_key(kind: Kind, obj: Any) -> ObjectKey:
    key = get_key(obj)
    if kind.namespaced and not key.namespace:
        raise ValueError(f"{kind.name}: `metadata.namespace` is missing; say where to create it")
    return key


def encode_object(obj: Any, version: str) -> bytes:
    """Encode a struct or a document in the served version."""
    if isinstance(obj, msgspec.Struct):
        return encode(obj, version)
    return write_json(to_served_version(obj, version))


def to_served_version(obj: Any, version: str) -> Document:
    """Return a struct or a document as a document in the served version."""
    if isinstance(obj, msgspec.Struct):
        return to_document(obj, version)
    kind, own_version = parse_document_kind(obj)
    if own_version == version:
        return dict(obj)
    internal = conversion.convert_to_internal(kind, own_version, obj)
    return conversion.convert_from_internal(kind, version, internal)


def encode_binding(pod: str, namespace: str, node: str, uid: str) -> bytes:
    """Encode the binding of a pod to a node."""
    metadata = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return write_json(binding)


def encode_eviction(pod: str, namespace: str, delete_options: Mapping[str, Any]) -> bytes:
    """Encode the eviction of a pod."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": delete_options,
    }
    return write_json(eviction)
