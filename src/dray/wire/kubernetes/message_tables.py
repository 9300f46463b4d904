"""The messages of Kubernetes in protobuf: classes made from the field tables of `dray.api.messages`.

A field that contains a message has the type `bytes` in the class of its holder, and is decoded when it is
read: decoded in one go, two bytes of a hostile body would take up a message before anything counts them.

Lists have no tables: the list of every kind has the same two fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from dray.api.messages.field_tables import (
    INLINE,
    LIST,
    MAP,
    META,
    FieldDefinition,
    MessageTable,
    find_table_file,
    load_table,
    parse_message_table,
    resolve_message,
)
from dray.errors import DrayError
from dray.wire.protobuf import SCALARS, ProtobufMessage, build_message_classes, decode_strictly

MAGIC: Final = b"k8s\x00"
"""What a body in Kubernetes protobuf begins with."""

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
    file = find_table_file(api_version, kind)
    messages = {} if file is None else _load_file(file)
    if kind in messages:
        return messages[kind]
    item = kind.removesuffix(_LIST_SUFFIX)
    if file is not None and item != kind and item in messages:
        return _build_list_message(file, item)
    raise UnknownMessageError(
        f"{kind or 'an object'} in {api_version or 'no version'} has no protobuf message"
    )


def find_message(name: str, file: str) -> MessageType:
    """Find the message of a type that a table of `file` names."""
    other, local = resolve_message(name, file)
    return _load_file(other)[local]


def get_envelope(name: str) -> MessageType:
    """Return a message that is not of a kind, such as the envelope itself."""
    return _load_file(_ENVELOPE_FILE)[name]


@lru_cache(maxsize=64)
def _load_file(file: str) -> Mapping[str, MessageType]:
    return _build_messages(
        file, parse_message_table(_ENVELOPES) if file == _ENVELOPE_FILE else load_table(file)
    )


def _build_messages(file: str, table: MessageTable) -> Mapping[str, MessageType]:
    flat = {name: tuple(_flatten(field) for field in fields) for name, fields in table.items()}
    classes = build_message_classes(f"kubernetes.{file.replace('.', '_')}", flat, syntax="proto2")
    return {
        name: MessageType(name, file, classes[name], {field.number: field for field in fields})
        for name, fields in table.items()
    }


def _build_list_message(file: str, item: str) -> MessageType:
    name = item + _LIST_SUFFIX
    text = f"{name}\n  1 metadata {META}.ListMeta\n  2 items []{item}\n"
    return replace(_build_messages(f"{file}.{name}", parse_message_table(text))[name], file=file)


def _flatten(field: FieldDefinition) -> FieldDefinition:
    is_scalar = field.type in SCALARS and field.modifier != MAP
    modifier = LIST if field.modifier in (LIST, MAP) else ""
    # An inlined message has no name in JSON, but a field of a class needs one.
    name = f"inlined{field.number}" if field.modifier == INLINE else field.name
    return replace(field, name=name, type=field.type if is_scalar else "bytes", modifier=modifier)
