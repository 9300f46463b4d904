"""Laws of field sets: they are sets of paths, and writing them down loses nothing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dray.api.kinds import KINDS
from dray.server.patch.managed_fields.apply import taken_out
from dray.server.patch.managed_fields.field_comparison import compare, fields_of
from dray.server.patch.managed_fields.field_set import FieldSet
from dray.server.patch.schema.kind_structures import structure_of
from tests.effort import effort
from tests.property.strategies.patches import pods

(POD,) = (kind for kind in KINDS if (kind.group, kind.name) == ("", "Pod"))
STRUCTURE = structure_of(POD)

fewer = effort(0.5)

steps = st.sampled_from(
    ["f:a", "f:b", 'k:{"name":"x"}', 'k:{"n":1,"p":"TCP"}', 'v:"x"', "v:1", "i:0", "i:12"]
)
trees: st.SearchStrategy[dict] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(steps | st.just("."), inner, max_size=4), max_leaves=10
)
sets = trees.map(FieldSet.parse)


def paths(fields):
    return set(fields.paths())


@given(sets)
def test_a_set_survives_being_written(fields):
    emitted = fields.emit()
    assert FieldSet.parse(json.loads(json.dumps(emitted))) == fields
    assert json.dumps(FieldSet.parse(emitted).emit()) == json.dumps(emitted)
    assert len(fields.paths()) == len(paths(fields))


@given(sets, sets)
def test_sets_are_sets_of_paths(a, b):
    assert paths(a.union(b)) == paths(a) | paths(b)
    assert paths(a.intersection(b)) == paths(a) & paths(b)
    assert paths(a.difference(b)) == paths(a) - paths(b)
    assert a.contains(b) == (paths(a) >= paths(b))
    assert (a == b) == (paths(a) == paths(b))
    assert bool(a) == bool(paths(a))


@given(sets, sets)
def test_a_set_is_its_parts(a, b):
    assert a.difference(b).union(a.intersection(b)) == a
    assert a.union(b).difference(b) == a.difference(b)


@fewer
@given(pods(), pods())
def test_a_comparison_turns_around(a, b):
    there, back = compare(STRUCTURE, a, b), compare(STRUCTURE, b, a)
    assert not FieldSet(there.changed).intersection(FieldSet(there.removed))
    assert FieldSet(there.changed).contains(FieldSet(back.removed))
    assert (there == ({}, {})) == (back == ({}, {}))


@fewer
@given(pods())
def test_what_is_named_is_what_is_new(pod):
    """Everything a configuration names counts as new where nothing was; beside it only what holds it."""
    named, new = FieldSet(fields_of(STRUCTURE, pod)), FieldSet(compare(STRUCTURE, {}, pod).changed)
    always = {".spec", ".spec.containers", ".metadata"}
    assert paths(named) - paths(new) <= always


@fewer
@given(pods(), pods())
def test_what_is_taken_out_is_gone_and_nothing_else(pod, other):
    fields = FieldSet(fields_of(STRUCTURE, other)).tree
    rest = taken_out(STRUCTURE, pod, fields)
    left = FieldSet(fields_of(STRUCTURE, rest))
    kept = {path for path in paths(FieldSet(fields_of(STRUCTURE, pod))) if not covered(path, fields)}
    assert kept <= paths(left)
    assert not any(covered(path, fields) for path in paths(left))
    emptied = paths(left) - kept
    assert all(any(path.startswith(one) for path in FieldSet(fields).paths()) for one in emptied)


def covered(path, fields):
    """Whether a path is a member of the set or stands below one."""
    return any(path == one or path.startswith((one + ".", one + "[")) for one in FieldSet(fields).paths())
