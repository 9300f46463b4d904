"""An object survives conversion through every served version, in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import codec
from tests.property.strategies.api import CLOSED, objects

ROUTES = [(kind, version) for kind in CLOSED for version in kind.versions]


@pytest.mark.req("K4816-110")
@pytest.mark.parametrize(("kind", "version"), ROUTES, ids=lambda item: getattr(item, "qualified_name", item))
@given(data=st.data())
def test_V01_a_round_trip_loses_nothing(kind, version, data):  # noqa: N802
    obj = data.draw(objects(kind))
    there = codec.encode(obj, version)
    decoded = codec.decode(there)
    assert (decoded.kind, decoded.version, decoded.unknown_fields) == (kind, version, ())
    assert decoded.object == obj
    # Quantities are equal by value; the text shows that they also kept their form.
    assert codec.encode(decoded.object) == codec.encode(obj)
    assert codec.encode(decoded.object, version) == there
    assert codec.decode_document(codec.to_document(obj, version)) == decoded


@pytest.mark.req("K4816-008", "K4816-110")
@pytest.mark.parametrize(
    "kind", [kind for kind in CLOSED if len(kind.versions) > 1], ids=lambda kind: kind.qualified_name
)
@given(data=st.data())
def test_converting_through_all_versions_gives_the_same_object(kind, data):
    oldest = kind.versions[-1]
    start = codec.encode(data.draw(objects(kind)), oldest)
    text = start
    for version in (*data.draw(st.permutations(kind.versions)), "v1beta2", oldest):
        text = codec.encode(codec.decode(text).object, version)
    assert text == start
