"""The stored object: its key and bytes in the store, and how they are decoded and served.

Theory of operation: an object is stored as the JSON of its internal version without `resourceVersion`, which
is the revision of its last write. To serve it, the resource version is spliced in behind the opening that all
objects of a kind share; nothing is parsed. Decoded structs are cached only for the most recent objects, since
most objects in memory are rarely read. The writer of an object caches the struct it has, because an object
that was just written is usually read next.

Rules for this file: no other module builds or parses keys and stored bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from dray.api.codec import decode_stored
from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS, Kind, get_kind
from dray.api.meta import ObjectMeta
from dray.store import StoreEntry

REGISTRY_PREFIX = b"/registry/"
_GROUP_START = len(REGISTRY_PREFIX)


@lru_cache(maxsize=256)
def get_storage_kind(kind: Kind) -> Kind:
    """The kind under which objects are stored: `kind` itself, unless it is an alias of another."""
    if kind.stored_as is None:
        return kind
    return get_kind(*kind.stored_as)


@lru_cache(maxsize=256)
def build_kind_prefix(kind: Kind) -> bytes:
    """The key prefix of all objects of a kind."""
    storage_kind = get_storage_kind(kind)
    group = storage_kind.group or "core"
    return b"%s%s/%s/" % (REGISTRY_PREFIX, group.encode(), storage_kind.plural.encode())


def build_prefix(kind: Kind, namespace: str = "") -> bytes:
    """The key prefix of the objects of a kind, in one namespace or in all."""
    return build_kind_prefix(kind) + (namespace.encode() + b"/" if kind.namespaced and namespace else b"")


def build_key(kind: Kind, namespace: str, name: str) -> bytes:
    """The key of one object."""
    return build_prefix(kind, namespace) + name.encode()


_KINDS_BY_PREFIX: dict[bytes, Kind] = {
    build_kind_prefix(kind): kind for kind in KINDS if kind.stored_as is None
}


def parse_kind(key: bytes) -> Kind | None:
    """The kind of the object at a key; None when the server has no such kind."""
    group_end = key.find(b"/", _GROUP_START)
    end = key.find(b"/", group_end + 1)
    return _KINDS_BY_PREFIX.get(key[: end + 1])


def parse_namespace(key: bytes) -> str:
    """The namespace of the object at a key; empty when it has none."""
    kind = parse_kind(key)
    namespaced = kind is not None and kind.namespaced
    return key.rsplit(b"/", 2)[1].decode() if namespaced else ""


@lru_cache(maxsize=256)
def _build_json_opening(kind: Kind) -> bytes:
    return b'{"apiVersion":"%s","kind":"%s","metadata":{' % (
        kind.internal_api_version.encode(),
        kind.name.encode(),
    )


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One object at one revision."""

    kind: Kind
    key: bytes
    value: bytes
    revision: int

    @classmethod
    def from_entry(cls, entry: StoreEntry) -> StoredObject:
        kind = parse_kind(entry.key)
        assert kind is not None, entry.key
        return cls(kind, entry.key, entry.value, entry.mod_revision)

    @property
    def namespace(self) -> str:
        return self.key.rsplit(b"/", 2)[1].decode() if self.kind.namespaced else ""

    @property
    def name(self) -> str:
        return self.key[self.key.rfind(b"/") + 1 :].decode()

    @property
    def served_json(self) -> bytes:
        """The JSON of the internal version for clients; an object that is not stored has no version yet."""
        if not self.revision:
            return self.value
        opening = _build_json_opening(self.kind)
        return b'%s"resourceVersion":"%d",%s' % (opening, self.revision, self.value[len(opening) :])

    @property
    def document(self) -> dict[str, Any]:
        """The object as plain values, in the internal version; a new copy each time."""
        document: dict[str, Any] = read_json(self.value)
        if self.revision:
            document["metadata"]["resourceVersion"] = str(self.revision)
        return document

    @property
    def view(self) -> Any:
        """The struct of the kind: complete for closed kinds, the fields that dray reads for open ones."""
        view = _views.find(self)
        if view is None:
            view = decode_stored(self.kind, self.served_json)
            _views.add(self, len(self.value), view)
        return view

    @property
    def metadata(self) -> StoredMetadata:
        """The metadata that selectors and the garbage collector read."""
        metadata: StoredMetadata | None = _metadata_cache.find(self.value)
        if metadata is None:
            metadata = _METADATA_DECODER.decode(self.value).metadata
            _metadata_cache.add(self.value, len(self.value), metadata)
        return metadata


