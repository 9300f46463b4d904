"""Merge patches do what RFC 7386 says."""

from __future__ import annotations

import copy

import pytest

from dray.server.patch import merge_patch
from dray.server.patch.errors import PatchError

MERGED = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({"a": "foo"}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"a": [1]}, {"a": [None]}, {"a": [None]}),
]


@pytest.mark.parametrize(("document", "patch", "result"), MERGED)
def test_a_patch_is_merged(document, patch, result):
    before = copy.deepcopy((document, patch))
    assert merge_patch.apply(document, patch) == result
    assert (document, patch) == before


def test_a_list_is_no_merge_patch():
    with pytest.raises(PatchError) as refused:
        merge_patch.apply({}, [])
    assert refused.value.code == 400


def test_a_patch_deeper_than_any_object_is_refused():
    deep: dict = {}
    for _ in range(101):
        deep = {"a": deep}
    with pytest.raises(PatchError) as refused:
        merge_patch.apply({}, deep)
    assert refused.value.code == 400
