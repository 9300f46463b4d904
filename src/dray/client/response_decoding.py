"""Answers of a server to objects: one object, a list, an event of a watch.

Theory of operation: a `Reader` knows the kind and the version the server speaks. What comes in the internal
version is decoded in one go, envelope and object together, straight into the struct. Whatever does not fit
(an older version, a field we do not know, a null, a `Status`) takes the long way over a document. Items of a
list come without `apiVersion` and `kind`; they are added.

Rules for this file: objects are decoded once. Fields we do not know are noted, never an error: the server may
be newer than we are.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from dray.api.codec import decode_document, decoder_of
from dray.api.json_text import read_json
from dray.api.kinds import Kind
from dray.client.errors import ClientError, WatchBroken, failure_of
from dray.client.object_refs import Document
from dray.client.transport import Reply
from dray.errors import DecodeError

T = TypeVar("T")

_MISFITS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError)

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
_CHANGES = frozenset({ADDED, MODIFIED, DELETED})

MOST_UNKNOWN = 1_000
"""Unknown fields that are noted for one kind: whether there are any is what matters."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """What a list says about itself."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Listing(msgspec.Struct, Generic[T]):
    """Objects of a list as they were at `resource_version`; `more` is the token for the next page."""

    items: tuple[T, ...] = ()
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def more(self) -> str:
        return self.metadata.continue_


class Event(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch: what happened, and the object as it became (or was, when deleted)."""

    type: str
    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """The word of the server that everything up to a version has been sent."""

    resource_version: str
    initial_events_end: bool = False


class Reader:
    """Reads objects of one kind in the version a server speaks.

    Objects of an open kind are documents, or, with `projected`, the fields of them that we read.
    """

    def __init__(self, kind: Kind, version: str, *, projected: bool = False) -> None:
        self.kind = kind
        self.version = version
        self._whole = kind.open and not projected
        self.unknown: set[str] = set()
        """Fields the server sent and we do not know; a whole update would erase them."""
        self._internal = version == kind.version
        self._name_and_version = (kind.name, kind.internal_api_version)
        shape: Any = dict[str, Any] if self._whole else kind.type
        self._object = decoder_of(shape)
        self._listing = decoder_of(Listing[shape])
        self._event = decoder_of(Event[shape])

    def object(self, data: bytes) -> Any:
        """One object."""
        if self._internal:
            try:
                obj = self._object.decode(data)
                if self._whole or self._ours(obj):
                    return obj
            except _MISFITS:
                pass
        return self._from_document(read_json(data))

    @property
    def takes_views(self) -> bool:
        """Whether the struct of the internal version is all that is wanted."""
        return self._internal and not self._whole

    def answer(self, reply: Reply) -> Any:
        """The object a server answered with."""
        if reply.view is not None and self.takes_views:
            return reply.view()
        return self.object(reply.body)

    def listing(self, data: bytes) -> Listing[Any]:
        """A page of a list."""
        if self._internal:
            try:
                listing: Listing[Any] = self._listing.decode(data)
                if self._whole:
                    for item in listing.items:
                        self._name(item)
                    return listing
                if all(map(self._ours, listing.items)):
                    return listing
            except _MISFITS:
                pass
        document = read_json(data)
        if not isinstance(document, dict):
            raise ClientError(f"expected a list of {self.kind.name}, got something else")
        items = tuple(self._from_document(self._name(item)) for item in document.get("items") or ())
        return Listing(items, msgspec.convert(document.get("metadata") or {}, ListMeta))

    def event(self, line: bytes) -> Event[Any] | Bookmark:
        """A line of a watch; raises the failure that an ERROR tells, and `WatchBroken` for anything else."""
        if self._internal:
            try:
                event: Event[Any] = self._event.decode(line)
                if event.type in _CHANGES and (self._whole or self._ours(event.object)):
                    return event
            except _MISFITS:
                pass
        try:
            document = read_json(line)
            kind, obj = document["type"], document["object"]
        except (DecodeError, KeyError, TypeError):
            raise WatchBroken(f"the watch of {self.kind.plural} sent no event: `{_shown(line)}`") from None
        if kind == ERROR:
            raise failure_of(obj if isinstance(obj, dict) else {})
        if kind == BOOKMARK:
            return _bookmark(obj)
        if kind not in _CHANGES:
            raise WatchBroken(f"the watch of {self.kind.plural} sent an event of unknown type `{kind}`")
        try:
            return Event(kind, self._from_document(obj))
        except DecodeError as broken:
            raise WatchBroken(f"the watch of {self.kind.plural} sent no object: {broken}") from None

    def _ours(self, obj: Any) -> bool:
        return bool((obj.kind, obj.api_version) == self._name_and_version)

    def _name(self, item: Document) -> Document:
        item.setdefault("apiVersion", self.kind.api_version(self.version))
        item.setdefault("kind", self.kind.name)
        return item

    def _from_document(self, document: Any) -> Any:
        if self._whole and isinstance(document, dict):
            return document
        decoded = decode_document(document)
        if decoded.kind is not self.kind:
            raise DecodeError(f"expected {self.kind.qualified_name}, got {decoded.kind.qualified_name}")
        for field in decoded.unknown:
            if len(self.unknown) >= MOST_UNKNOWN:
                break
            self.unknown.add(str(field.path))
        return decoded.object


class _Head(msgspec.Struct):
    kind: str = ""


_HEAD = msgspec.json.Decoder(_Head)


def is_status(data: bytes) -> bool:
    """Whether a server told how it went instead of showing an object."""
    try:
        return _HEAD.decode(data).kind == "Status"
    except msgspec.MsgspecError:
        return False


def _bookmark(obj: Any) -> Bookmark:
    try:
        metadata = obj["metadata"]
        annotations = metadata.get("annotations") or {}
        return Bookmark(metadata["resourceVersion"], annotations.get(INITIAL_EVENTS_END) == "true")
    except (KeyError, TypeError, AttributeError):
        raise WatchBroken(f"a bookmark without a version: `{obj}`") from None


def _shown(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace")
