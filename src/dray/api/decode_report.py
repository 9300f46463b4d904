"""Decode report: everything in a document that does not fit the type it is decoded into.

Theory of operation: the decoder stops at the first problem, which is right for speed and wrong for people.
When it refuses a document, `check_document` walks the document beside the expected type and collects every
unknown field (with the nearest known name) and every value of a wrong type, with exact paths. It also returns
the document without what Go's decoder would ignore (nulls, unknown fields), so that the rest can still be
used.

Rules for this file: it depends on types, not on kinds; it never validates values (see `validation`).
"""

from __future__ import annotations

import base64
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from msgspec import inspect, structs

from dray.api.fields import (
    ROOT,
    FieldError,
    FieldErrorType,
    FieldPath,
    MalformedQuantity,
    TypeMismatch,
    invalid,
)
from dray.api.json_text import MAX_DEPTH, find_non_json_values
from dray.api.meta import MICRO_TIME
from dray.values.cache_bounds import CacheBound
from dray.values.quantity import Quantity, QuantityError

__all__ = [
    "MAX_DEPTH",
    "DecodeReport",
    "UnknownField",
    "check_document",
    "describe_json_type",
    "list_field_names",
]

MAX_SUGGESTIONS = 100
"""Finding similar names takes time, and nobody reads that many suggestions."""


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field the type does not have."""

    path: str
    name: str
    suggestion: str | None = None
    known_fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f'unknown field "{self.path}"'
        return f"{text}; did you mean `{self.suggestion}`?" if self.suggestion else text


@dataclass(slots=True)
class DecodeReport:
    """The findings of one walk over a document; filled during the walk."""

    unknown_fields: list[UnknownField] = field(default_factory=list)
    type_errors: list[FieldError] = field(default_factory=list)


def check_document(document: Any, expected_type: type, path: FieldPath = ROOT) -> tuple[Any, DecodeReport]:
    """Return the part of a document that fits a type, and a report of everything that does not."""
    findings = DecodeReport()
    return _fit(document, _inspect_type(expected_type), path, findings, 0), findings


@lru_cache(maxsize=512)
def _inspect_type(struct_type: type) -> inspect.Type:
    return inspect.type_info(struct_type)


_HIDDEN: Final = "<hidden>"
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})((?:\.[0-9]+)?)(Z|[+-][0-9]{2}:[0-9]{2})\Z"
)

STRUCT_FIELDS: Final = CacheBound("fields of structs", 512, "the process")
_FIELDS: dict[type, Mapping[str, inspect.Type]] = {}


def _get_struct_fields(kind: inspect.StructType) -> Mapping[str, inspect.Type]:
    """Map the fields of a struct by their names on the wire; computed once for each struct."""
    found = _FIELDS.get(kind.cls)
    if found is None:
        fields = MappingProxyType({f.encode_name: f.type for f in kind.fields})
        found = STRUCT_FIELDS.put(_FIELDS, kind.cls, fields)
    return found


@lru_cache(maxsize=512)
def list_field_names(struct_type: type) -> tuple[str, ...]:
    """Return the names of a struct's fields on the wire, in order."""
    return tuple(known.encode_name for known in structs.fields(struct_type))


def _fit(value: Any, kind: inspect.Type, path: FieldPath, findings: DecodeReport, depth: int) -> Any:
    if depth > MAX_DEPTH:
        _report_wrong_type(findings, path, value, f"at most {MAX_DEPTH} levels of nesting")
        return None
    match kind:
        case inspect.Metadata(extra={"leaf": leaf}):
            return _fit_time(value, leaf, path, findings)
        case inspect.Metadata(type=inner):
            return _fit(value, inner, path, findings, depth)
        case inspect.UnionType(types=members):
            return _fit_union(value, members, path, findings, depth)
        case inspect.StructType():
            return _fit_struct(value, kind, path, findings, depth)
        case inspect.DictType():
            return _fit_map(value, kind, path, findings, depth)
        case inspect.VarTupleType() | inspect.ListType():
            return _fit_list(value, kind, path, findings, depth)
        case inspect.BytesType():
            return _fit_bytes(value, path, findings)
        case inspect.CustomType(cls=cls) if cls is Quantity:
            return _fit_quantity(value, path, findings)
        case inspect.RawType() | inspect.AnyType():
            return _fit_opaque(value, path, findings)
        case _:
            return _fit_scalar(value, kind, path, findings)


