"""The fields of new objects: cached or not, they are what a comparison with nothing finds."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from dray.api.kinds import KINDS, Kind, get_kind
from dray.server.patch.managed_fields.created_fields import (
    MAX_CACHED_SPEC_BYTES,
    SPEC_FIELDS,
    collect_created_fields,
)
from dray.server.patch.managed_fields.field_comparison import compare_documents
from dray.server.patch.managed_fields.field_set import sort_tree
from dray.server.patch.schema.kind_structures import get_structure
from dray.values.cache_bounds import CACHE_BOUNDS

CONTAINER = {
    "name": "c",
    "image": "i",
    "env": [{"name": "B", "value": ""}, {"name": "A", "value": "1"}],
    "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 9, "protocol": "UDP"}],
    "resources": {},
}
SPECS: tuple[Any, ...] = (
    {},
    None,
    {"containers": [CONTAINER], "nodeSelector": {}, "tolerations": [{"key": "k"}]},
    {"containers": [CONTAINER, {**CONTAINER, "name": "d"}], "hostAliases": [{"ip": "::1"}], "volumes": []},
    {"containers": [{**CONTAINER, "env": [{"name": "A"}, {"name": "A"}]}]},
    {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [CONTAINER]}}},
    {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    {"hard": {"pods": "1"}, "unknown": [[1, {"a": None}], 2.5, True]},
)
PARTS: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": {"labels": {"b": "1", "a": "2"}, "ownerReferences": [{"uid": "1", "name": "n"}]}},
    {"status": {"phase": "Pending"}, "data": {"k": "v"}, "metadata": {}, "zone": 1, "note": ""},
)


def collect_by_comparison(kind: Kind, owned: dict[str, Any]) -> str:
    return json.dumps(sort_tree(compare_documents(get_structure(kind), {}, owned).changed))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
def test_the_fields_are_those_of_a_comparison_with_nothing(kind):
    for parts in PARTS:
        assert json.dumps(collect_created_fields(kind, parts)) == collect_by_comparison(kind, parts)
        for spec in SPECS:
            owned = {**parts, "spec": spec}
            for _ in range(2):
                assert json.dumps(collect_created_fields(kind, owned)) == collect_by_comparison(kind, owned)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
def test_what_a_comparison_finds_changed_is_sorted(kind):
    states = [{**parts, "spec": spec} for parts in PARTS for spec in SPECS]
    for old, new in itertools.permutations(states, 2):
        changed = compare_documents(get_structure(kind), old, new).changed
        assert json.dumps(changed) == json.dumps(sort_tree(changed))


def test_objects_share_the_fields_of_a_spec_and_large_specs_are_not_cached():
    kind = get_kind("", "Pod")
    spec = {"containers": [CONTAINER]}
    first = collect_created_fields(kind, {"spec": spec, "metadata": {"labels": {"a": "1"}}})
    second = collect_created_fields(kind, {"metadata": {}, "spec": json.loads(json.dumps(spec))})
    assert first["f:spec"] is second["f:spec"]
    large = {"containers": [{**CONTAINER, "image": "i" * MAX_CACHED_SPEC_BYTES}]}
    first, second = (collect_created_fields(kind, {"spec": large}) for _ in range(2))
    assert first == second
    assert first["f:spec"] is not second["f:spec"]
    assert CACHE_BOUNDS[SPEC_FIELDS.name] is SPEC_FIELDS
