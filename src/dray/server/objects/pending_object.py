"""An object on its way into the store: as a document and as its struct, changed in step.

Theory of operation: rules look at the struct, patches and field owners at the document. For a closed kind the
struct is the whole truth, for an open one the document is; a draft keeps both alike, and the few changes the
server makes itself (metadata, carrying the status over) are made to both at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from dray.api.codec import decode_document, to_document, view_of
from dray.api.decode_report import examine
from dray.api.json_text import read_json, write_json
from dray.api.kinds import Kind
from dray.api.meta import ObjectMeta
from dray.api.strategies.defaults import with_defaults
from dray.api.strategies.gated_fields import DroppedField, Gatekeeper
from dray.server.objects.stored_object import Held, stored_bytes, stored_struct, teach


@lru_cache(maxsize=256)
def _unborn(kind: Kind) -> Any:
    """An object of which nothing is known yet."""
    return kind.type()


@lru_cache(maxsize=256)
def _parts(kind: Kind) -> dict[str, str]:
    """The fields of a closed kind beside its metadata, and what they are called in documents."""
    known = msgspec.structs.fields(kind.type)
    envelope = ("api_version", "kind", "metadata")
    return {field.name: field.encode_name for field in known if field.name not in envelope}


@lru_cache(maxsize=256)
def _counted(kind: Kind) -> tuple[str, ...]:
    return tuple(name for name in _parts(kind) if name != "status")


def _write_part(document: dict[str, Any], name: str, part: Any, unborn: Any, field: str) -> None:
    """Write a part of a struct into a document, unless it says nothing."""
    if part is not None and part != getattr(unborn, field):
        document[name] = read_json(write_json(part))


def _written_metadata(metadata: ObjectMeta) -> dict[str, Any]:
    """Metadata as plain values; the owners of fields are shared, as nobody changes them."""
    written: dict[str, Any] = to_builtins(replace(metadata, managed_fields=()))
    if metadata.managed_fields:
        written["managedFields"] = list(metadata.managed_fields)
    return written


def _read_metadata(written: dict[str, Any]) -> ObjectMeta:
    """The same the other way round; a `ValidationError` when it is none."""
    fields = written.get("managedFields")
    if type(fields) is not list or not all(type(entry) is dict for entry in fields):
        return msgspec.convert(written, ObjectMeta)
    rest = {name: value for name, value in written.items() if name != "managedFields"}
    return replace(msgspec.convert(rest, ObjectMeta), managed_fields=tuple(fields))


def _substance(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("metadata", "status")}


def _untimed(document: Mapping[str, Any]) -> dict[str, Any]:
    """All but the times at which fields were written: those alone are no reason to write."""
    metadata = document["metadata"]
    fields = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**document, "metadata": {**metadata, "managedFields": fields}}


def _without_times(metadata: ObjectMeta) -> ObjectMeta:
    fields = tuple({**entry, "time": None} for entry in metadata.managed_fields)
    return replace(metadata, managed_fields=fields)


class Draft:
    """An object of the internal version that is not stored yet; never changed, only followed by another."""

    __slots__ = ("_document", "_held", "_metadata", "_view", "kind")

    def __init__(self, kind: Kind, document: dict[str, Any] | None, view: Any) -> None:
        """Of a closed kind the struct is needed, of an open one the document."""
        self.kind = kind
        self._view = view
        self._document = document
        self._held: Held | None = None
        self._metadata: dict[str, Any] | None = None

    @classmethod
    def of_view(cls, kind: Kind, view: msgspec.Struct) -> Draft:
        """A draft of a closed kind."""
        return cls(kind, None, view)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Draft:
        """A draft of any kind; raises `DecodeError` when the document is not one."""
        decoded = decode_document(document)
        if decoded.document is None:
            return cls.of_view(decoded.kind, decoded.object)
        return cls(decoded.kind, dict(decoded.document), decoded.object)

    @classmethod
    def of_open(cls, kind: Kind, document: dict[str, Any]) -> Draft:
        """A draft of an open kind; whether it can be read is found out when somebody looks at its struct."""
        return cls(kind, document, None)

    @classmethod
    def of_held(cls, held: Held) -> Draft:
        """A draft of what is stored, read as far as somebody looks at it."""
        draft = cls(held.kind, None, None)
        draft._held = held
        return draft

    @property
    def view(self) -> Any:
        """The object as its struct; raises `DecodeError` when the document of an open kind is none."""
        if self._view is None:
            held = self._held
            self._view = view_of(self.kind, self.document) if held is None else held.view
        return self._view

    @property
    def document(self) -> dict[str, Any]:
        """The object as plain values; those of a closed kind are written out when first asked for."""
        if self._document is None:
            held = self._held
            self._document = to_document(self.view) if held is None else held.document
            self._document.setdefault("metadata", {})
        return self._document

    @property
    def metadata(self) -> dict[str, Any]:
        if self._metadata is None:
            known = self._written
            self._metadata = _written_metadata(self.view.metadata) if known is None else known["metadata"]
        return self._metadata

    @property
    def stored(self) -> bytes:
        """The draft as it is kept."""
        if self._document is None and not self.kind.open:
            return stored_struct(self.view)
        return stored_bytes(self.kind, self.document)

    def teach(self, held: Held) -> None:
        """Let others have the struct, now that the draft is stored as `held`."""
        if self._view is not None:
            metadata = replace(self._view.metadata, resource_version=str(held.revision))
            teach(held, replace(self._view, metadata=metadata))

    @property
    def _written(self) -> dict[str, Any] | None:
        """The document of an open kind; that of a closed one only when it was asked for already."""
        return self.document if self.kind.open else self._document

    def with_metadata(self, metadata: Mapping[str, Any]) -> Draft:
        """The draft with other metadata; what is None or empty is left out."""
        kept = {name: value for name, value in metadata.items() if value or isinstance(value, int)}
        try:
            known = _read_metadata(kept)
        except msgspec.ValidationError:  # an open kind keeps unknown fields, but its metadata is not open
            kept, _ = examine(kept, ObjectMeta)
            known = msgspec.convert(kept, ObjectMeta)
        document = self._written
        if document is not None:
            document = document | {"metadata": kept}
        unread = self.kind.open and self._view is None
        return Draft(self.kind, document, None if unread else replace(self.view, metadata=known))

    def with_owners(self, fields: list[dict[str, Any]]) -> Draft:
        """The draft with other managed fields."""
        document, view = self._written, None
        if document is not None:
            kept = {**self.metadata, "managedFields": fields}
            if not fields:
                del kept["managedFields"]
            document = document | {"metadata": kept}
        if self._view is not None or not self.kind.open:
            metadata = replace(self.view.metadata, managed_fields=tuple(fields))
            view = replace(self.view, metadata=metadata)
        return Draft(self.kind, document, view)

    def with_field(self, name: str, value: Any, part: Any = None) -> Draft:
        """The draft with another top-level field; `part` is the same for the struct of a closed kind."""
        written = self._written
        if written is None:
            draft = Draft(self.kind, None, replace(self.view, **{name: part}))
            draft._metadata = self.metadata
            return draft
        document = {field: kept for field, kept in written.items() if field != name}
        if value is not None:
            document[name] = value
        if self.kind.open:
            return Draft.of_open(self.kind, document)
        return Draft(self.kind, document, replace(self.view, **{name: part}))

    def with_status_of(self, other: Draft | None) -> Draft:
        """The draft with the status of another one; without any when there is none."""
        written = None
        if self._written is not None:
            written = None if other is None else other.document.get("status")
            if self.kind.open:
                draft = self.with_field("status", written)
                if other is not None and other._view is not None and "status" in _parts(self.kind):
                    # Both were read before; what is put together of them need not be.
                    draft._view = replace(self.view, status=other._view.status)
                return draft
        fresh = _unborn(self.kind).status if other is None else other.view.status
        if self._document is None and fresh is self.view.status:
            return self
        return self.with_field("status", written, fresh)

    def differs_from(self, other: Draft) -> bool:
        """Whether anything but metadata and status is different; a change of generation is counted by it."""
        if self.kind.open:
            return _substance(self.document) != _substance(other.document)
        mine, others = self.view, other.view
        return any(getattr(mine, name) != getattr(others, name) for name in _counted(self.kind))

    def is_like(self, other: Draft) -> bool:
        """Whether nothing is different but the times at which fields were written."""
        if self.kind.open:
            return _untimed(self.document) == _untimed(other.document)
        mine, others = self.view, other.view
        if any(getattr(mine, name) != getattr(others, name) for name in _parts(self.kind)):
            return False
        return _without_times(mine.metadata) == _without_times(others.metadata)

    def beside(self, other: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
        """Documents of this and of another draft, at least of what differs between them."""
        if self.kind.open or (self._document is not None and other._document is not None):
            return self.document, other.document
        here, there = {"metadata": self.metadata}, {"metadata": other.metadata}
        mine, others = self.view, other.view
        for field, name in _parts(self.kind).items():
            one, two = getattr(mine, field), getattr(others, field)
            if one is not two and one != two:
                _write_part(here, name, one, _unborn(self.kind), field)
                _write_part(there, name, two, _unborn(self.kind), field)
        return here, there

    def filled(self, now: str, before: Draft | None = None) -> Draft:
        """The draft with the defaults of its kind."""
        if self.kind.open:
            return self
        view = with_defaults(self.view, now=now, stored=None if before is None else before.view)
        if view is self.view:
            return self
        draft = Draft.of_view(self.kind, view)
        draft._metadata = self._metadata
        return draft

    def gated(self, gates: Gatekeeper, old: Draft | None) -> tuple[Draft, tuple[DroppedField, ...]]:
        """The draft without fields that no gate lets in, and those fields."""
        kept = gates.admitted(self.kind, self._truth, None if old is None else old._truth)
        if not kept.dropped:
            return self, ()
        if self.kind.open:
            return Draft.of_open(self.kind, kept.object), kept.dropped
        return Draft.of_view(self.kind, kept.object), kept.dropped

    @property
    def _truth(self) -> Any:
        return self.document if self.kind.open else self.view
