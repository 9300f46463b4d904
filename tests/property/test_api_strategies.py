"""The generated objects cover every field, so that no property holds because a field was never set."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dray.api import field_patterns
from dray.api.decode_report import list_field_names
from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS
from dray.gates import GATES
from tests.fieldtree import fields_of
from tests.property.strategies.api import OPEN, documents, gate_sets, structs, without


class _EnoughError(Exception):
    """Everything was seen; there is no need to generate more."""


def _look_until_empty(missing: set[str], strategy: st.SearchStrategy[dict[str, Any]]) -> None:
    """Take out of `missing` every pattern that is found in a generated document."""

    @settings(max_examples=500, phases=[Phase.generate])
    @given(strategy)
    def look(document: dict[str, Any]) -> None:
        missing.difference_update(
            [pattern for pattern in missing if field_patterns.find_fields(document, pattern)]
        )
        if not missing:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        look()


KIND_TYPES: set[type] = {kind.type for kind in KINDS}
STRUCTS = KIND_TYPES | {field.holder for kind in KINDS for field in fields_of(kind.type).values()}


@pytest.mark.parametrize("cls", sorted(STRUCTS, key=str), ids=lambda cls: cls.__name__)
def test_every_field_of_every_struct_is_generated(cls):
    """Strategies of structs are built from those of their parts, so that this holds for whole objects too."""
    missing = set(list_field_names(cls)) - ({"apiVersion", "kind"} if cls in KIND_TYPES else set())
    _look_until_empty(missing, structs(cls).map(_document))
    assert not missing


@pytest.mark.parametrize("kind", OPEN, ids=lambda kind: kind.qualified_name)
def test_unknown_fields_are_generated_in_open_documents(kind):
    missing = {"image", "zone"}
    _look_until_empty(missing, documents(kind))
    assert not missing


def _document(obj: Any) -> dict[str, Any]:
    document: dict[str, Any] = read_json(write_json(obj))
    return document


def test_every_gate_is_switched_both_ways():
    seen: set[tuple[str, bool]] = set()

    @given(gate_sets())
    def look(gates: Any) -> None:
        seen.update((gate.name, on) for gate, on in gates)

    look()
    assert seen == {(name, on) for name in GATES for on in (True, False)}


@pytest.mark.parametrize("gate", GATES)
def test_a_single_gate_can_be_off(gate):
    off = {known.name for known, on in without(gate) if not on}
    assert gate in off
    assert off - {gate} == {name for name in GATES if _needs(name, gate)}


def _needs(name: str, gate: str) -> bool:
    return gate in GATES[name].requires or any(_needs(needed, gate) for needed in GATES[name].requires)
