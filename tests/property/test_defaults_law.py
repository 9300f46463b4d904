"""Properties of defaults: applied once, never over a value that is set, in every version alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import codec, field_patterns
from dray.api.json_text import write_json
from dray.api.strategies.defaults import DEFAULTS, NOW, apply_defaults
from tests.effort import effort
from tests.property.strategies.api import CLOSED, objects

EARLY, LATE = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
each_kind = pytest.mark.parametrize("kind", CLOSED, ids=lambda kind: kind.qualified_name)
fewer = effort(0.5)


@each_kind
@fewer
@given(data=st.data())
def test_filling_twice_is_filling_once(kind, data):
    once = apply_defaults(data.draw(objects(kind)), now=EARLY)
    assert apply_defaults(once, now=LATE) is once


@each_kind
@fewer
@given(data=st.data())
def test_only_fields_of_the_table_that_were_unset_change(kind, data):
    obj = data.draw(objects(kind))
    before = write_json(obj)
    filled = apply_defaults(obj, now=EARLY)
    assert write_json(obj) == before
    bare_before, bare_after = obj, filled
    for row in DEFAULTS.get(kind.type, ()):
        said, says = field_patterns.find_fields(obj, row.field), field_patterns.find_fields(filled, row.field)
        assert set(said) <= set(says)
        bare_before = field_patterns.clear_fields(bare_before, row.field)
        bare_after = field_patterns.clear_fields(bare_after, row.field)
    assert bare_after == bare_before


@each_kind
@fewer
@given(data=st.data())
def test_set_fields_are_kept_and_unset_ones_get_the_default(kind, data):
    obj = data.draw(objects(kind))
    filled = apply_defaults(obj, now=EARLY)
    for row in DEFAULTS.get(kind.type, ()):
        value = EARLY if row.value is NOW else row.value
        attribute = row.field.rpartition(".")[2]
        pairs = zip(_holders(obj, row.field), _holders(filled, row.field), strict=True)
        for before, after in pairs:
            name = field_patterns.get_attribute_name(type(before), attribute)
            said, says = getattr(before, name), getattr(after, name)
            assert says == (said or (value if row.when(after) else said))


def _holders(obj, pattern):
    found = []

    def note(holder):
        found.append(holder)
        return holder

    field_patterns.change_holders(obj, pattern, note)
    return found


@each_kind
@fewer
@given(data=st.data())
def test_defaults_do_not_depend_on_the_version_an_object_was_written_in(kind, data):
    obj = data.draw(objects(kind))
    for version in kind.versions:
        read = codec.decode(codec.encode(obj, version)).object
        assert apply_defaults(read, now=EARLY) == apply_defaults(obj, now=EARLY)