def _fit_union(
    value: Any, members: Sequence[inspect.Type], path: FieldPath, findings: DecodeReport, depth: int
) -> Any:
    """Fit a value into one of several types: nothing or one type, or a number or text."""
    if value is None:
        return None
    inner = [member for member in members if not isinstance(member, inspect.NoneType)]
    if len(inner) == 1:
        return _fit(value, inner[0], path, findings, depth)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return _report_wrong_type(findings, path, value, "an integer or a string")
    member = next(each for each in inner if isinstance(each, inspect.StrType) is isinstance(value, str))
    return _fit(value, member, path, findings, depth)


def _fit_struct(
    value: Any, kind: inspect.StructType, path: FieldPath, findings: DecodeReport, depth: int
) -> Any:
    if not isinstance(value, dict):
        return _report_wrong_type(findings, path, value, "an object")
    known = _get_struct_fields(kind)
    fitted: dict[str, Any] = {}
    for name, item in value.items():
        child = path.child(str(name))
        if name not in known:
            if kind.forbid_unknown_fields:
                findings.unknown_fields.append(
                    _build_unknown_field(child, str(name), known, len(findings.unknown_fields))
                )
        elif item is not None:
            fitted[name] = _fit(item, known[name], child, findings, depth + 1)
    return {name: item for name, item in fitted.items() if item is not None}


def _fit_map(value: Any, kind: inspect.DictType, path: FieldPath, findings: DecodeReport, depth: int) -> Any:
    if not isinstance(value, dict):
        return _report_wrong_type(findings, path, value, "a map")
    fitted: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            _report_wrong_type(findings, path.key(str(key)), key, "a string as key")
        else:
            # Null means the zero value here: Go writes it as an empty entry, not as no entry.
            given = _get_zero_value(kind.value_type) if item is None else item
            fitted[key] = _fit(given, kind.value_type, path.key(key), findings, depth + 1)
    return fitted


def _fit_list(
    value: Any,
    kind: inspect.VarTupleType | inspect.ListType,
    path: FieldPath,
    findings: DecodeReport,
    depth: int,
) -> Any:
    if not isinstance(value, list | tuple):
        return _report_wrong_type(findings, path, value, "a list")
    zero = _get_zero_value(kind.item_type)
    return [
        _fit(zero if item is None else item, kind.item_type, path.index(i), findings, depth + 1)
        for i, item in enumerate(value)
    ]


