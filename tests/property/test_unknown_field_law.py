"""An object with a field that we do not understand takes part in no allocation, wherever the field stands.

The field is put into any struct under `spec` of a claim, a slice or a class, and the object comes from a
server. The claim gets nothing; the devices of the pool of the slice, and those of the class, go to nobody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import inspect

from dray.allocator.inventory import pool_views
from dray.allocator.requests import normalize_claims
from dray.api import codec
from dray.api.json_text import write_json
from dray.api.kinds import get_kind_by_type
from dray.api.unknown_fields import list_unknown_fields
from dray.client.response_decoding import ResponseDecoder
from dray.errors import UnanswerableClaimError
from tests.brute.laws import inventory_of, results_of
from tests.property.strategies.problems import problems

Place = tuple[str | int, ...]
NAME = "tomorrow"


def list_structs(value: Any, kind: inspect.Type, place: Place) -> list[Place]:
    """Where structs stand in a document."""
    match kind:
        case inspect.Metadata(type=inner):
            return list_structs(value, inner, place)
        case inspect.UnionType(types=members):
            inner = next(member for member in members if not isinstance(member, inspect.NoneType))
            return list_structs(value, inner, place)
        case inspect.StructType(fields=fields):
            below = [(field.encode_name, field.type) for field in fields if field.encode_name in value]
            inside = [list_structs(value[name], shape, (*place, name)) for name, shape in below]
            return [place, *(found for each in inside for found in each)]
        case inspect.VarTupleType(item_type=inner):
            return [found for i, item in enumerate(value) for found in list_structs(item, inner, (*place, i))]
        case inspect.DictType(value_type=inner):
            return [found for key in value for found in list_structs(value[key], inner, (*place, key))]
    return []


def add_field(obj: Any, data: st.DataObject) -> Any:
    """The object as a server sends it, with another field somewhere under `spec`."""
    document = codec.to_document(obj)
    shape = inspect.type_info(type(obj))
    assert isinstance(shape, inspect.StructType)
    shapes = {field.encode_name: field.type for field in shape.fields}
    document.setdefault("spec", {})
    target = document["spec"]
    for step in data.draw(st.sampled_from(list_structs(target, shapes["spec"], ()))):
        target = target[step]
    target[NAME] = data.draw(st.sampled_from([True, 1, "x", [], {"y": 1}]))
    received = ResponseDecoder(get_kind_by_type(type(obj)), "v1").decode_object(write_json(document))
    assert [path.rpartition(".")[2] for path in list_unknown_fields(received)] == [NAME]
    return received


def exchange(objects: tuple[Any, ...], data: st.DataObject) -> tuple[tuple[Any, ...], Any]:
    """The objects, one of them with another field; and that one."""
    assume(objects)
    chosen = data.draw(st.sampled_from(range(len(objects))))
    received = add_field(objects[chosen], data)
    return (*objects[:chosen], received, *objects[chosen + 1 :]), received


@given(problem=problems, data=st.data())
def test_a_claim_with_an_unknown_field_gets_nothing(problem, data):
    claims, _ = exchange(problem.claims, data)
    with pytest.raises(UnanswerableClaimError):
        normalize_claims(claims, inventory_of(problem).classes.get)
    assert results_of(replace(problem, claims=claims)) is None


@given(problem=problems, data=st.data())
def test_a_class_with_an_unknown_field_gives_nothing(problem, data):
    classes, received = exchange(problem.classes, data)
    asked = {
        each.device_class_name
        for claim in problem.claims
        for request in claim.spec.devices.requests
        for each in (*request.first_available, *((request.exactly,) if request.exactly else ()))
    }
    if received.metadata.name in asked:
        assert results_of(replace(problem, classes=classes)) is None


def find_used(problem, data) -> set[tuple[str, str]]:
    """Pools of which something is allocated although one of its slices has another field."""
    slices, received = exchange(problem.slices, data)
    changed = replace(problem, slices=slices)
    results = results_of(changed) or ()
    newest = max(
        each.spec.pool.generation
        for each in slices
        if (each.spec.driver, each.spec.pool.name) == (received.spec.driver, received.spec.pool.name)
    )
    assume(received.spec.pool.generation == newest)
    used = {(item.driver, item.pool) for one in results for item in one.devices.results}
    return used & {(received.spec.driver, received.spec.pool.name)}


@given(problem=problems, data=st.data())
def test_nobody_gets_a_device_of_a_pool_with_an_unknown_field(problem, data):
    assert not find_used(problem, data)


def test_the_law_detects_an_inventory_that_ignores_the_field(monkeypatch):
    monkeypatch.setattr(pool_views, "list_unknown_fields", lambda _slice: ())
    with pytest.raises(AssertionError):
        test_nobody_gets_a_device_of_a_pool_with_an_unknown_field()
