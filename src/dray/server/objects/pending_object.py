"""The pending object: what a request wants to store, as a document and as the struct of its kind.

Theory of operation: validation and admission read the struct, patches and managed fields read the document.
The struct is authoritative for a closed kind, the document for an open one. A pending object derives one from
the other on demand, and applies the few changes that the server makes itself (metadata, copying the status)
to both at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from dray.api.codec import decode_document, decode_projection, to_document
from dray.api.decode_report import check_document
from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind
from dray.api.meta import ObjectMeta
from dray.api.strategies.defaults import apply_defaults
from dray.api.strategies.gated_fields import DroppedField, FeatureGateFilter
from dray.api.strategies.open_defaults import apply_open_defaults
from dray.api.whole_objects import build_empty_status
from dray.server.objects.stored_object import (
    StoredObject,
    cache_metadata,
    cache_view,
    encode_document,
    encode_struct,
)


@lru_cache(maxsize=256)
def _get_empty_object(kind: Kind) -> Any:
    """The struct of a kind with no field set."""
    return kind.type()


@lru_cache(maxsize=256)
def _get_content_fields(kind: Kind) -> dict[str, str]:
    """The fields of a closed kind besides its metadata, with their names in documents."""
    known = msgspec.structs.fields(kind.type)
    envelope = ("api_version", "kind", "metadata")
    return {field.name: field.encode_name for field in known if field.name not in envelope}


@lru_cache(maxsize=256)
def _get_spec_fields(kind: Kind) -> tuple[str, ...]:
    return tuple(name for name in _get_content_fields(kind) if name != "status")


def _write_field(
    document: dict[str, Any], name: str, field_value: Any, empty_object: Any, field: str
) -> None:
    """Write a field of a struct into a document, unless it has its empty value."""
    if field_value is not None and field_value != getattr(empty_object, field):
        document[name] = read_json(write_json(field_value))


def _metadata_to_document(metadata: ObjectMeta) -> dict[str, Any]:
    """Metadata as plain values; the entries of managed fields are shared, because they are never changed."""
    document: dict[str, Any] = to_builtins(replace(metadata, managed_fields=()))
    # Structs have tuples where documents have lists, and comparisons tell them apart.
    for name in ("ownerReferences", "finalizers"):
        if name in document:
            document[name] = list(document[name])
    if metadata.managed_fields:
        document["managedFields"] = list(metadata.managed_fields)
    return document


def _metadata_from_document(metadata: dict[str, Any]) -> ObjectMeta:
    """Metadata from plain values; raises `ValidationError` when they are not metadata."""
    fields = metadata.get("managedFields")
    if type(fields) is not list or not all(type(entry) is dict for entry in fields):
        return msgspec.convert(metadata, ObjectMeta)
    rest = {name: value for name, value in metadata.items() if name != "managedFields"}
    return replace(msgspec.convert(rest, ObjectMeta), managed_fields=tuple(fields))


def _drop_metadata_and_status(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


def _drop_managed_times(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without the times of managed fields, which alone are no reason to write."""
    metadata = document["metadata"]
    fields = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**document, "metadata": {**metadata, "managedFields": fields}}


def _drop_times(metadata: ObjectMeta) -> ObjectMeta:
    fields = tuple({**entry, "time": None} for entry in metadata.managed_fields)
    return replace(metadata, managed_fields=fields)