def _get_zero_value(kind: inspect.Type) -> Any:
    """Return what null means inside a list or map: the zero value of the type, or None."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return {}
        case inspect.StrType() | inspect.BytesType():
            return ""
        case inspect.VarTupleType() | inspect.ListType():
            return []
        case inspect.BoolType():
            return False
        case inspect.IntType() | inspect.UnionType(types=(inspect.IntType(), inspect.StrType())):
            return 0
        case inspect.CustomType():
            return "0"
        case _:
            return None


def _fit_quantity(value: Any, path: FieldPath, findings: DecodeReport) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal | float):
        return _report_wrong_type(findings, path, value, "a quantity, for example `10Gi` or `500m`")
    try:
        return str(Quantity.parse(value if isinstance(value, str | int) else str(value)))
    except QuantityError as refused:
        malformed = MalformedQuantity(refused.problem, refused.hint)
        findings.type_errors.append(invalid(path, value, str(refused), malformed))
        return None


def _fit_time(value: Any, leaf: str, path: FieldPath, findings: DecodeReport) -> Any:
    """Fit a time, and return it as Go writes it: in UTC, with as many digits as its type has."""
    is_micro = leaf == MICRO_TIME
    moment = _parse_time(value, is_micro) if isinstance(value, str) else None
    if moment is None:
        digits = ".000000" if is_micro else ""
        return _report_wrong_type(
            findings, path, value, f"a time as RFC 3339, for example `2026-01-31T12:00:00{digits}Z`"
        )
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if is_micro else "%Y-%m-%dT%H:%M:%SZ").rjust(
        27 if is_micro else 20, "0"
    )


def _parse_time(text: str, is_micro: bool) -> datetime | None:
    found = _TIME.match(text)
    if found is None or (is_micro and len(found.group(2)) != len(".000000")):
        return None
    try:
        # Python reads six digits; Go reads nine and drops the last three.
        return datetime.fromisoformat(found.group(1) + found.group(2)[:7] + found.group(3)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _fit_bytes(value: Any, path: FieldPath, findings: DecodeReport) -> Any:
    """Fit bytes in Base64, in which Go ignores line ends; they may be secret, so no message repeats them."""
    if isinstance(value, str):
        try:
            content = base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
        except ValueError:
            return _report_wrong_type(findings, path, _HIDDEN, "bytes in Base64", "a string that is not")
        return base64.b64encode(content).decode()
    return _report_wrong_type(findings, path, value, "a string with bytes in Base64")


def _fit_opaque(value: Any, path: FieldPath, findings: DecodeReport) -> Any:
    """Keep everything in an opaque value; it must only be JSON."""
    errors = find_non_json_values(value, path)
    findings.type_errors += errors
    return None if errors else value


_SCALARS: tuple[tuple[type[inspect.Type], type, str], ...] = (
    (inspect.StrType, str, "a string"),
    (inspect.BoolType, bool, "`true` or `false`"),
    (inspect.IntType, int, "an integer"),
)


def _fit_scalar(value: Any, kind: inspect.Type, path: FieldPath, findings: DecodeReport) -> Any:
    for scalar_type, python, expected in _SCALARS:
        if isinstance(kind, scalar_type):
            if not isinstance(value, python) or (python is int and isinstance(value, bool)):
                return _report_wrong_type(findings, path, value, expected)
            break
    if isinstance(kind, inspect.IntType) and not (kind.ge or value) <= value <= (kind.le or value):
        return _report_wrong_type(findings, path, value, f"an integer of {_count_bits(kind)} bits")
    if isinstance(kind, inspect.StrType):
        if kind.pattern is not None and not re.match(kind.pattern, value):
            return _report_wrong_type(
                findings, path, value, "a time as RFC 3339, for example `2026-01-31T12:00:00Z`"
            )
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return _report_wrong_type(findings, path, ascii(value), "text that is valid Unicode")
    return value


def _count_bits(kind: inspect.IntType) -> int:
    return (kind.le or 0).bit_length() + 1


def describe_json_type(value: Any) -> str:
    """Name the JSON type of a plain value as messages do."""
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _report_wrong_type(
    findings: DecodeReport, path: FieldPath, value: Any, expected: str, got: str = ""
) -> None:
    found = got or describe_json_type(value)
    shown = value if isinstance(value, str | int | float | bool | None) else f"<{found}>"
    detail, mismatch = f"expected {expected}, got {found}", TypeMismatch(expected, found)
    findings.type_errors.append(FieldError(FieldErrorType.TYPE_INVALID, str(path), shown, detail, mismatch))


_JSON_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    tuple: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    bool: "a boolean",
    type(None): "null",
}


def _build_unknown_field(path: FieldPath, name: str, known: Iterable[str], before: int) -> UnknownField:
    names = tuple(known)
    near = _find_similar_name(name, names) if before < MAX_SUGGESTIONS else None
    return UnknownField(str(path), name, near, names)


def _find_similar_name(name: str, known: tuple[str, ...]) -> str | None:
    lowered = {candidate.lower(): candidate for candidate in known}
    near = lowered.get(name.lower().replace("_", "").replace("-", ""))
    if near is None:
        matches = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        near = matches[0] if matches else None
    return near
