"""Properties of merge patches, plain and strategic: idempotent, an empty patch does nothing, inputs stay."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.api.kinds import KINDS
from dray.server.patch import merge_patch, strategic_merge_patch
from tests.effort import effort
from tests.property.strategies.patches import json_objects, maps, objects_without_null, pods

POD, CONFIG = (kind for kind in KINDS if (kind.group, kind.name) in (("", "Pod"), ("", "ConfigMap")))
fewer = effort(0.5)


def difference(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that leads from one document to another."""
    patch: dict[str, Any] = {name: None for name in a if name not in b}
    for name, value in b.items():
        there = a.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            patch[name] = difference(there, value)
        elif name not in a or there != value or type(there) is not type(value):
            patch[name] = value
    return patch


@given(json_objects, json_objects)
def test_a_merge_patch_twice_is_once(document, patch):
    before = copy.deepcopy((document, patch))
    once = merge_patch.apply(document, patch)
    assert merge_patch.apply(once, patch) == once
    assert (document, patch) == before


@given(objects_without_null, objects_without_null)
def test_a_difference_leads_to_the_other_document(a, b):
    assert merge_patch.apply(a, difference(a, b)) == b


@given(json_objects)
def test_an_empty_patch_changes_nothing(document):
    assert merge_patch.apply(document, {}) == document
    assert strategic_merge_patch.apply(CONFIG, document, {}) == document


@st.composite
def strategic_patches(draw):
    """A pod as a patch, with directives here and there."""
    patch = draw(pods())
    containers = patch["spec"].get("containers", [])
    for container in containers:
        container.update(draw(st.sampled_from([{}, {}, {"image": None}, {"$patch": "delete"}])))
    if draw(st.booleans()):
        living = [{"name": one["name"]} for one in containers if "$patch" not in one]
        patch["spec"]["$setElementOrder/containers"] = living
    if draw(st.booleans()):
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = ["d"]
        patch["metadata"].pop("finalizers", None)
    if draw(st.booleans()):
        patch["metadata"]["labels"] = {"$patch": "replace", **draw(maps("abcd"))}
    return patch


@fewer
@given(pods(), strategic_patches())
def test_a_strategic_patch_twice_is_once(document, patch):
    before = copy.deepcopy((document, patch))
    once = strategic_merge_patch.apply(POD, document, patch)
    assert strategic_merge_patch.apply(POD, once, patch) == once
    assert (document, patch) == before


@fewer
@given(pods(), pods())
def test_a_strategic_patch_leaves_no_item_out_and_none_twice(document, patch):
    merged = strategic_merge_patch.apply(POD, document, patch)

    def marks(pod):
        return [one["name"] for one in pod["spec"].get("containers", [])]

    assert sorted(marks(merged)) == sorted({*marks(document), *marks(patch)})
    named = [mark for mark in marks(merged) if mark in marks(patch)]
    assert named == marks(patch)


@given(objects_without_null, objects_without_null)
def test_without_lists_to_merge_a_strategic_patch_is_a_merge_patch(a, b):
    patch = difference(a, b)
    assert strategic_merge_patch.apply(CONFIG, a, patch) == b == merge_patch.apply(a, patch)
