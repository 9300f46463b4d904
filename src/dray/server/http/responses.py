"""Response writer: objects, lists and watch events, whole, as tables or as metadata only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server import tables
from dray.server.http.content_negotiation import (
    OBJECT_FORMATS,
    PLAIN_JSON,
    WATCH_FORMATS,
    Representation,
    ResponseFormat,
    negotiate,
)
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import ApiRequest, ApiResponse
from dray.server.objects.conversion import encode_object, is_storage_version
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class ListResult:
    """Objects at a revision; `continue_token` continues the list after them."""

    objects: Sequence[StoredObject]
    revision: int
    continue_token: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            found["continue"] = self.continue_token
        if self.remaining:
            found["remainingItemCount"] = self.remaining
        return found


class ResponseWriter:
    """Writes responses in the format a client asks for."""

    def __init__(self, cache: WatchCache, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._now = now

    def write_object(
        self,
        request: ApiRequest,
        kind: Kind,
        stored: StoredObject,
        *,
        code: int = 200,
        warnings: Sequence[str] = (),
    ) -> ApiResponse:
        """Write one object."""
        form = negotiate(request.accept, OBJECT_FORMATS)
        version = request.call.version
        if form.representation is Representation.WHOLE:
            body = encode_object(kind, version, stored)
        elif form.representation is Representation.TABLE:
            listing = ListResult([stored], stored.revision)
            body = write_json(self.build_table(request, kind, listing, form))
        else:
            body = write_json(tables.build_partial_metadata(stored, form.version))
        as_stored = stored if form == PLAIN_JSON and is_storage_version(kind, version) else None
        headers = build_warning_headers(warnings) if warnings else ()
        return ApiResponse(code, form.encode(body), form.content_type, headers, as_stored)

    def write_list(self, request: ApiRequest, kind: Kind, listing: ListResult) -> ApiResponse:
        """Write a list of objects."""
        form = negotiate(request.accept, OBJECT_FORMATS)
        version = request.call.version
        if form.representation is Representation.TABLE:
            body = write_json(self.build_table(request, kind, listing, form))
        elif form.representation is Representation.WHOLE:
            body = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
                kind.name.encode(),
                kind.format_api_version(version).encode(),
                write_json(listing.metadata),
                b",".join([encode_object(kind, version, stored) for stored in listing.objects]),
            )
        else:
            document = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{form.version}",
                "metadata": listing.metadata,
                "items": [tables.build_partial_metadata(stored, form.version) for stored in listing.objects],
            }
            body = write_json(document)
        return ApiResponse(200, form.encode(body), form.content_type)

    def build_table(
        self, request: ApiRequest, kind: Kind, listing: ListResult, response_format: ResponseFormat
    ) -> Mapping[str, Any]:
        """A list of objects as a `Table`."""
        document = tables.build_table(
            kind,
            listing.objects,
            now=self._now(),
            include=request.call.query.get("includeObject", "Metadata"),
            cache=self._cache,
            version=response_format.version,
        )
        return {**document, "metadata": listing.metadata}

    def build_event_encoder(self, request: ApiRequest, kind: Kind) -> WatchEventEncoder:
        """The encoder of a watch's events, in the format its client asks for."""
        form = negotiate(request.accept, WATCH_FORMATS)
        return WatchEventEncoder(self, request, kind, form)


class WatchEventEncoder:
    """Encodes the events of one watch; watches in plain JSON share the encoded events."""

    def __init__(
        self, responses: ResponseWriter, request: ApiRequest, kind: Kind, response_format: ResponseFormat
    ) -> None:
        self._responses = responses
        self._request = request
        self._kind = kind
        self._format = response_format
        self._columns_sent = False

    @property
    def sharing_key(self) -> tuple[str, str, str] | None:
        """The key under which watches share encoded events; None when this watch shares none."""
        if self._format != PLAIN_JSON:
            return None
        return self._kind.group, self._kind.name, self._request.call.version

    @property
    def is_storage_version(self) -> bool:
        """Whether objects are sent in their stored form."""
        return self._format == PLAIN_JSON and is_storage_version(self._kind, self._request.call.version)

    def encode_event(self, type_: str, stored: StoredObject) -> bytes:
        """Encode one ADDED, MODIFIED or DELETED event."""
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), self._encode_stored(stored))

    def _encode_stored(self, stored: StoredObject) -> bytes:
        form = self._format
        if form.representation is Representation.WHOLE:
            return encode_object(self._kind, self._request.call.version, stored)
        if form.representation is not Representation.TABLE:
            return write_json(tables.build_partial_metadata(stored, form.version))
        document = self._responses.build_table(
            self._request, self._kind, ListResult([stored], stored.revision), form
        )
        if self._columns_sent:
            document = {**document, "columnDefinitions": None}
        self._columns_sent = True
        return write_json(document)

    def encode_bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Encode a bookmark: the revision that the watch has reached, without an object."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        document: dict[str, Any] = {
            "kind": self._kind.name,
            "apiVersion": self._kind.format_api_version(self._request.call.version),
            "metadata": metadata,
        }
        if self._format.representation is Representation.TABLE:
            document = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self._format.version}",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [{"cells": [], "object": document}],
            }
        elif self._format.representation is not Representation.WHOLE:
            document |= {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{self._format.version}",
            }
        return write_json({"type": "BOOKMARK", "object": document}) + b"\n"


def encode_error_event(error: ApiStatusError) -> bytes:
    """Encode the ERROR event that ends a watch."""
    return write_json({"type": "ERROR", "object": error.to_status()}) + b"\n"


def build_warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """`Warning` headers, each text once."""
    return [("warning", f"299 - {_quote(text)}") for text in dict.fromkeys(warnings)]


def _quote(text: str) -> str:
    """Quote a text for a header: ASCII, one line, quotes escaped."""
    plain = "".join(char if 32 <= ord(char) < 127 else "?" for char in " ".join(text.split()))
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
