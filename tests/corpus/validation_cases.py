"""The validation cases of the corpus as objects: one file each, with the errors that Kubernetes gives.

Two things that a JSON file cannot hold are restored here: opaque bytes that are no JSON object
(`__rawBytes`), and the white space of opaque parameters, of which only the length is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dray.api.codec import decode_document
from dray.api.fields import ROOT, FieldError
from dray.api.resource import DeviceCapacity
from dray.api.validation import validate_create, validate_status_update, validate_update
from dray.api.validation.kinds.capacity import validate_capacity
from dray.errors import DecodeError

Answer = frozenset[tuple[str, str]]
"""What is wrong, as far as we compare it: the type and the field of each error."""

_OPAQUE_FIELDS = ("parameters", "data")
_CAPACITY_PATH = ROOT.child("spec", "devices", "capacity")


@dataclass(frozen=True)
class Case:
    """One case: what is done to which object, and what Kubernetes says to it."""

    name: str
    document: dict[str, Any]

    @property
    def expected(self) -> Answer:
        """What Kubernetes finds wrong."""
        return frozenset((error["type"], error["field"]) for error in self.document["expectErrors"])

    @cached_property
    def unknown(self) -> frozenset[str]:
        """What dray does not have: the names of fields, or the kind."""
        if "capacity" in self.document:
            return frozenset()
        try:
            found = decode_document(self.document["object"])
        except DecodeError:
            return frozenset({self.document["object"]["kind"]})
        if found.kind.is_opaque:  # kept, and not judged
            return frozenset({found.kind.name})
        return frozenset(field.name for field in found.unknown_fields)

    @cached_property
    def objects(self) -> tuple[Any, ...]:
        """The object to be judged, and for updates the one it replaces."""
        if "capacity" in self.document:
            return (_capacity(self.document["capacity"]),)
        lengths = self.document.get("rawParameterLengths")
        found = (self.document["object"], self.document.get("oldObject"))
        return tuple(_object(item, lengths) for item in found if item is not None)

    def evaluator(self) -> list[FieldError]:
        """What dray finds wrong."""
        if "capacity" in self.document:
            return list(validate_capacity(self.objects[0], _CAPACITY_PATH, shared=True))
        return _JUDGES[self.document["operation"]](*self.objects)


_JUDGES: Mapping[str, Callable[..., list[FieldError]]] = {
    "create": validate_create,
    "update": validate_update,
    "update/status": validate_status_update,
}


def load(folder: Path) -> Iterator[Case]:
    """All cases, by the name of their file."""
    for path in sorted(folder.glob("*.json")):
        yield Case(path.stem, json.loads(path.read_text("utf-8")))


def answer(errors: list[FieldError]) -> Answer:
    """The part of errors that is compared."""
    return frozenset((error.type.value, error.path) for error in errors)


# --- opaque bytes ---


def _object(document: dict[str, Any], lengths: list[int] | None) -> Any:
    raws: list[msgspec.Raw] = []
    marked = _marked(document, iter(lengths or ()), raws)
    return _restored(decode_document(marked).object, raws)


def _marked(node: Any, lengths: Iterator[int], raws: list[msgspec.Raw]) -> Any:
    """The document with every opaque value replaced by a mark, and the opaque values as bytes."""
    if isinstance(node, list):
        return [_marked(item, lengths, raws) for item in node]
    if not isinstance(node, dict):
        return node
    marked = {}
    for name, value in node.items():
        if name in _OPAQUE_FIELDS:
            raws.append(_bytes(value, next(lengths, None)))
            marked[name] = {"__mark": len(raws) - 1}
        else:
            marked[name] = _marked(value, lengths, raws)
    return marked


def _bytes(value: Any, length: int | None) -> msgspec.Raw:
    if value is None:
        return msgspec.Raw(b"null"[:length])
    if isinstance(value, dict) and "__rawBytes" in value:
        return msgspec.Raw(value["__rawBytes"].encode())
    written = msgspec.json.encode(value)
    assert length is None or len(written) <= length, "more bytes than there were"
    return msgspec.Raw(written.ljust(length or 0))


def _restored(node: Any, raws: list[msgspec.Raw]) -> Any:
    if isinstance(node, tuple):
        return tuple(_restored(item, raws) for item in node)
    if not isinstance(node, msgspec.Struct):
        return node
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    opaque = {
        name: value for name, value in fields.items() if isinstance(value, msgspec.Raw) and bytes(value)
    }
    copy = msgspec.structs.replace(
        node, **{name: _restored(value, raws) for name, value in fields.items() if name not in opaque}
    )
    for name, mark in opaque.items():
        # By force, because a struct takes only JSON and brings it to a form of its own.
        msgspec.structs.force_setattr(copy, name, raws[msgspec.json.decode(mark)["__mark"]])
    return copy


def _capacity(document: dict[str, Any]) -> DeviceCapacity:
    device = {"name": "device", "capacity": {"case": document}}
    envelope = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": {"devices": [device]}}
    item: DeviceCapacity = decode_document(envelope).object.spec.devices[0].capacity["case"]
    return item
