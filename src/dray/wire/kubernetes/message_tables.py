"""The messages of Kubernetes: their fields, by tables of one file per API group and version.

Theory of operation: the format is that of `dray.wire.protobuf`, where names are those of JSON, with more
modifiers. `*` keeps the zero value of a field, because Go has a pointer there and tells it from an absent
one; `!` keeps it because Go's JSON always shows the field; `{}` is a map from strings; `+` puts the fields of
a message into the document of its holder. A type with dots is a message of another file. Types without fields
are leaves: scalars, times, quantities, JSON.

A field that contains a message has the type `bytes` in the class of its holder, and is decoded when it is
read: decoded in one go, two bytes of a hostile body would take up a message before anything counts them.

Lists have no tables: the list of every kind has the same two fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from dray.errors import DrayError
from dray.wire.protobuf import (
    LIST,
    SCALARS,
    FieldDefinition,
    ProtobufMessage,
    build_message_classes,
    decode_strictly,
    parse_message_table,
)

MAGIC: Final = b"k8s\x00"
"""What a body in Kubernetes protobuf begins with."""
MAP, INLINE, POINTER, REQUIRED = "{}", "+", "*", "!"
"""Modifiers of these tables, besides those of `dray.wire.protobuf`."""

META: Final = "meta.v1"
META_KINDS: Final = frozenset(
    {
        "APIGroup",
        "APIGroupList",
        "APIResourceList",
        "APIVersions",
        "CreateOptions",
        "DeleteOptions",
        "GetOptions",
        "ListOptions",
        "PatchOptions",
        "Status",
        "UpdateOptions",
        "WatchEvent",
    }
)
"""Kinds that have the same message in every group and version."""

_ENVELOPES: Final = """
Unknown
  1 typeMeta TypeMeta
  2 raw bytes
  3 contentEncoding string
  4 contentType string
TypeMeta
  1 apiVersion string
  2 kind string
Timestamp
  1 seconds int64
  2 nanos int32
QuantityText
  1 string string
RawJson
  1 raw bytes
StringList
  1 items []string
IntOrString
  1 type int64
  2 intVal int32
  3 strVal string
WatchEvent
  1 type string
  2 object RawJson
StringEntry
  1 key string
  2 value string
BytesEntry
  1 key string
  2 value bytes
"""
"""The envelope, the messages that have a text form in JSON, and the entries of maps."""
_ENVELOPE_FILE: Final = "envelope"
_LIST_SUFFIX: Final = "List"
_FILES: Final = frozenset(
    each.name.removesuffix(".txt") for each in resources.files(__package__).joinpath("messages").iterdir()
)


class UnknownMessageError(DrayError):
    """A kind that has no message."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message of the tables: its class, and its fields by number."""

    name: str
    file: str
    message_class: Any
    fields: Mapping[int, FieldDefinition]

    def decode(self, data: bytes) -> ProtobufMessage:
        """Decode a message; raises `MalformedProtobufError`."""
        return decode_strictly(self.message_class, data)


def has_message(api_version: str, kind: str) -> bool:
    """Whether objects of a kind can be written in protobuf."""
    try:
        find_root_message(api_version, kind)
    except UnknownMessageError:
        return False
    return True


@lru_cache(maxsize=1024)
def find_root_message(api_version: str, kind: str) -> MessageType:
    """Find the message of a kind, or of its list; raises `UnknownMessageError`."""
    if kind in META_KINDS:
        return _load_file(META)[kind]
    group, _, version = api_version.rpartition("/")
    file = f"{group.partition('.')[0] or 'core'}.{version}"
    messages = _load_file(file) if file in _FILES else {}
    if kind in messages and (not group or "." in group or file not in (META, "core.v1")):
        return messages[kind]
    item = kind.removesuffix(_LIST_SUFFIX)
    if item != kind and item in messages:
        return _build_list_message(file, item)
    raise UnknownMessageError(
        f"{kind or 'an object'} in {api_version or 'no version'} has no protobuf message"
    )


def find_message(name: str, file: str) -> MessageType:
    """Find the message of a type that a table of `file` names."""
    other, _, local = name.rpartition(".")
    return _load_file(other or file)[local]


def get_envelope(name: str) -> MessageType:
    """Return a message that is not of a kind, such as the envelope itself."""
    return _load_file(_ENVELOPE_FILE)[name]


@lru_cache(maxsize=64)
def _load_file(file: str) -> Mapping[str, MessageType]:
    if file == _ENVELOPE_FILE:
        text = _ENVELOPES
    else:
        text = resources.files(__package__).joinpath("messages", f"{file}.txt").read_text()
    return _build_messages(file, text)


def _build_messages(file: str, text: str) -> Mapping[str, MessageType]:
    table = parse_message_table(text)
    flat = {name: tuple(_flatten(field) for field in fields) for name, fields in table.items()}
    classes = build_message_classes(f"kubernetes.{file.replace('.', '_')}", flat, syntax="proto2")
    return {
        name: MessageType(name, file, classes[name], {field.number: field for field in fields})
        for name, fields in table.items()
    }


def _build_list_message(file: str, item: str) -> MessageType:
    name = item + _LIST_SUFFIX
    text = f"{name}\n  1 metadata {META}.ListMeta\n  2 items []{item}\n"
    return replace(_build_messages(f"{file}.{name}", text)[name], file=file)


def _flatten(field: FieldDefinition) -> FieldDefinition:
    is_scalar = field.type in SCALARS and field.modifier != MAP
    modifier = LIST if field.modifier in (LIST, MAP) else ""
    # An inlined message has no name in JSON, but a field of a class needs one.
    name = f"inlined{field.number}" if field.modifier == INLINE else field.name
    return replace(field, name=name, type=field.type if is_scalar else "bytes", modifier=modifier)
