"""An object as the server holds it: the bytes in the store, and how they are read and served.

Theory of operation: an object is kept as the JSON of its internal version without `resourceVersion`, which is
the revision of its last write and known to the store. To serve it, the version is spliced in behind the
opening that all objects of a kind share; nothing is parsed. What is parsed on demand is not kept, but for
the newest: most objects are read far less often than they lie in memory. Whoever stores an object has its
struct at hand and teaches it, because what was just written is what is asked for next.

Rules for this file: keys and bytes are made and taken apart here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from dray.api.codec import decode_kept
from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS, Kind, known_kind
from dray.api.meta import ObjectMeta
from dray.store import Entry

ROOT = b"/registry/"
LEDGER = b"/ledger/"


@lru_cache(maxsize=256)
def keeper(kind: Kind) -> Kind:
    """The kind under which objects are kept: itself, unless it is another name for one."""
    if kind.kept_as is None:
        return kind
    return known_kind(*kind.kept_as)


@lru_cache(maxsize=256)
def kind_prefix(kind: Kind) -> bytes:
    """Where all objects of a kind are."""
    kept = keeper(kind)
    return b"%s%s/%s/" % (ROOT, (kept.group or "core").encode(), kept.plural.encode())


def prefix(kind: Kind, namespace: str = "") -> bytes:
    """Where the objects of a kind are, in one namespace or in all."""
    return kind_prefix(kind) + (namespace.encode() + b"/" if kind.namespaced and namespace else b"")


def key(kind: Kind, namespace: str, name: str) -> bytes:
    """Where one object is."""
    return prefix(kind, namespace) + name.encode()


_BY_PREFIX: dict[bytes, Kind] = {kind_prefix(kind): kind for kind in KINDS if kind.kept_as is None}


def kind_at(place: bytes) -> Kind | None:
    """The kind of the object at a key."""
    group_end = place.find(b"/", len(ROOT))
    end = place.find(b"/", group_end + 1)
    return _BY_PREFIX.get(place[: end + 1])


def namespace_at(place: bytes) -> str:
    """The namespace of the object at a key; empty when it has none."""
    kind = kind_at(place)
    namespaced = kind is not None and kind.namespaced
    return place.rsplit(b"/", 2)[1].decode() if namespaced else ""


@lru_cache(maxsize=256)
def _opening(kind: Kind) -> bytes:
    return b'{"apiVersion":"%s","kind":"%s","metadata":{' % (
        kind.internal_api_version.encode(),
        kind.name.encode(),
    )


class Held(msgspec.Struct, frozen=True, gc=False):
    """One object at one revision."""

    kind: Kind
    key: bytes
    value: bytes
    revision: int

    @classmethod
    def of(cls, entry: Entry) -> Held:
        kind = kind_at(entry.key)
        assert kind is not None, entry.key
        return cls(kind, entry.key, entry.value, entry.mod_revision)

    @property
    def namespace(self) -> str:
        return namespace_at(self.key)

    @property
    def name(self) -> str:
        return self.key.decode().rpartition("/")[2]

    @property
    def served(self) -> bytes:
        """The JSON of the internal version, as clients get it; what is not stored has no version yet."""
        if not self.revision:
            return self.value
        opening = _opening(self.kind)
        return b'%s"resourceVersion":"%d",%s' % (opening, self.revision, self.value[len(opening) :])

    @property
    def document(self) -> dict[str, Any]:
        """The object as plain values, in the internal version; a fresh copy each time."""
        document: dict[str, Any] = read_json(self.value)
        if self.revision:
            document["metadata"]["resourceVersion"] = str(self.revision)
        return document

    @property
    def view(self) -> Any:
        """The struct of the kind: whole for closed kinds, what we read for open ones."""
        return _view(self)

    @property
    def metadata(self) -> Metadata:
        """What a list or watch must know of an object to choose it."""
        found: Metadata = _metadata(self)
        return found


KEPT = 1024
"""So many structs of each sort are kept, and as many older ones."""
LIGHT = 8 * 1024
"""Longer texts are read again: few of them would fill the memory."""


class _Newest:
    """What was read of the newest objects, in two generations: when one is full, the older one is dropped.

    To drop the oldest one by one would be dear: a dict looks through everything that was deleted before it.
    """

    def __init__(self, read: Callable[[Held], Any]) -> None:
        self._read = read
        self._known: dict[Held, Any] = {}
        self._older: dict[Held, Any] = {}

    def __call__(self, held: Held) -> Any:
        found = self.known(held)
        if found is None:
            found = self._read(held)
            self.teach(held, found)
        return found

    def known(self, held: Held) -> Any:
        """What was read of an object, if it was; None otherwise."""
        found = self._known.get(held)
        return found if found is not None else self._older.get(held)

    def teach(self, held: Held, found: Any) -> None:
        if len(held.value) <= LIGHT:
            if len(self._known) >= KEPT:
                self._older, self._known = self._known, {}
            self._known[held] = found


_view = _Newest(lambda held: decode_kept(held.kind, held.served))
_metadata = _Newest(lambda held: _HEAD.decode(held.value).metadata)


def gone(held: Held, revision: int) -> Held:
    """The last state of an object, with the revision of its deletion."""
    last = Held(held.kind, held.key, held.value, revision)
    view = _view.known(held)
    if view is not None and _view.known(last) is None:
        metadata = replace(view.metadata, resource_version=str(revision))
        _view.teach(last, replace(view, metadata=metadata))
    return last


def teach(held: Held, view: Any) -> None:
    """Keep the struct of an object for whoever asks next."""
    _view.teach(held, view)
    known: ObjectMeta = view.metadata
    _metadata.teach(
        held,
        Metadata(
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


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that the server itself reads."""

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


class _Head(msgspec.Struct, frozen=True):
    metadata: Metadata


_HEAD: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)


def stored_bytes(kind: Kind, document: Mapping[str, Any]) -> bytes:
    """A document of the internal version as it is kept: kind and metadata first, no `resourceVersion`."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "resourceVersion"}
    rest = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
    ordered = {
        "apiVersion": kind.internal_api_version,
        "kind": kind.name,
        "metadata": metadata,
    }
    return write_json(ordered | rest)


def stored_struct(obj: Any) -> bytes:
    """The same of a closed kind's struct, whose fields stand in that order already."""
    if obj.metadata.resource_version:
        obj = replace(obj, metadata=replace(obj.metadata, resource_version=""))
    return write_json(obj)
