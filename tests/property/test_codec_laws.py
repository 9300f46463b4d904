"""Properties of decoding: every path and every spelling gives the same object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import inspect

from dray.api import codec, conversion
from dray.api.json_text import find_duplicate_fields, read_json, write_json
from dray.api.kinds import KINDS, Kind
from tests.effort import effort
from tests.property.strategies.api import CLOSED, OPEN, documents, json_values, objects

ROUTES = [(kind, version) for kind in CLOSED for version in kind.versions]
each_route = pytest.mark.parametrize(
    ("kind", "version"), ROUTES, ids=lambda item: getattr(item, "qualified_name", item)
)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
fewer = effort(0.25)


def written(data: st.DataObject, kind: Kind, version: str) -> dict[str, Any]:
    return codec.to_document(data.draw(objects(kind)), version)


@each_kind
@fewer
@given(data=st.data())
def test_bytes_and_documents_mean_the_same(kind, data):
    document = data.draw(documents(kind)) if kind.open else written(data, kind, kind.version)
    assert codec.decode(write_json(document)) == codec.decode_document(document)
    indented = json.dumps(json.loads(write_json(document)), indent=3).encode()
    if read_json(indented) == document:  # the reader of the standard library rounds long fractions
        assert codec.decode(indented) == codec.decode_document(document)


@each_route
@fewer
@given(data=st.data())
def test_the_slow_path_gives_the_same_object_as_the_fast_one(kind, version, data):
    """An unknown field sends a document the careful way; what is left of it must be the same object."""
    document = written(data, kind, version)
    fast = codec.decode_document(document)
    careful = codec.decode_document({**document, "zzz": data.draw(json_values)})
    assert [field.path for field in careful.unknown_fields] == ["zzz"]
    assert careful.object == fast.object
    assert codec.encode(careful.object) == codec.encode(fast.object)


@each_route
@fewer
@given(data=st.data())
def test_null_in_a_field_is_absence(kind, version, data):
    document = written(data, kind, version)
    shape = inspect.type_info(conversion.get_struct_type(kind, version))
    sprinkled = _with_nulls(data, document, shape)
    assert codec.decode_document(sprinkled) == codec.decode_document(document)
    assert codec.decode(write_json(sprinkled)) == codec.decode(write_json(document))


@each_route
@fewer
@given(data=st.data())
def test_a_field_set_to_null_is_a_field_left_out(kind, version, data):
    document = written(data, kind, version)
    places = _struct_fields(document, inspect.type_info(conversion.get_struct_type(kind, version)), ())
    places = [place for place in places if place not in (("apiVersion",), ("kind",))]
    assume(places)
    chosen = data.draw(st.sampled_from(places))
    without, nulled = _replaced(document, chosen, remove=True), _replaced(document, chosen, remove=False)
    assert codec.decode(write_json(nulled)) == codec.decode(write_json(without))
    assert codec.decode_document(nulled) == codec.decode_document(without)


@each_kind
@fewer
@given(data=st.data())
def test_the_order_of_fields_does_not_matter(kind, data):
    document = (
        data.draw(documents(kind))
        if kind.open
        else written(data, kind, data.draw(st.sampled_from(kind.versions)))
    )
    shuffled = _shuffled(data, document)
    assert codec.decode(write_json(shuffled)).object == codec.decode(write_json(document)).object
    assert codec.decode_document(shuffled).object == codec.decode_document(document).object


@each_kind
@fewer
@given(data=st.data())
def test_open_objects_keep_unknown_fields_and_closed_ones_report_them(kind, data):
    document = data.draw(documents(kind)) if kind.open else written(data, kind, kind.version)
    decoded = codec.decode(write_json({**document, "zzz": [1]}))
    if kind in OPEN:
        assert decoded.document == {**document, "zzz": [1]}
        # The claims of pods and containers are closed: another way to name a claim must be noticed.
        assert all("laims[" in field.path for field in decoded.unknown_fields)
    else:
        assert decoded.document is None
        assert [field.path for field in decoded.unknown_fields] == ["zzz"]


@each_kind
@fewer
@given(data=st.data())
def test_a_duplicate_field_is_found(kind, data):
    document = data.draw(documents(kind)) if kind.open else written(data, kind, kind.version)
    plain = json.loads(write_json(document))
    assert find_duplicate_fields(json.dumps(plain).encode()) == ()
    places = [place for place in _fields(plain, ()) if all(isinstance(step, int) or step for step in place)]
    place = data.draw(st.sampled_from(places))
    text = json.dumps(_marked(plain, place)).replace('"\\u0001": 0', f"{json.dumps(place[-1])}: 0")
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
    assert find_duplicate_fields(text.encode()) == (shown,)


# --- walks over documents ---

Place = tuple[str | int, ...]
OPAQUE = ("parameters", "data")


def _inner(kind: inspect.Type) -> inspect.Type:
    match kind:
        case inspect.Metadata(type=inner):
            return _inner(inner)
        case inspect.UnionType(types=members):
            return _inner(next(member for member in members if not isinstance(member, inspect.NoneType)))
        case _:
            return kind


def _with_nulls(data: st.DataObject, value: Any, kind: inspect.Type) -> Any:
    """A document with null in some fields that were not there."""
    match _inner(kind):
        case inspect.StructType(fields=fields):
            absent = [field.encode_name for field in fields if field.encode_name not in value]
            chosen = data.draw(st.sets(st.sampled_from(absent), max_size=3)) if absent else ()
            known = {f.encode_name: f.type for f in fields}
            return {
                name: _with_nulls(data, item, known[name]) for name, item in value.items()
            } | dict.fromkeys(chosen)
        case inspect.VarTupleType(item_type=inner):
            return [_with_nulls(data, item, inner) for item in value]
        case inspect.DictType(value_type=inner) if not isinstance(inner, inspect.AnyType):
            return {key: _with_nulls(data, item, inner) for key, item in value.items()}
        case _:
            return value


def _struct_fields(value: Any, kind: inspect.Type, place: Place) -> list[Place]:
    """Where fields of structs stand in a document."""
    found: list[Place] = []
    match _inner(kind):
        case inspect.StructType(fields=fields):
            for field in fields:
                if field.encode_name in value:
                    below = (*place, field.encode_name)
                    found += [below, *_struct_fields(value[field.encode_name], field.type, below)]
        case inspect.VarTupleType(item_type=inner):
            for i, item in enumerate(value):
                found += _struct_fields(item, inner, (*place, i))
        case inspect.DictType(value_type=inner):
            for key, item in value.items():
                found += _struct_fields(item, inner, (*place, key))
    return found


def _replaced(value: Any, place: Place, *, remove: bool) -> Any:
    step, rest = place[0], place[1:]
    if isinstance(value, list):
        return [_replaced(item, rest, remove=remove) if i == step else item for i, item in enumerate(value)]
    if not rest:
        left = {name: item for name, item in value.items() if name != step}
        return left if remove else {**left, step: None}
    return {**value, step: _replaced(value[step], rest, remove=remove)}


def _shuffled(data: st.DataObject, value: Any) -> Any:
    if isinstance(value, dict):
        keys = data.draw(st.permutations(sorted(value))) if len(value) < 5 else sorted(value, reverse=True)
        # What is opaque is kept as it was written, the order of its fields included.
        return {key: value[key] if key in OPAQUE else _shuffled(data, value[key]) for key in keys}
    return [_shuffled(data, item) for item in value] if isinstance(value, list) else value


def _fields(value: Any, place: Place) -> list[Place]:
    found: list[Place] = []
    if isinstance(value, dict):
        for name, item in value.items():
            found += [(*place, name), *_fields(item, (*place, name))]
    elif isinstance(value, list):
        for i, item in enumerate(value):
            found += _fields(item, (*place, i))
    return found


def _marked(value: Any, place: Place) -> Any:
    """A document with one more entry, which is then renamed to the name that stands there already."""
    if len(place) == 1:
        return {**value, "\x01": 0}
    step, rest = place[0], place[1:]
    if isinstance(value, list):
        return [_marked(item, rest) if i == step else item for i, item in enumerate(value)]
    return {**value, step: _marked(value[step], rest)}
