"""Functions that read an object or a document leave it unchanged."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import codec, conversion, decode_report, field_patterns
from dray.api.json_text import find_non_json_values, write_json
from dray.api.kinds import KINDS, Kind
from dray.api.strategies.defaults import apply_defaults
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.api.validation import (
    collect_warnings,
    validate_create,
    validate_status_update,
    validate_stored,
    validate_update,
)
from tests.effort import effort
from tests.property.strategies.api import CLOSED, documents, objects

fewer = effort(0.25)


def exact(value: Any) -> str:
    """Everything there is to see of a document: order, types, digits."""
    return repr(value)


def asked_of_documents(kind: Kind, version: str, document: dict[str, Any]) -> None:
    codec.decode_document(document)
    codec.decode_document({**document, "zzz": None, "yyy": 1})
    decode_report.check_document(document, conversion.get_struct_type(kind, version))
    find_non_json_values(document)
    conversion.normalize_document(kind, document)
    conversion.convert_to_internal(kind, version, document)
    conversion.convert_from_internal(kind, version, conversion.convert_to_internal(kind, version, document))
    for rows in GATED_FIELDS.values():
        for pattern in rows.get(kind.qualified_name, ()):
            field_patterns.find_fields(document, pattern)
            field_patterns.clear_fields(document, pattern)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
@fewer
@given(data=st.data())
def test_documents_are_left_as_they_were(kind, data):
    version = data.draw(st.sampled_from(kind.versions))
    document = (
        data.draw(documents(kind)) if kind.open else codec.to_document(data.draw(objects(kind)), version)
    )
    before = exact(document)
    asked_of_documents(kind, version, document)
    assert exact(document) == before


@pytest.mark.parametrize("kind", CLOSED, ids=lambda kind: kind.qualified_name)
@fewer
@given(data=st.data())
def test_objects_are_left_as_they_were(kind, data):
    obj, other = data.draw(objects(kind)), data.draw(objects(kind))
    twin, before = copy.deepcopy(obj), write_json(obj)
    apply_defaults(obj, now="2026-01-01T00:00:00Z")
    for version in kind.versions:
        codec.encode(obj, version)
        codec.to_document(obj, version)
    validate_create(obj)
    validate_stored(obj)
    validate_update(obj, other)
    validate_status_update(obj, other)
    collect_warnings(obj)
    for rows in GATED_FIELDS.values():
        for pattern in rows.get(kind.qualified_name, ()):
            field_patterns.clear_fields(obj, pattern)
    assert obj == twin
    assert write_json(obj) == before == write_json(twin)
