"""Properties of validation, for generated objects of every kind that has rules, valid or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.json_text import ENCODER
from dray.api.validation import (
    collect_warnings,
    validate_create,
    validate_status_update,
    validate_stored,
    validate_update,
)
from dray.api.validation.kind_rules import RULES_BY_TYPE
from tests.property.strategies.api import structs

every_kind = pytest.mark.parametrize("kind", RULES_BY_TYPE, ids=lambda kind: kind.__name__)


@every_kind
@given(drawn=st.data())
def test_what_does_not_change_is_not_refused_and_is_not_changed(kind, drawn):
    stored = drawn.draw(structs(kind))
    before = ENCODER.encode(stored)
    assert validate_update(stored, stored) == []
    assert validate_status_update(stored, stored) == []
    # What is remembered of sound values changes no answer.
    assert validate_stored(stored) == validate_stored(stored)
    assert ENCODER.encode(stored) == before


@every_kind
@given(drawn=st.data())
def test_every_error_can_be_printed(kind, drawn):
    new, old = drawn.draw(structs(kind)), drawn.draw(structs(kind))
    errors = validate_create(new) + validate_update(new, old) + validate_status_update(new, old)
    assert all(str(error).startswith(f"{error.path}: ") for error in errors)
    assert all(str(caution) for caution in collect_warnings(new))
