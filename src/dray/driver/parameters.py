"""Decoding of opaque parameters by a driver's schema, with an error that lists every problem and its field.

Theory of operation: a schema is any type that msgspec can decode, usually a struct. The parameters are first
compared with the type, so that the error lists all problems at once, each with its path and what was expected
there; an unknown field is a problem too, whatever the struct allows, because it is most often a typo. Valid
parameters are then decoded. `apiVersion` and `kind` are always allowed; they select one of several schemas.

Rules for this file: no claims; the path of the parameters is an argument.
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
_ERROR_PATH: Final = re.compile(r"^(?P<text>.*?) - at `(?:key in )?\$(?P<path>.*)`$", re.DOTALL)


class ParameterProblem(NamedTuple):
    """One problem: its path, and what was expected there."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class InvalidParametersError(InputError):
    """The schema does not allow the parameters; lists every problem."""

    def __init__(self, problems: tuple[ParameterProblem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def decode_parameters(schemas: Parameters, raw: bytes, path: str = "") -> Any:
    """Decode parameters by their schema; raises `InvalidParametersError` with every problem."""
    if schemas is None:
        raise _make_error(path, "this driver takes no parameters")
    try:
        written = read_json(raw)
    except DecodeError as broken:
        raise _make_error(path, f"not JSON: {broken}") from None
    schema, document = _select_schema(schemas, written, path)
    problems = tuple(_find_problems(document, inspect.type_info(schema), path))
    if problems:
        raise InvalidParametersError(problems)
    try:
        return msgspec.convert(document, schema, dec_hook=_decode_custom)
    except msgspec.ValidationError as wrong:
        raise _convert_error(wrong, path) from None


def build_json_schema(schemas: Parameters) -> Any:
    """Build the JSON Schema of the accepted parameters."""
    if schemas is None:
        return False
    if isinstance(schemas, Mapping):
        return {"oneOf": [build_json_schema(each) | {"title": kind} for kind, each in schemas.items()]}
    return msgspec.json.schema(schemas, schema_hook=_build_custom_schema)


# --- selection of the schema ---


def _select_schema(schemas: Parameters, written: Any, path: str) -> tuple[Any, Any]:
    if not isinstance(schemas, Mapping):
        return schemas, _strip_identity(schemas, written)
    if not isinstance(written, dict):
        raise _make_error(path, f"expected an object with `kind`, got {_format_value(written)}")
    kind, version = written.get("kind"), written.get("apiVersion")
    schema = schemas.get(f"{version}/{kind}") or schemas.get(str(kind))
    if schema is None:
        raise _make_error(
            _join_path(path, "kind"), f"expected one of {_format_values(schemas)}, got {_format_value(kind)}"
        )
    return schema, _strip_identity(schema, written)


def _strip_identity(schema: Any, written: Any) -> Any:
    """Remove `apiVersion` and `kind` from a document, unless the schema has these fields."""
    schema_type = inspect.type_info(schema)
    if not isinstance(schema_type, inspect.StructType) or not isinstance(written, dict):
        return written
    own = {field.encode_name for field in schema_type.fields}
    return {name: each for name, each in written.items() if name in own or name not in _IDENTITY}


# --- checks by type ---


def _find_problems(value: Any, schema_type: inspect.Type, path: str) -> Iterator[ParameterProblem]:
    check = _CHECKS_BY_TYPE.get(type(schema_type))
    if check is not None:
        yield from check(value, schema_type, path)


def _check_struct(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    if not isinstance(value, dict):
        yield ParameterProblem(path, f"expected an object, got {_format_value(value)}")
        return
    fields = {field.encode_name: field for field in schema_type.fields}
    if schema_type.__class__ is inspect.StructType and schema_type.tag_field:
        fields.setdefault(schema_type.tag_field, None)
    for name, each in value.items():
        if name not in fields:
            yield ParameterProblem(_join_path(path, name), f"unknown field{_suggest_name(name, fields)}")
        elif fields[name] is not None:
            yield from _find_problems(each, fields[name].type, _join_path(path, name))
    for name, field in fields.items():
        if field is not None and field.required and name not in value:
            yield ParameterProblem(_join_path(path, name), "required, but not given")


def _check_list(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    if not isinstance(value, list):
        yield ParameterProblem(path, f"expected a list, got {_format_value(value)}")
        return
    for position, each in enumerate(value):
        yield from _find_problems(each, schema_type.item_type, f"{path}[{position}]")


def _check_dict(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    if not isinstance(value, dict):
        yield ParameterProblem(path, f"expected an object, got {_format_value(value)}")
        return
    for name, each in value.items():
        yield from _find_problems(each, schema_type.value_type, f"{path}[{name}]")


def _check_enum(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    allowed = [each.value for each in schema_type.cls]
    if value not in allowed:
        yield ParameterProblem(path, f"expected one of {_format_values(allowed)}, got {_format_value(value)}")


def _check_literal(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    if value not in schema_type.values or isinstance(value, bool):
        yield ParameterProblem(
            path, f"expected one of {_format_values(schema_type.values)}, got {_format_value(value)}"
        )


def _check_scalar(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    expected, kinds = _SCALAR_TYPES[type(schema_type)]
    is_valid = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if not is_valid:
        yield ParameterProblem(path, f"expected {expected}, got {_format_value(value)}")


def _check_union(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    alternatives = [each for each in schema_type.types if value is None or type(each) is not inspect.NoneType]
    found = [list(_find_problems(value, each, path)) for each in alternatives]
    if not all(found):
        return
    if len(found) == 1:
        yield from found[0]
        return
    # The alternative whose problems are deepest is probably the one that was meant.
    deepest = max(found, key=lambda each: max(len(problem.path) for problem in each))
    if any(len(problem.path) > len(path) for problem in deepest):
        yield from deepest
        return
    texts = [each[0].text.partition(", got ")[0].removeprefix("expected ") for each in found]
    yield ParameterProblem(path, f"expected {' or '.join(dict.fromkeys(texts))}, got {_format_value(value)}")


def _check_quantity(value: Any, schema_type: Any, path: str) -> Iterator[ParameterProblem]:
    if schema_type.cls is not Quantity:
        return
    try:
        Quantity.from_json_value(value)
    except (QuantityError, TypeError) as wrong:
        yield ParameterProblem(path, f"expected an amount, for example `20Gi`: {wrong}")


_SCALAR_TYPES: Final[Mapping[type, tuple[str, tuple[type, ...]]]] = {
    inspect.StrType: ("a text", (str,)),
    inspect.IntType: ("a whole number", (int,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.BoolType: ("true or false", (bool,)),
    inspect.NoneType: ("null", (type(None),)),
}
_CHECKS_BY_TYPE: Final[Mapping[type, Any]] = {
    inspect.StructType: _check_struct,
    inspect.DataclassType: _check_struct,
    inspect.TypedDictType: _check_struct,
    inspect.ListType: _check_list,
    inspect.VarTupleType: _check_list,
    inspect.SetType: _check_list,
    inspect.FrozenSetType: _check_list,
    inspect.DictType: _check_dict,
    inspect.EnumType: _check_enum,
    inspect.LiteralType: _check_literal,
    inspect.UnionType: _check_union,
    inspect.CustomType: _check_quantity,
    **dict.fromkeys(_SCALAR_TYPES, _check_scalar),
}
"""Other types are left to msgspec, which reports one problem at a time."""


# --- decoding and messages ---


def _decode_custom(kind: type, value: Any) -> Any:
    if kind is Quantity:
        return Quantity.from_json_value(value)
    raise TypeError(f"a schema with `{kind.__name__}` cannot be decoded; use a struct or a plain type")


def _build_custom_schema(kind: type) -> dict[str, Any]:
    if kind is Quantity:
        return {"type": "string", "description": "an amount, for example `20Gi`"}
    raise TypeError(f"a schema with `{kind.__name__}` has no JSON Schema; use a struct or a plain type")


def _convert_error(wrong: msgspec.ValidationError, path: str) -> InvalidParametersError:
    match = _ERROR_PATH.match(str(wrong))
    text, subpath = (match["text"], match["path"]) if match else (str(wrong), "")
    return _make_error((path + subpath).lstrip("."), text[:1].lower() + text[1:])


def _make_error(path: str, text: str) -> InvalidParametersError:
    return InvalidParametersError((ParameterProblem(path, text),))


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _format_values(values: Any) -> str:
    return ", ".join(f"`{each}`" for each in values)


def _suggest_name(name: str, known: Mapping[str, Any]) -> str:
    suggestions = difflib.get_close_matches(name, known, n=1)
    if suggestions:
        return f"; did you mean `{suggestions[0]}`?"
    return f"; expected one of {_format_values(known)}" if known else ""


def _format_value(value: Any) -> str:
    text = msgspec.json.encode(value).decode("utf-8", "replace")
    return f"`{text if len(text) <= 64 else text[:60] + '…'}`"
