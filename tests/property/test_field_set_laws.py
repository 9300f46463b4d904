"""Properties of field sets: they are sets of paths, and encoding loses nothing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dray.api.kinds import KINDS
from dray.server.patch.managed_fields.apply import remove_fields
from dray.server.patch.managed_fields.field_comparison import collect_fields, compare_documents
from dray.server.patch.managed_fields.field_set import FieldSet
from dray.server.patch.schema.kind_structures import get_structure
from tests.effort import effort
from tests.property.strategies.patches import pods

(POD,) = (kind for kind in KINDS if (kind.group, kind.name) == ("", "Pod"))
STRUCTURE = get_structure(POD)

fewer = effort(0.5)

steps = st.sampled_from(
    ["f:a", "f:b", 'k:{"name":"x"}', 'k:{"n":1,"p":"TCP"}', 'v:"x"', "v:1", "i:0", "i:12"]
)
trees: st.SearchStrategy[dict] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(steps | st.just("."), inner, max_size=4), max_leaves=10
)
sets = trees.map(FieldSet.parse)


def paths(fields):
    return set(fields.list_paths())


@given(sets)
def test_a_set_survives_being_written(fields):
    emitted = fields.to_fields_v1()
    assert FieldSet.parse(json.loads(json.dumps(emitted))) == fields
    assert json.dumps(FieldSet.parse(emitted).to_fields_v1()) == json.dumps(emitted)
    assert len(fields.list_paths()) == len(paths(fields))


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
def test_a_comparison_is_symmetric(a, b):
    there, back = compare_documents(STRUCTURE, a, b), compare_documents(STRUCTURE, b, a)
    assert not FieldSet(there.changed).intersection(FieldSet(there.removed))
    assert FieldSet(there.changed).contains(FieldSet(back.removed))
    assert (there == ({}, {})) == (back == ({}, {}))


@fewer
@given(pods())
def test_what_is_named_is_what_is_new(pod):
    """Everything a configuration names counts as new where nothing was; beside it only what holds it."""
    named, new = (
        FieldSet(collect_fields(STRUCTURE, pod)),
        FieldSet(compare_documents(STRUCTURE, {}, pod).changed),
    )
    always = {".spec", ".spec.containers", ".metadata"}
    assert paths(named) - paths(new) <= always


@fewer
@given(pods(), pods())
def test_only_removed_paths_are_gone(pod, other):
    fields = FieldSet(collect_fields(STRUCTURE, other)).tree
    rest = remove_fields(STRUCTURE, pod, fields)
    left = FieldSet(collect_fields(STRUCTURE, rest))
    kept = {path for path in paths(FieldSet(collect_fields(STRUCTURE, pod))) if not covered(path, fields)}
    assert kept <= paths(left)
    assert not any(covered(path, fields) for path in paths(left))
    emptied = paths(left) - kept
    assert all(any(path.startswith(one) for path in FieldSet(fields).list_paths()) for one in emptied)


def covered(path, fields):
    """Whether a path is a member of the set or stands below one."""
    return any(
        path == one or path.startswith((one + ".", one + "[")) for one in FieldSet(fields).list_paths()
    )
