"""Gates of API objects: with a gate off, an object loses the gate's fields, unless it was using them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import field_patterns
from dray.api.json_text import write_json
from dray.api.kinds import KINDS, Kind
from dray.api.strategies.gated_fields import GATED_FIELDS, drop_disabled_fields
from dray.gates import GATES, GateSet
from tests.effort import effort
from tests.property.strategies.api import documents, gate_sets, objects, without

ALL_ON = GateSet.from_defaults()
GATED_KINDS = [kind for kind in KINDS if any(kind.qualified_name in rows for rows in GATED_FIELDS.values())]
each_kind = pytest.mark.parametrize("kind", GATED_KINDS, ids=lambda kind: kind.qualified_name)
each_gate = pytest.mark.parametrize("gate", GATES)
fewer = effort(0.4)


def any_of(kind: Kind) -> st.SearchStrategy[Any]:
    return documents(kind) if kind.open else objects(kind)


def fields_behind(gates: GateSet, kind: Kind) -> list[str]:
    """The patterns of a kind whose gates are off."""
    off = [gate.name for gate, on in gates if not on]
    return [pattern for gate in off for pattern in GATED_FIELDS.get(gate, {}).get(kind.qualified_name, ())]


def lacking(obj: Any, patterns: list[str]) -> Any:
    for pattern in patterns:
        obj = field_patterns.clear_fields(obj, pattern)
    return obj


@each_kind
@given(data=st.data())
def test_with_every_gate_on_nothing_is_touched(kind, data):
    new, old = data.draw(any_of(kind)), data.draw(st.none() | any_of(kind))
    kept = drop_disabled_fields(kind, new, old, ALL_ON)
    assert kept.object is new
    assert kept.dropped == ()


@pytest.mark.parametrize("gate", [gate for gate in GATES if GATED_FIELDS.get(gate)])
@fewer
@given(data=st.data())
def test_a_gate_that_is_off_equals_an_object_without_its_fields(gate, data):
    kind = data.draw(
        st.sampled_from([kind for kind in GATED_KINDS if kind.qualified_name in GATED_FIELDS[gate]])
    )
    new, gates = data.draw(any_of(kind)), without(gate)
    behind = fields_behind(gates, kind)
    bare = lacking(new, behind)
    kept = drop_disabled_fields(kind, new, None, gates)
    assert kept.object == drop_disabled_fields(kind, bare, None, ALL_ON).object
    assert drop_disabled_fields(kind, bare, None, gates).object is bare
    assert drop_disabled_fields(kind, bare, None, gates).dropped == ()
    assert all(not field_patterns.find_fields(kept.object, pattern) for pattern in behind)


@each_gate
@fewer
@given(data=st.data())
def test_a_gate_switches_nothing_but_its_own_fields(gate, data):
    kind = data.draw(st.sampled_from(GATED_KINDS))
    new, gates = data.draw(any_of(kind)), without(gate)
    behind = fields_behind(gates, kind)
    kept = drop_disabled_fields(kind, new, None, gates)
    assert lacking(kept.object, behind) == lacking(new, behind)
    if gate not in GATED_FIELDS or kind.qualified_name not in GATED_FIELDS[gate]:
        others = [pattern for pattern in behind if field_patterns.find_fields(new, pattern)]
        assert others or kept.object is new


@each_kind
@fewer
@given(data=st.data())
def test_every_dropped_field_is_reported(kind, data):
    new, gates = data.draw(any_of(kind)), data.draw(gate_sets())
    kept = drop_disabled_fields(kind, new, None, gates)
    told = {field.path for field in kept.dropped}
    there = {
        place for pattern in fields_behind(gates, kind) for place in field_patterns.find_fields(new, pattern)
    }
    # What stood inside something that was dropped went with it and is told once, by the outer field.
    assert told <= there
    assert all(any(place == path or place.startswith(path) for path in told) for place in there)
    assert all(not gates.is_enabled(field.gate) for field in kept.dropped)
    assert len(told) == len(kept.dropped)


@each_kind
@fewer
@given(data=st.data())
def test_dropping_twice_is_dropping_once(kind, data):
    new, old, gates = data.draw(any_of(kind)), data.draw(st.none() | any_of(kind)), data.draw(gate_sets())
    once = drop_disabled_fields(kind, new, old, gates).object
    again = drop_disabled_fields(kind, once, old, gates)
    assert again.object is once
    assert again.dropped == ()


@each_kind
@fewer
@given(data=st.data())
def test_what_the_old_object_used_stays(kind, data):
    new, old, gates = data.draw(any_of(kind)), data.draw(any_of(kind)), data.draw(gate_sets())
    kept = drop_disabled_fields(kind, new, old, gates)
    gone = {field.path: field.gate for field in kept.dropped}
    for gate in GATES:
        patterns = GATED_FIELDS.get(gate, {}).get(kind.qualified_name, ())
        free = gates.is_enabled(gate) or any(field_patterns.find_fields(old, pattern) for pattern in patterns)
        for pattern in patterns:
            left, there = (
                set(field_patterns.find_fields(kept.object, pattern)),
                set(field_patterns.find_fields(new, pattern)),
            )
            assert left <= there
            assert free or not left
            for place in there - left if free else ():
                # It stood inside a field of another gate.
                assert any(place.startswith(path) and other != gate for path, other in gone.items())
    # An object that is written back as it was read loses nothing, whatever the gates say now.
    assert drop_disabled_fields(kind, new, new, gates).object is new


@each_kind
@fewer
@given(data=st.data())
def test_switched_on_again_dropped_fields_do_not_come_back_but_can_be_written(kind, data):
    new, gates = data.draw(any_of(kind)), data.draw(gate_sets())
    stored = drop_disabled_fields(kind, new, None, gates).object
    assert drop_disabled_fields(kind, stored, stored, ALL_ON).object is stored
    assert drop_disabled_fields(kind, new, stored, ALL_ON).object is new


@each_kind
@fewer
@given(data=st.data())
def test_inputs_are_not_changed(kind, data):
    new, old, gates = data.draw(any_of(kind)), data.draw(any_of(kind)), data.draw(gate_sets())
    before = write_json(new), write_json(old)
    drop_disabled_fields(kind, new, old, gates)
    assert (write_json(new), write_json(old)) == before