MAX_CACHED_VIEWS = 1024
"""The size of one generation of each cache of decoded objects."""
MAX_CACHED_BYTES = 8 * 1024
"""Larger objects are decoded each time: a few of them would fill the memory."""


class _DecodeCache:
    """A cache of decoded objects in two generations: when the newer one is full, the older one is dropped.

    Evicting one entry at a time would be slow: finding the first key of a dict scans all deleted entries.
    """

    def __init__(self) -> None:
        self._newer: dict[StoredObject | bytes, Any] = {}
        self._older: dict[StoredObject | bytes, Any] = {}

    def find(self, stored: StoredObject | bytes) -> Any:
        """The decoded object, if it is cached; None otherwise."""
        decoded = self._newer.get(stored)
        return decoded if decoded is not None else self._older.get(stored)

    def add(self, stored: StoredObject | bytes, size: int, decoded: Any) -> None:
        if size <= MAX_CACHED_BYTES:
            if len(self._newer) >= MAX_CACHED_VIEWS:
                self._older, self._newer = self._newer, {}
            self._newer[stored] = decoded


_views = _DecodeCache()
_metadata_cache = _DecodeCache()
"""By the stored bytes: the metadata that the server reads does not depend on the revision, so it is cached
before a write is committed. Its first readers follow the store, and are faster than the writer.
"""


def build_deleted(stored: StoredObject, revision: int) -> StoredObject:
    """The last state of a deleted object, with the revision of its deletion."""
    last = StoredObject(stored.kind, stored.key, stored.value, revision)
    view = _views.find(stored)
    if view is not None and _views.find(last) is None:
        metadata = replace(view.metadata, resource_version=str(revision))
        _views.add(last, len(last.value), replace(view, metadata=metadata))
    return last


def cache_view(stored: StoredObject, view: Any) -> None:
    """Cache the struct of an object that was just written."""
    _views.add(stored, len(stored.value), view)


def cache_metadata(value: bytes, metadata: ObjectMeta | Mapping[str, Any]) -> None:
    """Cache the metadata of an object that is about to be stored, from its struct or document."""
    if not isinstance(metadata, ObjectMeta):
        with contextlib.suppress(msgspec.ValidationError):
            _metadata_cache.add(value, len(value), msgspec.convert(metadata, StoredMetadata))
        return
    known = metadata
    _metadata_cache.add(
        value,
        len(value),
        StoredMetadata(
            known.name,
            known.namespace,
            known.uid,
            known.generation,
            known.labels,
            known.annotations,
            known.finalizers,
            tuple(map(to_builtins, known.owner_references)),
            known.creation_timestamp,
            known.deletion_timestamp,
            known.deletion_grace_period_seconds,
        ),
    )


class StoredMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of metadata that the server itself reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[dict[str, Any], ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class _MetadataOnly(msgspec.Struct, frozen=True):
    metadata: StoredMetadata


_METADATA_DECODER: msgspec.json.Decoder[_MetadataOnly] = msgspec.json.Decoder(_MetadataOnly)


def encode_document(kind: Kind, document: Mapping[str, Any]) -> bytes:
    """Encode an internal document for the store: kind and metadata first, no `resourceVersion`."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "resourceVersion"}
    rest = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
    ordered = {
        "apiVersion": kind.internal_api_version,
        "kind": kind.name,
        "metadata": metadata,
    }
    return write_json(ordered | rest)


def encode_struct(obj: Any) -> bytes:
    """Encode the struct of a closed kind for the store; its fields have that order already."""
    if obj.metadata.resource_version:
        obj = replace(obj, metadata=replace(obj.metadata, resource_version=""))
    return write_json(obj)
