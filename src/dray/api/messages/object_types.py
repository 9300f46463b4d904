"""Struct types of whole objects, built from the field tables: they decode, check and write every field.

Theory of operation: each message becomes a msgspec struct that refuses unknown fields, so that a body is
checked at the speed of the decoder. Defaults are chosen so that the encoder writes what Go's would: an empty
field is left out, except where Go always shows it (`is_always_shown`, and a message or time that is no
pointer, because `omitempty` does not apply to structs in Go). A value in another spelling than the one Go
writes (a null, a time in another zone) is refused, too; the slow path (`decode_report`) knows what to make
of it. Types are built when a kind is first used; some kinds take thousands of fields.

Rules for this file: a type may refuse what Go accepts, which costs time; it must never accept more.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, ForwardRef

import msgspec

from dray.api.messages.field_tables import (
    INLINE,
    LIST,
    MAP,
    POINTER,
    FieldDefinition,
    find_table_file,
    load_table,
    resolve_message,
)
from dray.api.meta import MICRO_TIME, TIME, Int32, Int64, MicroTime, Time
from dray.values.quantity import ZERO, Quantity


class _Leaf(msgspec.Struct, frozen=True):
    """The type of a value: how it is decoded, its zero value, and whether it is a struct in Go.

    Structs are shown even when they are empty, unless they are pointers.
    """

    type: Any
    new_zero: Callable[[], Any]
    is_struct: bool = False


_LEAVES: Mapping[str, _Leaf] = MappingProxyType(
    {
        "string": _Leaf(str, str),
        "bytes": _Leaf(bytes, bytes),
        "bool": _Leaf(bool, bool),
        "int32": _Leaf(Int32, int),
        "int64": _Leaf(Int64, int),
        TIME: _Leaf(Time | None, lambda: None, is_struct=True),
        MICRO_TIME: _Leaf(MicroTime | None, lambda: None, is_struct=True),
        "Quantity": _Leaf(Quantity, lambda: ZERO, is_struct=True),
        "Json": _Leaf(Any, lambda: None),
        "FieldsV1": _Leaf(Any, lambda: None),
        "IntOrString": _Leaf(Int32 | str, int),
        "Strings": _Leaf(list[str], list),
    }
)
_HIDDEN_WHEN_ZERO: Final = frozenset({("meta.v1", "ObjectMeta", "creationTimestamp")})
"""Structs that Go leaves out when they are zero (`omitzero`)."""

_EMBEDDED_KINDS: Final = frozenset({("core.v1", "PersistentVolumeClaim"), ("meta.v1", "DeleteOptions")})
"""Kinds that occur inside of other kinds and may say there, too, what they are."""

_TYPE_FIELDS: Final = (
    FieldDefinition(0, "apiVersion", "string"),
    FieldDefinition(0, "kind", "string"),
)
_MORE_FIELDS: Mapping[tuple[str, str], tuple[FieldDefinition, ...]] = MappingProxyType(
    {("core.v1", "PodResourceClaim"): (FieldDefinition(0, "template", "Json"),)}
)
"""Fields that Kubernetes does not have: the inline templates of KEP-3063."""


@lru_cache(maxsize=512)
def find_object_type(api_version: str, kind: str) -> type[msgspec.Struct] | None:
    """Find the type of the objects of a kind; None when there is no table for it."""
    file = find_table_file(api_version, kind)
    if file is None or kind not in load_table(file):
        return None
    return _build_type(file, kind, True)


@lru_cache(maxsize=4096)
def _build_type(file: str, message: str, is_object: bool) -> type[msgspec.Struct]:
    fields = [_build_field(place, field, message) for place, field in _list_fields(file, message)]
    if is_object:
        fields = [_build_field((file, message), field, message) for field in _TYPE_FIELDS] + fields
    # `continue` and the like are no names in Python.
    attributes = [f"{name}_" if keyword.iskeyword(name) else name for name, _, _ in fields]
    struct_type = msgspec.defstruct(
        message,
        [(attribute, *rest) for attribute, (_, *rest) in zip(attributes, fields, strict=True)],
        rename={each: each.rstrip("_") for each in attributes},
        omit_defaults=True,
        forbid_unknown_fields=True,
        gc=False,
    )
    # Messages that contain themselves find themselves here.
    setattr(struct_type, message, struct_type)
    return struct_type


def _list_fields(file: str, message: str) -> Iterator[tuple[tuple[str, str], FieldDefinition]]:
    """List the fields that the JSON of a message has, with file and name of the message that defines each."""
    for field in (*load_table(file)[message], *_MORE_FIELDS.get((file, message), ())):
        if field.modifier == INLINE:
            yield from _list_fields(*resolve_message(field.type, file))
        else:
            yield (file, message), field


def _build_field(place: tuple[str, str], field: FieldDefinition, holder: str) -> tuple[str, Any, Any]:
    """Build a field of a struct: name, type and default."""
    leaf = _LEAVES.get(field.type) or _build_message_leaf(place[0], field.type, holder)
    if field.modifier in (LIST, MAP):
        item = leaf.type
        collection = list[item] if field.modifier == LIST else dict[str, item]  # type: ignore[valid-type]
        if field.is_always_shown:
            return field.name, collection | None, msgspec.field(default_factory=_get_nothing)
        return field.name, collection, msgspec.field(default_factory=list if field.modifier == LIST else dict)
    if field.modifier == POINTER:
        return field.name, leaf.type | None if leaf.type is not Any else Any, None
    is_shown = leaf.is_struct and (*place, field.name) not in _HIDDEN_WHEN_ZERO
    if field.is_always_shown or is_shown:
        return field.name, leaf.type, msgspec.field(default_factory=leaf.new_zero)
    return field.name, leaf.type, leaf.new_zero()


def _build_message_leaf(file: str, name: str, holder: str) -> _Leaf:
    found = resolve_message(name, file)
    if found[1] == holder:
        return _Leaf(ForwardRef(holder), _get_nothing)
    struct_type = _build_type(*found, found in _EMBEDDED_KINDS)
    return _Leaf(struct_type, struct_type, is_struct=True)


def _get_nothing() -> None:
    return None