class PendingObject:
    """An object of the internal version that is not stored yet; immutable, its methods return new objects."""

    __slots__ = ("_document", "_metadata", "_stored", "_view", "kind")

    def __init__(self, kind: Kind, document: dict[str, Any] | None, view: Any) -> None:
        """A closed kind needs its struct, an open kind its document."""
        self.kind = kind
        self._view = view
        self._document = document
        self._stored: StoredObject | None = None
        self._metadata: dict[str, Any] | None = None

    @classmethod
    def from_view(cls, kind: Kind, view: msgspec.Struct) -> PendingObject:
        """Build an object of a closed kind."""
        return cls(kind, None, view)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> PendingObject:
        """Build an object of any kind; raises `DecodeError` when the document is not one."""
        decoded = decode_document(document)
        if decoded.document is None:
            return cls.from_view(decoded.kind, decoded.object)
        return cls(decoded.kind, dict(decoded.document), decoded.object)

    @classmethod
    def from_open_document(cls, kind: Kind, document: dict[str, Any]) -> PendingObject:
        """Build an object of an open kind; the document is decoded when the view is first read."""
        return cls(kind, document, None)

    @classmethod
    def from_stored(cls, stored: StoredObject) -> PendingObject:
        """Build an object from a stored one, which is decoded on demand."""
        pending = cls(stored.kind, None, None)
        pending._stored = stored
        return pending

    @property
    def view(self) -> Any:
        """The object as its struct; raises `DecodeError` when the document of an open kind is not valid."""
        if self._view is None:
            stored = self._stored
            self._view = decode_projection(self.kind, self.document) if stored is None else stored.view
        return self._view

    @property
    def document(self) -> dict[str, Any]:
        """The object as plain values; a closed kind is converted on first use."""
        if self._document is None:
            stored = self._stored
            self._document = to_document(self.view) if stored is None else stored.document
            self._document.setdefault("metadata", {})
        return self._document

    @property
    def metadata(self) -> dict[str, Any]:
        if self._metadata is None:
            known = self._known_document
            self._metadata = _metadata_to_document(self.view.metadata) if known is None else known["metadata"]
        return self._metadata

    @property
    def encoded(self) -> bytes:
        """The bytes to store."""
        if self._document is None and not self.kind.open:
            return encode_struct(self.view)
        return encode_document(self.kind, self.document)

    def cache_metadata(self, value: bytes) -> None:
        """Cache the metadata for those who follow the store, now that `value` is about to be stored."""
        cache_metadata(value, self.metadata if self._view is None else self._view.metadata)

    def cache_view(self, stored: StoredObject) -> None:
        """Cache the struct for later readers, now that `encoded` is stored."""
        if self._view is not None:
            metadata = replace(self._view.metadata, resource_version=str(stored.revision))
            cache_view(stored, replace(self._view, metadata=metadata))

    @property
    def _known_document(self) -> dict[str, Any] | None:
        """The document of an open kind; that of a closed kind only when it was built already."""
        return self.document if self.kind.open else self._document

    def replace_metadata(self, metadata: Mapping[str, Any]) -> PendingObject:
        """The object with other metadata; empty values are left out."""
        kept = {name: value for name, value in metadata.items() if value or isinstance(value, int)}
        try:
            known = _metadata_from_document(kept)
        except msgspec.ValidationError:  # an open kind keeps unknown fields, but not in its metadata
            kept, _ = check_document(kept, ObjectMeta)
            known = msgspec.convert(kept, ObjectMeta)
        document = self._known_document
        if document is not None:
            document = document | {"metadata": kept}
        unread = self.kind.open and self._view is None
        return PendingObject(self.kind, document, None if unread else replace(self.view, metadata=known))

    def take_metadata(self, other: PendingObject) -> PendingObject:
        """The object of a closed kind with the metadata of another one."""
        return PendingObject.from_view(self.kind, replace(self.view, metadata=other.view.metadata))

    def replace_managed_fields(self, fields: list[dict[str, Any]]) -> PendingObject:
        """The object with other managed fields."""
        document, view = self._known_document, None
        if document is not None:
            kept = {**self.metadata, "managedFields": fields}
            if not fields:
                del kept["managedFields"]
            document = document | {"metadata": kept}
        if self._view is not None or not self.kind.open:
            metadata = replace(self.view.metadata, managed_fields=tuple(fields))
            view = replace(self.view, metadata=metadata)
        return PendingObject(self.kind, document, view)

    def replace_field(self, name: str, value: Any, part: Any = None) -> PendingObject:
        """The object with another value in a top-level field; `part` is that value in the struct."""
        written = self._known_document
        if written is None:
            pending = PendingObject(self.kind, None, replace(self.view, **{name: part}))
            pending._metadata = self.metadata
            return pending
        document = {field: kept for field, kept in written.items() if field != name}
        if value is not None:
            document[name] = value
        if self.kind.open:
            return PendingObject.from_open_document(self.kind, document)
        return PendingObject(self.kind, document, replace(self.view, **{name: part}))

    def copy_status_from(self, other: PendingObject | None) -> PendingObject:
        """The object with the status of another one, or without a status when there is no other."""
        written = None
        if self._known_document is not None:
            written = None if other is None else other.document.get("status")
            if written is None:
                written = build_empty_status(self.kind)
            if self.kind.open:
                pending = self.replace_field("status", written)
                if (
                    other is not None
                    and other._view is not None
                    and "status" in _get_content_fields(self.kind)
                ):
                    # Both are decoded already, so their combination need not be decoded again.
                    pending._view = replace(self.view, status=other._view.status)
                return pending
        fresh = _get_empty_object(self.kind).status if other is None else other.view.status
        if self._document is None and fresh is self.view.status:
            return self
        return self.replace_field("status", written, fresh)

    def differs_from(self, other: PendingObject) -> bool:
        """Whether anything but metadata and status differs; such a change increments the generation."""
        if self.kind.open:
            return _drop_metadata_and_status(self.document) != _drop_metadata_and_status(other.document)
        own, others = self.view, other.view
        return any(getattr(own, name) != getattr(others, name) for name in _get_spec_fields(self.kind))

    def equals_ignoring_times(self, other: PendingObject) -> bool:
        """Whether nothing differs but the times of managed fields."""
        if self.kind.open:
            return _drop_managed_times(self.document) == _drop_managed_times(other.document)
        own, others = self.view, other.view
        if any(getattr(own, name) != getattr(others, name) for name in _get_content_fields(self.kind)):
            return False
        return _drop_times(own.metadata) == _drop_times(others.metadata)

    def build_diff_documents(self, other: PendingObject) -> tuple[dict[str, Any], dict[str, Any]]:
        """Documents of this object and another one, with at least the fields that differ."""
        if self.kind.open or (self._document is not None and other._document is not None):
            return self.document, other.document
        here, there = {"metadata": self.metadata}, {"metadata": other.metadata}
        own, others = self.view, other.view
        for field, name in _get_content_fields(self.kind).items():
            one, two = getattr(own, field), getattr(others, field)
            if one is not two and one != two:
                _write_field(here, name, one, _get_empty_object(self.kind), field)
                _write_field(there, name, two, _get_empty_object(self.kind), field)
        return here, there

    def replace_document(self, document: dict[str, Any]) -> PendingObject:
        """The object of an open kind with another document; itself when it is the same one."""
        return self if document is self.document else PendingObject.from_open_document(self.kind, document)

    def apply_open_defaults(self, before: PendingObject | None = None) -> PendingObject:
        """The object of an open kind with the defaults of its kind; a closed kind is left as it is."""
        if not self.kind.open:
            return self
        stored = None if before is None else before.document
        return self.replace_document(apply_open_defaults(self.kind, self.document, stored))

    def apply_defaults(self, now: str, before: PendingObject | None = None) -> PendingObject:
        """The object of a closed kind with the defaults of its kind; an open kind is left as it is."""
        if self.kind.open:
            return self
        view = apply_defaults(self.view, now=now, stored=None if before is None else before.view)
        if view is self.view:
            return self
        pending = PendingObject.from_view(self.kind, view)
        pending._metadata = self._metadata
        return pending

    def drop_gated_fields(
        self, gates: FeatureGateFilter, old: PendingObject | None
    ) -> tuple[PendingObject, tuple[DroppedField, ...]]:
        """The object without the fields of disabled feature gates, and those fields."""
        kept = gates.drop_disabled_fields(
            self.kind, self._authoritative_form, None if old is None else old._authoritative_form
        )
        if not kept.dropped:
            return self, ()
        if self.kind.open:
            return PendingObject.from_open_document(self.kind, kept.object), kept.dropped
        return PendingObject.from_view(self.kind, kept.object), kept.dropped

    @property
    def _authoritative_form(self) -> Any:
        return self.document if self.kind.open else self.view
