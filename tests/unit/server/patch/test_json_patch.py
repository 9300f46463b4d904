"""JSON patches do what RFC 6902 says, and refuse with a code and a reason."""

from __future__ import annotations

import copy

import pytest

from dray.server.patch import json_patch
from dray.server.patch.errors import CANNOT_APPLY, PatchError

APPLIED = {
    "add a member": ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    "add over a member": ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
    "add into a list": ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    "add at the end": ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    "add after the last": ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
    "add null": ({}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
    "add the whole": ({"a": 1}, [{"op": "add", "path": "", "value": {"b": 2}}], {"b": 2}),
    "remove a member": ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    "remove from a list": ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
    "remove the last": ({"a": [1, 2]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1]}),
    "replace a member": ({"a": {"b": 1}}, [{"op": "replace", "path": "/a/b", "value": 2}], {"a": {"b": 2}}),
    "replace in a list": ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
    "replace the whole": ({"a": 1}, [{"op": "replace", "path": "", "value": {}}], {}),
    "move a member": (
        {"a": {"x": 1}, "b": {}},
        [{"op": "move", "from": "/a/x", "path": "/b/y"}],
        {"a": {}, "b": {"y": 1}},
    ),
    "move in a list": ({"a": [1, 2, 3]}, [{"op": "move", "from": "/a/0", "path": "/a/2"}], {"a": [2, 3, 1]}),
    "move to itself": ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    "copy": ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
    "change a copy": (
        {"a": {"x": [1]}},
        [
            {"op": "add", "path": "/a/x/-", "value": 2},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "add", "path": "/b/x/-", "value": 3},
        ],
        {"a": {"x": [1, 2]}, "b": {"x": [1, 2, 3]}},
    ),
    "test": (
        {"a": [1, {"b": None}]},
        [{"op": "test", "path": "/a", "value": [1, {"b": None}]}],
        {"a": [1, {"b": None}]},
    ),
    "test for nothing": ({}, [{"op": "test", "path": "/a", "value": None}], {}),
    "escaped names": (
        {"a/b": 1, "m~n": 2, "": 3},
        [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}, {"op": "remove", "path": "/"}],
        {},
    ),
    "a name that looks escaped": ({"~1": 1}, [{"op": "remove", "path": "/~01"}], {}),
    "a number as a name": ({"0": 1}, [{"op": "replace", "path": "/0", "value": 2}], {"0": 2}),
    "unknown members of an operation": ({}, [{"op": "add", "path": "/a", "value": 1, "why": "x"}], {"a": 1}),
    "no operations": ({"a": 1}, [], {"a": 1}),
}

REFUSED = {
    "a failed test": ({"a": 1}, [{"op": "test", "path": "/a", "value": 2}], 422, "another one"),
    "true is not one": ({"a": 1}, [{"op": "test", "path": "/a", "value": True}], 422, "another one"),
    "a test of nothing": ({}, [{"op": "test", "path": "/a", "value": 2}], 422, "no `a`"),
    "remove what is absent": ({}, [{"op": "remove", "path": "/a"}], 422, "no `a`"),
    "remove the whole": ({}, [{"op": "remove", "path": ""}], 422, "whole document"),
    "replace what is absent": ({}, [{"op": "replace", "path": "/a", "value": 1}], 422, "no `a`"),
    "add below nothing": ({}, [{"op": "add", "path": "/a/b", "value": 1}], 422, "no `a`"),
    "add below a value": ({"a": 1}, [{"op": "add", "path": "/a/b", "value": 1}], 422, "neither"),
    "add beyond the end": (
        {"a": [1]},
        [{"op": "add", "path": "/a/2", "value": 1}],
        422,
        "outside a list of 1",
    ),
    "a position with a zero": ({"a": [1, 2]}, [{"op": "remove", "path": "/a/01"}], 422, "not a position"),
    "remove after the last": ({"a": [1]}, [{"op": "remove", "path": "/a/-"}], 422, "not a position"),
    "a name in a list": ({"a": [1]}, [{"op": "remove", "path": "/a/x"}], 422, "not a position"),
    "move into itself": ({"a": {}}, [{"op": "move", "from": "/a", "path": "/a/b"}], 422, "into itself"),
    "move what is absent": ({}, [{"op": "move", "from": "/a", "path": "/b"}], 422, "no `a`"),
    "a list as the whole": ({}, [{"op": "add", "path": "", "value": []}], 422, "no longer an object"),
    "which operation": (
        {},
        [{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b~1c"}],
        422,
        "operation 1 (`remove` `/b~1c`)",
    ),
    "not a list": ({}, {"a": 1}, 400, "list of operations"),
    "not an object": ({}, ["add"], 400, "operation 0"),
    "an unknown operation": ({}, [{"op": "inc", "path": "/a"}], 422, "unknown `op` `inc`"),
    "no operation": ({}, [{"path": "/a"}], 422, "unknown `op`"),
    "no path": ({}, [{"op": "add", "value": 1}], 422, "`path` is missing"),
    "no value": ({}, [{"op": "add", "path": "/a"}], 422, "`value` is missing"),
    "no source": ({}, [{"op": "copy", "path": "/a"}], 422, "`from` is missing"),
    "not a pointer": ({}, [{"op": "add", "path": "a", "value": 1}], 422, "not a JSON pointer"),
    "a broken escape": ({}, [{"op": "add", "path": "/a~2", "value": 1}], 422, "not a JSON pointer"),
    "a pointer that is none": ({}, [{"op": "add", "path": 7, "value": 1}], 422, "not a JSON pointer"),
    "a deep pointer": ({}, [{"op": "add", "path": "/a" * 101, "value": 1}], 400, "100 levels"),
    "too many": ({}, [{"op": "test", "path": "/a", "value": None}] * 10_001, 413, "10000, got 10001"),
    "deeper and deeper": ({"a": {}}, [{"op": "copy", "from": "/a", "path": "/a/a"}] * 200, 422, "100 levels"),
    "larger and larger": (
        {"a": ["x" * 1000]},
        [{"op": "copy", "from": "/a", "path": "/a/-"}] * 20,
        413,
        "3145728",
    ),
}


@pytest.mark.parametrize(("document", "patch", "result"), APPLIED.values(), ids=APPLIED)
def test_a_patch_is_applied(document, patch, result):
    before = copy.deepcopy((document, patch))
    assert json_patch.apply(document, patch) == result
    assert (document, patch) == before


@pytest.mark.parametrize(("document", "patch", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_patch_is_refused(document, patch, code, words):
    before = copy.deepcopy(document)
    with pytest.raises(PatchError) as refused:
        json_patch.apply(document, patch)
    assert refused.value.code == code
    assert words in refused.value.message
    assert (code == 422) == refused.value.message.startswith(CANNOT_APPLY)
    assert document == before
