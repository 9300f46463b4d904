"""Protobuf message classes from descriptors: compiled descriptor sets, or tables of fields in text.

Theory of operation: a protobuf message is a set of numbered, typed fields. Descriptors name them, and the
protobuf runtime builds classes from descriptors. Each set of descriptors goes into a pool of its own, so that
messages of the same name elsewhere in the process do not clash, and no version of a code generator is needed.

Tables are those of `dray.api.messages.field_tables`; a type is a scalar of protobuf or a message of its
table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from dray.api.messages.field_tables import LIST, ONEOF, FieldDefinition, MessageTable
from dray.errors import DrayError

ProtobufMessage = Any
"""A message; its class has the fields of its descriptor."""

SCALARS: Final = frozenset({"string", "bytes", "bool", "int32", "int64", "uint64"})
MAX_UNKNOWN_BYTES: Final = 400_000
"""Limits the unknown fields of one message: a field of two bytes becomes an object of a hundred."""


class MalformedProtobufError(DrayError):
    """Bytes that are not protobuf, or not the message they should be."""


def build_message_classes(package: str, table: MessageTable, *, syntax: str) -> dict[str, Any]:
    """Build the class of each message of a table; `proto2` tells a zero value from an absent one."""
    file = descriptor_pb2.FileDescriptorProto(name=f"dray/{package}.proto", package=package, syntax=syntax)
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        if any(field.modifier == ONEOF for field in fields):
            message.oneof_decl.add(name="one")
        for field in fields:
            _add_field(message, field, package)
    pool = build_pool([file])
    return {name: get_message_class(pool, f"{package}.{name}") for name in table}


def _add_field(message: Any, field: FieldDefinition, package: str) -> None:
    names = descriptor_pb2.FieldDescriptorProto
    added = message.field.add(name=field.name, number=field.number)
    added.label = names.LABEL_REPEATED if field.modifier == LIST else names.LABEL_OPTIONAL
    if field.modifier == ONEOF:
        added.oneof_index = 0
    if field.type in SCALARS:
        added.type = names.Type.Value(f"TYPE_{field.type.upper()}")
    else:
        added.type, added.type_name = names.TYPE_MESSAGE, f".{package}.{field.type}"


def load_pool(descriptor_set: bytes) -> Any:
    """Load a compiled descriptor set into a pool of its own."""
    return build_pool(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file)


def build_pool(files: Iterable[Any]) -> Any:
    """Build a pool of the descriptors of files."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool


def get_message_class(pool: Any, name: str) -> Any:
    """Return the class of a message, by its full name."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def decode_message(message_class: Any, content: bytes) -> ProtobufMessage | None:
    """Decode a message; None when the bytes are not one. Unknown fields are kept."""
    try:
        return message_class.FromString(content)
    except DecodeError:
        return None


def decode_strictly(message_class: Any, content: bytes) -> ProtobufMessage:
    """Decode a message, as Go does: a field of another wire type than its own is an error.

    The runtime takes such a field for an unknown one. Unknown fields are ignored up to a number of bytes.
    """
    name = message_class.DESCRIPTOR.name
    message = decode_message(message_class, content)
    if message is None:
        raise MalformedProtobufError(f"{len(content)} bytes are not a whole {name} message")
    if len(content) > MAX_UNKNOWN_BYTES and _count_unknown_bytes(message) > MAX_UNKNOWN_BYTES:
        raise MalformedProtobufError(f"a {name} has more than {MAX_UNKNOWN_BYTES} bytes of unknown fields")
    known = message_class.DESCRIPTOR.fields_by_number
    for field in UnknownFieldSet(message):
        if field.field_number in known:
            expected = known[field.field_number].name
            raise MalformedProtobufError(f"{expected} of a {name} has the wire type {field.wire_type}")
    return message


def _count_unknown_bytes(message: ProtobufMessage) -> int:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return int(message.ByteSize() - known.ByteSize())
