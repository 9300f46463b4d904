"""The table of validation rules per kind."""

from __future__ import annotations

import pytest

from dray.api.kinds import KINDS
from dray.api.validation import (
    collect_warnings,
    validate_create,
    validate_status_update,
    validate_stored,
    validate_update,
)
from dray.api.validation.kind_rules import RULES_BY_TYPE
from tests.unit.api.validation.building import found


def test_every_kind_with_rules_is_a_kind():
    assert RULES_BY_TYPE.keys() <= {kind.type for kind in KINDS}


def test_every_closed_kind_has_rules():
    assert {kind.type for kind in KINDS if not kind.open} <= RULES_BY_TYPE.keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
def test_an_empty_object_of_every_kind_is_validated(kind):
    empty = kind.type()
    assert "Required metadata.name" in found(validate_create(empty))
    assert "Required metadata.name" in found(validate_stored(empty))
    assert found(validate_update(empty, empty)) == []
    assert found(validate_status_update(empty, empty)) == []
    collect_warnings(empty)
