"""Response writer: objects, lists and watch events, whole, as tables or as metadata only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server import tables
from dray.server.http.content_negotiation import (
    OBJECT_FORMATS,
    PLAIN_JSON,
    PROTOBUF_OBJECT_FORMATS,
    PROTOBUF_WATCH_FORMATS,
    WATCH_FORMATS,
    OfferedFormats,
    Representation,
    ResponseFormat,
    negotiate,
)
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import JSON, PROTOBUF, ApiRequest, ApiResponse
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
        form = negotiate(request.accept, _choose_offer(request, kind))
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
        encoded, content_type = _encode_body(request, form, body)
        return ApiResponse(code, encoded, content_type, headers, as_stored)

    def write_list(self, request: ApiRequest, kind: Kind, listing: ListResult) -> ApiResponse:
        """Write a list of objects."""
        form = negotiate(request.accept, _choose_offer(request, kind))
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
        return ApiResponse(200, *_encode_body(request, form, body))

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
        form = negotiate(request.accept, _choose_offer(request, kind, watch=True))
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
    def content_type(self) -> str:
        """The `Content-Type` of the stream."""
        return f"{self._format.media};stream=watch"

    @property
    def sharing_key(self) -> tuple[str, ...] | None:
        """The key under which watches share encoded events; None when this watch shares none.

        The first event of a watch of tables has their columns, the others do not.
        """
        form = self._format
        if form.representation is Representation.TABLE:
            return None
        version = self._request.call.version
        return self._kind.group, self._kind.name, version, form.media, form.representation, form.version

    @property
    def is_storage_version(self) -> bool:
        """Whether objects are sent in their stored form."""
        return self._format == PLAIN_JSON and is_storage_version(self._kind, self._request.call.version)

    def encode_event(self, type_: str, stored: StoredObject) -> bytes:
        """Encode one ADDED, MODIFIED or DELETED event."""
        return self._frame(type_, self._encode_stored(stored))

    def _frame(self, type_: str, text: bytes) -> bytes:
        """An event with its object, which is JSON text, as a line of JSON or as a protobuf message."""
        if self._format.media == PROTOBUF:
            from dray.server.http.protobuf import encode_event

            return encode_event(type_, text)
        return b'{"type":"%s","object":%s}\n' % (type_.encode(), text)

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
        return self._frame("BOOKMARK", write_json(document))

    def encode_error(self, error: ApiStatusError) -> bytes:
        """Encode the ERROR event that ends a watch."""
        return self._frame("ERROR", write_json(error.to_status()))


def _choose_offer(request: ApiRequest, kind: Kind, *, watch: bool = False) -> OfferedFormats:
    """Which formats a kind has: protobuf only where there is a message for it."""
    if PROTOBUF in request.accept:
        # The protobuf runtime is slow to import, and most clients do not ask for it.
        from dray.wire.kubernetes import has_message

        if has_message(kind.format_api_version(request.call.version), kind.name):
            return PROTOBUF_WATCH_FORMATS if watch else PROTOBUF_OBJECT_FORMATS
    return WATCH_FORMATS if watch else OBJECT_FORMATS


def _encode_body(request: ApiRequest, response_format: ResponseFormat, text: bytes) -> tuple[bytes, str]:
    """Encode a JSON text in a format, with its content type; in JSON when an object does not fit protobuf."""
    try:
        return response_format.encode(text), response_format.content_type
    except ApiStatusError:
        if response_format.media != PROTOBUF or (JSON not in request.accept and "*/*" not in request.accept):
            raise
        return text, JSON


@contextmanager
def attach_warnings(warnings: Sequence[str]) -> Iterator[None]:
    """Send warnings about a body with the error that it ends in, too."""
    try:
        yield
    except ApiStatusError as error:
        if warnings:
            error.headers = (*error.headers, *build_warning_headers(warnings))
        raise


def build_warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """`Warning` headers, each text once."""
    return [("warning", f"299 - {_quote(text)}") for text in dict.fromkeys(warnings)]


def _quote(text: str) -> str:
    """Quote a text for a header: ASCII, one line, quotes escaped."""
    plain = " ".join(text.split())
    if not (plain.isascii() and plain.isprintable()):
        plain = "".join(char if 32 <= ord(char) < 127 else "?" for char in plain)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
