"""A merge patch turns what was read into what is wanted, and names nothing else."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dray.client.patches import (
    ApplyPatch,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    add_preconditions,
    build_merge_patch,
)

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.integers(0, 3) | st.booleans() | st.text("xy", max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)


def merged(target, patch):
    """RFC 7396, in its own words."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(OBJECTS, OBJECTS)
def test_an_amendment_leads_from_old_to_new(old, new):
    old, new = {"spec": old}, {"spec": new}
    patch = build_merge_patch(old, new)
    reached = old if patch is None else merged(old, json.loads(patch.encode_body()))
    assert reached["spec"] == new["spec"]
    assert (patch is None) == (old == new)


def test_an_amendment_leaves_fields_alone_that_only_the_server_knows():
    old, new = {"spec": {"a": 1, "b": {"c": 1}}}, {"spec": {"a": 1, "b": {"c": 2}}}
    patch = build_merge_patch(old, new)
    assert patch is not None
    stored = {"spec": {"a": 1, "b": {"c": 1, "newer": True}, "newest": 7}}
    assert merged(stored, json.loads(patch.encode_body())) == {
        "spec": {"a": 1, "b": {"c": 2, "newer": True}, "newest": 7}
    }


def test_the_status_is_a_part_of_its_own():
    old = {"spec": {"a": 1}, "status": {"b": 1}, "metadata": {"resourceVersion": "1", "labels": {"x": "y"}}}
    new = {"spec": {"a": 2}, "status": {"b": 2}, "metadata": {"resourceVersion": "2", "labels": {}}}
    whole, status = build_merge_patch(old, new), build_merge_patch(old, new, subresource="status")
    assert whole is not None
    assert status is not None
    assert whole.document == {"spec": {"a": 2}, "metadata": {"labels": {"x": None}}}
    assert status.document == {"status": {"b": 2}}
    assert build_merge_patch(old, old | {"status": {}}) is None


def test_managed_fields_are_the_servers_business():
    old = {"metadata": {"managedFields": [{"manager": "a"}]}}
    assert build_merge_patch(old, {"metadata": {}}) is None


def test_a_pinned_patch_insists_on_what_was_read():
    patch = add_preconditions(MergePatch({"metadata": {"labels": {"a": "b"}}, "spec": {}}), "7", "uid-1")
    assert patch.document == {
        "metadata": {"labels": {"a": "b"}, "resourceVersion": "7", "uid": "uid-1"},
        "spec": {},
    }


def test_every_patch_says_what_it_is():
    operations = [{"op": "remove", "path": "/a"}]
    assert JsonPatch(operations).content_type == "application/json-patch+json"
    assert json.loads(JsonPatch(operations).encode_body()) == operations
    assert StrategicMergePatch({}).content_type == "application/strategic-merge-patch+json"
    apply = ApplyPatch({"a": 1}, "me", force=True)
    assert apply.content_type == "application/apply-patch+yaml"
    assert apply.build_query() == {"fieldManager": "me", "force": "true"}
    assert ApplyPatch({}, "me").build_query() == {"fieldManager": "me"}
