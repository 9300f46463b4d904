"""Opaque parameters: what a driver's schema says about them, and what is wrong, with the field.

Theory of operation: a schema is any type that msgspec can read, usually a struct. What was written is walked
beside the type, so that everything wrong is told at once, each with its path and what was expected there; a
field that nobody knows is wrong too, whatever the struct says, because it is most often a typing mistake.
What passes is then read. `apiVersion` and `kind` may always be written; they choose among several schemas.

Rules for this file: nothing here knows a claim; the place where parameters stand is an argument.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from dray.api.json_text import read_json
from dray.driver.base import Parameters
from dray.errors import DecodeError, InputError
from dray.values.quantity import Quantity
from dray.values.quantity_text import QuantityError

_IDENTITY: Final = ("apiVersion", "kind")
_AT: Final = re.compile(r"^(?P<text>.*?) - at `(?:key in )?\$(?P<path>.*)`$", re.DOTALL)


class Problem(NamedTuple):
    """One thing wrong: where, and what was expected."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class BadParameters(InputError):  # noqa: N818 - what is the case
    """Parameters that the schema does not allow, with everything that is wrong."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def decode(schemas: Parameters, raw: bytes, place: str = "") -> Any:
    """Parameters as their schema reads them; `BadParameters` tells all that is wrong."""
    if schemas is None:
        raise _wrong(place, "this driver takes no parameters")
    try:
        written = read_json(raw)
    except DecodeError as broken:
        raise _wrong(place, f"not JSON: {broken}") from None
    schema, document = _chosen(schemas, written, place)
    problems = tuple(_problems(document, inspect.type_info(schema), place))
    if problems:
        raise BadParameters(problems)
    try:
        return msgspec.convert(document, schema, dec_hook=_custom)
    except msgspec.ValidationError as wrong:
        raise _told(wrong, place) from None


def json_schema(schemas: Parameters) -> Any:
    """What is accepted, as JSON Schema."""
    if schemas is None:
        return False
    if isinstance(schemas, Mapping):
        return {"oneOf": [json_schema(each) | {"title": kind} for kind, each in schemas.items()]}
    return msgspec.json.schema(schemas, schema_hook=_custom_schema)


# --- which schema ---


def _chosen(schemas: Parameters, written: Any, place: str) -> tuple[Any, Any]:
    if not isinstance(schemas, Mapping):
        return schemas, _without_identity(schemas, written)
    if not isinstance(written, dict):
        raise _wrong(place, f"expected an object with `kind`, got {_shown(written)}")
    kind, version = written.get("kind"), written.get("apiVersion")
    schema = schemas.get(f"{version}/{kind}") or schemas.get(str(kind))
    if schema is None:
        raise _wrong(_below(place, "kind"), f"expected one of {_listed(schemas)}, got {_shown(kind)}")
    return schema, _without_identity(schema, written)


def _without_identity(schema: Any, written: Any) -> Any:
    """The document without `apiVersion` and `kind`, unless the schema has a place for them."""
    told = inspect.type_info(schema)
    if not isinstance(told, inspect.StructType) or not isinstance(written, dict):
        return written
    own = {field.encode_name for field in told.fields}
    return {name: each for name, each in written.items() if name in own or name not in _IDENTITY}


# --- walking what was written beside the type ---


def _problems(value: Any, told: inspect.Type, place: str) -> Iterator[Problem]:
    walk = _WALKS.get(type(told))
    if walk is not None:
        yield from walk(value, told, place)


def _struct(value: Any, told: Any, place: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(place, f"expected an object, got {_shown(value)}")
        return
    fields = {field.encode_name: field for field in told.fields}
    if told.__class__ is inspect.StructType and told.tag_field:
        fields.setdefault(told.tag_field, None)
    for name, each in value.items():
        if name not in fields:
            yield Problem(_below(place, name), f"unknown field{_near(name, fields)}")
        elif fields[name] is not None:
            yield from _problems(each, fields[name].type, _below(place, name))
    for name, field in fields.items():
        if field is not None and field.required and name not in value:
            yield Problem(_below(place, name), "required, but not given")


def _list(value: Any, told: Any, place: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(place, f"expected a list, got {_shown(value)}")
        return
    for position, each in enumerate(value):
        yield from _problems(each, told.item_type, f"{place}[{position}]")


def _dict(value: Any, told: Any, place: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(place, f"expected an object, got {_shown(value)}")
        return
    for name, each in value.items():
        yield from _problems(each, told.value_type, f"{place}[{name}]")


def _enum(value: Any, told: Any, place: str) -> Iterator[Problem]:
    allowed = [each.value for each in told.cls]
    if value not in allowed:
        yield Problem(place, f"expected one of {_listed(allowed)}, got {_shown(value)}")


def _literal(value: Any, told: Any, place: str) -> Iterator[Problem]:
    if value not in told.values or isinstance(value, bool):
        yield Problem(place, f"expected one of {_listed(told.values)}, got {_shown(value)}")


def _plain(value: Any, told: Any, place: str) -> Iterator[Problem]:
    expected, kinds = _PLAIN[type(told)]
    sound = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if not sound:
        yield Problem(place, f"expected {expected}, got {_shown(value)}")


def _either(value: Any, told: Any, place: str) -> Iterator[Problem]:
    meant = [each for each in told.types if value is None or type(each) is not inspect.NoneType]
    found = [list(_problems(value, each, place)) for each in meant]
    if not all(found):
        return
    if len(found) == 1:
        yield from found[0]
        return
    # The alternative that came furthest is the one that was meant.
    deepest = max(found, key=lambda each: max(len(problem.path) for problem in each))
    if any(len(problem.path) > len(place) for problem in deepest):
        yield from deepest
        return
    texts = [each[0].text.partition(", got ")[0].removeprefix("expected ") for each in found]
    yield Problem(place, f"expected {' or '.join(dict.fromkeys(texts))}, got {_shown(value)}")


def _amount(value: Any, told: Any, place: str) -> Iterator[Problem]:
    if told.cls is not Quantity:
        return
    try:
        Quantity.read(value)
    except (QuantityError, TypeError) as wrong:
        yield Problem(place, f"expected an amount, for example `20Gi`: {wrong}")


_PLAIN: Final[Mapping[type, tuple[str, tuple[type, ...]]]] = {
    inspect.StrType: ("a text", (str,)),
    inspect.IntType: ("a whole number", (int,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.BoolType: ("true or false", (bool,)),
    inspect.NoneType: ("null", (type(None),)),
}
_WALKS: Final[Mapping[type, Any]] = {
    inspect.StructType: _struct,
    inspect.DataclassType: _struct,
    inspect.TypedDictType: _struct,
    inspect.ListType: _list,
    inspect.VarTupleType: _list,
    inspect.SetType: _list,
    inspect.FrozenSetType: _list,
    inspect.DictType: _dict,
    inspect.EnumType: _enum,
    inspect.LiteralType: _literal,
    inspect.UnionType: _either,
    inspect.CustomType: _amount,
    **dict.fromkeys(_PLAIN, _plain),
}
"""What else msgspec can read is left to it; it tells one thing at a time then."""


# --- reading, and words ---


def _custom(kind: type, value: Any) -> Any:
    if kind is Quantity:
        return Quantity.read(value)
    raise TypeError(f"a schema with `{kind.__name__}` cannot be read; use a struct or a plain type")


def _custom_schema(kind: type) -> dict[str, Any]:
    if kind is Quantity:
        return {"type": "string", "description": "an amount, for example `20Gi`"}
    raise TypeError(f"a schema with `{kind.__name__}` cannot be told; use a struct or a plain type")


def _told(wrong: msgspec.ValidationError, place: str) -> BadParameters:
    found = _AT.match(str(wrong))
    text, path = (found["text"], found["path"]) if found else (str(wrong), "")
    return _wrong((place + path).lstrip("."), text[:1].lower() + text[1:])


def _wrong(place: str, text: str) -> BadParameters:
    return BadParameters((Problem(place, text),))


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _listed(values: Any) -> str:
    return ", ".join(f"`{each}`" for each in values)


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; expected one of {_listed(known)}" if known else ""


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode("utf-8", "replace")
    return f"`{text if len(text) <= 64 else text[:60] + '…'}`"
