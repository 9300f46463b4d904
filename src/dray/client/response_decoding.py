"""Decodes responses of a server: one object, a list, an event of a watch.

Theory of operation: a `ResponseDecoder` is for one kind in the version that the server serves. The internal
version is decoded in one step, envelope and object together, into the struct. Anything else (an older
version, an unknown field, a null, a `Status`) is decoded through a document. Items of a list come without
`apiVersion` and `kind`; they are added.

Rules for this file: objects are decoded once. Unknown fields are recorded and marked on the object (see
`dray.api.unknown_fields`), never an error: the server may be newer than we are.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from dray.api.codec import decode_document, get_decoder
from dray.api.json_text import read_json
from dray.api.kinds import Kind
from dray.api.unknown_fields import mark_unknown_fields
from dray.client.errors import BrokenWatchError, ClientError, build_api_error
from dray.client.object_refs import Document
from dray.client.transport import TransportResponse
from dray.errors import DecodeError

T = TypeVar("T")

_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
_CHANGE_TYPES = frozenset({ADDED, MODIFIED, DELETED})

MAX_UNKNOWN_FIELDS = 1_000
"""Unknown fields that are recorded for one kind: whether there are any is what matters."""

INITIAL_EVENTS_END_ANNOTATION = "k8s.io/initial-events-end"


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectList(msgspec.Struct, Generic[T]):
    """Objects of a list at `resource_version`; `continue_token` is the token for the next page."""

    items: tuple[T, ...] = ()
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def continue_token(self) -> str:
        return self.metadata.continue_


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch: the type of the change, and the object after it (or before a deletion)."""

    type: str
    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """The server's statement that everything up to a version has been sent."""

    resource_version: str
    initial_events_end: bool = False


class ResponseDecoder:
    """Decodes objects of one kind in the version that a server serves.

    Objects of an open kind are documents, or, with `projected`, the struct of the fields that we read.
    """

    def __init__(self, kind: Kind, version: str, *, projected: bool = False) -> None:
        self.kind = kind
        self.version = version
        self._as_document = kind.open and not projected
        self.unknown_fields: set[str] = set()
        """Fields the server sent and we do not know; a whole update would erase them."""
        self._is_internal_version = version == kind.version
        self._name_and_version = (kind.name, kind.internal_api_version)
        shape: Any = dict[str, Any] if self._as_document else kind.type
        self._object_decoder = get_decoder(shape)
        self._list_decoder = get_decoder(ObjectList[shape])
        self._event_decoder = get_decoder(WatchEvent[shape])

    def decode_object(self, data: bytes) -> Any:
        """Decode one object."""
        if self._is_internal_version:
            try:
                obj = self._object_decoder.decode(data)
                if self._as_document or self._is_expected_type(obj):
                    return obj
            except _DECODE_ERRORS:
                pass
        return self._decode_document(read_json(data))

    @property
    def accepts_views(self) -> bool:
        """Whether the struct of the internal version is all that is needed."""
        return self._is_internal_version and not self._as_document

    def decode_response(self, response: TransportResponse) -> Any:
        """Decode the object of a response."""
        if response.get_view is not None and self.accepts_views:
            return response.get_view()
        return self.decode_object(response.body)

    def decode_list(self, data: bytes) -> ObjectList[Any]:
        """Decode a page of a list."""
        if self._is_internal_version:
            try:
                listing: ObjectList[Any] = self._list_decoder.decode(data)
                if self._as_document:
                    for item in listing.items:
                        self._add_type_meta(item)
                    return listing
                if all(map(self._is_expected_type, listing.items)):
                    return listing
            except _DECODE_ERRORS:
                pass
        document = read_json(data)
        if not isinstance(document, dict):
            raise ClientError(f"expected a list of {self.kind.name}, got something else")
        items = tuple(
            self._decode_document(self._add_type_meta(item)) for item in document.get("items") or ()
        )
        return ObjectList(items, msgspec.convert(document.get("metadata") or {}, ListMeta))

    def decode_event(self, line: bytes) -> WatchEvent[Any] | Bookmark:
        """Decode a line of a watch; raise the failure of an ERROR event, and `BrokenWatchError` for anything
        else.
        """
        if self._is_internal_version:
            try:
                event: WatchEvent[Any] = self._event_decoder.decode(line)
                if event.type in _CHANGE_TYPES and (
                    self._as_document or self._is_expected_type(event.object)
                ):
                    return event
            except _DECODE_ERRORS:
                pass
        try:
            document = read_json(line)
            kind, obj = document["type"], document["object"]
        except (DecodeError, KeyError, TypeError):
            raise BrokenWatchError(
                f"the watch of {self.kind.plural} sent no event: `{_truncate_line(line)}`"
            ) from None
        if kind == ERROR:
            raise build_api_error(obj if isinstance(obj, dict) else {})
        if kind == BOOKMARK:
            return _parse_bookmark(obj)
        if kind not in _CHANGE_TYPES:
            raise BrokenWatchError(f"the watch of {self.kind.plural} sent an event of unknown type `{kind}`")
        try:
            return WatchEvent(kind, self._decode_document(obj))
        except DecodeError as broken:
            raise BrokenWatchError(f"the watch of {self.kind.plural} sent no object: {broken}") from None

    def _is_expected_type(self, obj: Any) -> bool:
        return bool((obj.kind, obj.api_version) == self._name_and_version)

    def _add_type_meta(self, item: Document) -> Document:
        item.setdefault("apiVersion", self.kind.format_api_version(self.version))
        item.setdefault("kind", self.kind.name)
        return item

    def _decode_document(self, document: Any) -> Any:
        if self._as_document and isinstance(document, dict):
            return document
        decoded = decode_document(document)
        if decoded.kind is not self.kind:
            raise DecodeError(f"expected {self.kind.qualified_name}, got {decoded.kind.qualified_name}")
        for field in decoded.unknown_fields:
            if len(self.unknown_fields) >= MAX_UNKNOWN_FIELDS:
                break
            self.unknown_fields.add(str(field.path))
        return mark_unknown_fields(decoded.object, self.kind, decoded.unknown_fields)


class _KindOnly(msgspec.Struct):
    kind: str = ""


_KIND_DECODER = msgspec.json.Decoder(_KindOnly)


def is_status(data: bytes) -> bool:
    """Whether the response is a `Status` instead of an object."""
    try:
        return _KIND_DECODER.decode(data).kind == "Status"
    except msgspec.MsgspecError:
        return False


def _parse_bookmark(obj: Any) -> Bookmark:
    try:
        metadata = obj["metadata"]
        annotations = metadata.get("annotations") or {}
        return Bookmark(metadata["resourceVersion"], annotations.get(INITIAL_EVENTS_END_ANNOTATION) == "true")
    except (KeyError, TypeError, AttributeError):
        raise BrokenWatchError(f"a bookmark without a version: `{obj}`") from None


def _truncate_line(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace")
