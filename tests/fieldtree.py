"""Every field a struct can hold, as the patterns the tables use: `spec.devices[].attributes{}.string`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import inspect


@dataclass(frozen=True)
class Field:
    """One field: the pattern that leads to it, the struct that holds it, its name on the wire, its type."""

    pattern: str
    holder: type
    name: str
    type: inspect.Type


def fields_of(shape: type) -> dict[str, Field]:
    """Every field below a struct, by pattern, the outer ones first."""
    return {field.pattern: field for field in _fields(inspect.type_info(shape), "")}


def _fields(kind: inspect.Type, prefix: str) -> Iterator[Field]:
    kind, many = _inner(kind)
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            pattern = f"{prefix}{many}.{field.encode_name}".lstrip(".")
            yield Field(pattern, kind.cls, field.encode_name, field.type)
            yield from _fields(field.type, pattern)


def _inner(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """The type of one value, and how a pattern says that there are many of them."""
    match kind:
        case inspect.Metadata(type=inner):
            return _inner(inner)
        case inspect.UnionType(types=members):
            return _inner(next(member for member in members if not isinstance(member, inspect.NoneType)))
        case inspect.VarTupleType(item_type=inner):
            return _inner(inner)[0], "[]"
        case inspect.DictType(value_type=inner):
            return _inner(inner)[0], "{}"
        case _:
            return kind, ""
