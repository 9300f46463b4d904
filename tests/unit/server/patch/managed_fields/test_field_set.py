"""Sets of fields: parsing, serialization, and set operations."""

from __future__ import annotations

import pytest

from dray.server.patch.managed_fields.field_comparison import collect_fields
from dray.server.patch.managed_fields.field_set import FieldSet, remove_subtrees
from dray.server.patch.schema.kind_structures import get_structure
from tests.unit.server.patch.kinds import POD

SPEC: dict = {"f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:image": {}}}, "f:replicas": {}}}


def fields(tree):
    return FieldSet.parse(tree)


def test_members_as_people_read_them():
    tree = {
        "f:spec": {
            "f:ports": {'k:{"protocol":"TCP","containerPort":80}': {".": {}, "f:name": {}}},
            "f:list": {"i:10": {}, "i:9": {}},
        },
        "f:metadata": {"f:finalizers": {".": {}, 'v:"x"': {}}, "f:labels": {"f:a.b/c": {}}},
    }
    assert fields(tree).list_paths() == [
        ".metadata.finalizers",
        '.metadata.finalizers[="x"]',
        ".metadata.labels.a.b/c",
        ".spec.list[9]",
        ".spec.list[10]",
        '.spec.ports[containerPort=80,protocol="TCP"]',
        '.spec.ports[containerPort=80,protocol="TCP"].name',
    ]


def test_writing_puts_everything_in_its_order():
    unordered: dict = {"f:b": {"f:y": {}, 'k:{"b": 1, "a": "x"}': {}, ".": {}}, "f:a": {".": {}}}
    emitted = fields(unordered).to_fields_v1()
    assert emitted == {"f:a": {}, "f:b": {".": {}, "f:y": {}, 'k:{"a":"x","b":1}': {}}}
    assert list(emitted) == ["f:a", "f:b"]
    assert list(emitted["f:b"]) == [".", "f:y", 'k:{"a":"x","b":1}']


def test_a_field_and_what_is_below_it_are_two_members():
    both, leaf, deep = (
        fields({"f:a": {".": {}, "f:b": {}}}),
        fields({"f:a": {}}),
        fields({"f:a": {"f:b": {}}}),
    )
    assert leaf.union(deep) == both == deep.union(leaf)
    assert both.difference(leaf) == deep
    assert both.difference(deep) == leaf
    assert both.intersection(leaf) == leaf
    assert both.intersection(deep) == deep
    assert not leaf.intersection(deep)
    assert both.contains(leaf)
    assert not leaf.contains(deep)


def test_what_is_left_of_nothing_is_nothing():
    whole = fields(SPEC)
    assert not whole.difference(whole)
    assert whole.difference(fields({"f:spec": {"f:replicas": {}}})).to_fields_v1() == {
        "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:image": {}}}}
    }


def test_removed_subtrees_go_with_everything_below():
    tree: dict = {"f:a": {".": {}, "f:x": {}}, "f:b": {".": {}, "f:y": {}}, "f:c": {}}
    assert remove_subtrees(tree, {"f:a": {}}) == {"f:b": {".": {}, "f:y": {}}, "f:c": {}}
    assert remove_subtrees(tree, {"f:b": {"f:y": {}}, "f:c": {"f:z": {}}}) == {
        "f:a": {".": {}, "f:x": {}},
        "f:b": {},
        "f:c": {},
    }
    assert remove_subtrees(tree, tree) == {}


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {"spec": {}},
        {"x:spec": {}},
        {"f:spec": 1},
        {"k:[]": {}},
        {"k:{}": {}},
        {"k:{": {}},
        {"v:": {}},
        {"i:x": {}},
        {"f:a": {"": {}}},
    ],
)
def test_what_is_no_set_of_fields_is_refused(broken):
    with pytest.raises(ValueError, match=r"."):
        fields(broken)


def test_a_bottomless_set_is_refused():
    deep: dict = {}
    for _ in range(200):
        deep = {"f:a": deep}
    with pytest.raises(ValueError, match="levels"):
        fields(deep)


def test_the_fields_of_a_configuration_are_its_leaves_and_items():
    configuration = {
        "metadata": {
            "labels": {"a": "1"},
            "annotations": {},
            "creationTimestamp": None,
            "ownerReferences": [{"uid": "u", "name": "n"}],
        },
        "spec": {
            "nodeSelector": {"x": "y"},
            "containers": [
                {
                    "name": "a",
                    "args": ["x"],
                    "ports": [{"containerPort": 1}],
                    "resources": {"limits": {"cpu": "1"}},
                }
            ],
        },
    }
    assert FieldSet(collect_fields(get_structure(POD), configuration)).to_fields_v1() == {
        "f:metadata": {
            "f:annotations": {},
            "f:labels": {"f:a": {}},
            "f:ownerReferences": {'k:{"uid":"u"}': {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"a"}': {
                    ".": {},
                    "f:args": {},
                    "f:name": {},
                    "f:ports": {'k:{"containerPort":1,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}}},
                }
            },
            "f:nodeSelector": {},
        },
    }
