"""Tables, compared with those of a Kubernetes server, and what rows include."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.json_text import write_json
from dray.api.kinds import KINDS, parse_document_kind
from dray.server.tables import build_column_definitions, build_partial_metadata, build_row, build_table
from tests.unit.server.samples import sample
from tests.unit.server.tables.stored_objects import NOW, kind, store_object, thing

OURS = {
    "resourceclaims": {"Node", "Devices", "Consumers", "Reason"},
    "resourceslices": {"Devices", "Free"},
    "deviceclasses": {"Selectors"},
    "resourceclaimtemplates": {"Requests"},
    "pods": {"Claims"},
}
"""Columns that Kubernetes does not have."""


@pytest.mark.parametrize(
    "plural",
    [
        "resourceclaims",
        "resourceslices",
        "deviceclasses",
        "resourceclaimtemplates",
        "pods",
        "nodes",
        "events",
    ],
)
def test_columns_of_kubernetes_keep_their_names_order_and_width(pytestconfig, plural):
    theirs = sample(pytestconfig, f"table_{plural}.json")["columnDefinitions"]
    its = next(one for one in KINDS if one.plural == plural and one.group in ("", "resource.k8s.io"))
    ours = [
        {field: value for field, value in column.items() if field != "description"}
        for column in build_column_definitions(its)
        if column["name"] not in OURS.get(plural, ())
    ]
    for column in theirs:
        column.pop("description", None)
    assert ours == theirs


def test_a_table_has_the_form_of_kubernetes(pytestconfig):
    theirs = sample(pytestconfig, "table_deviceclasses.json")
    ours = build_table(kind("DeviceClass", "resource.k8s.io"), [], now=NOW)
    assert ours | {"rows": 0, "columnDefinitions": 0, "metadata": 0} == theirs | {
        "rows": 0,
        "columnDefinitions": 0,
        "metadata": 0,
    }
    row_keys = {tuple(one) for one in theirs["rows"]}
    assert row_keys == {tuple(build_row(kind("Node"), _node(), now=NOW))}


def _node() -> Any:
    return store_object(thing("v1", "Node", metadata={"namespace": "", "labels": {"a": "b"}}, spec={"x": 1}))


def test_a_row_includes_the_requested_object():
    node = _node()
    metadata = {
        "name": "a",
        "namespace": "",
        "creationTimestamp": "2027-01-15T07:00:00Z",
        "labels": {"a": "b"},
    }
    metadata["resourceVersion"] = "7"
    short = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    whole = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"x": 1}}
    for include, expected in (("Metadata", short), ("Object", whole)):
        shown = json.loads(write_json(build_row(kind("Node"), node, now=NOW, include=include)))
        assert shown["object"] == expected
    assert build_row(kind("Node"), node, now=NOW, include="None").keys() == {"cells"}


def test_a_table_has_the_requested_version():
    made = build_table(kind("Node"), [_node(), _node()], now=NOW, version="v1beta1")
    assert made["apiVersion"] == "meta.k8s.io/v1beta1"
    assert [one["cells"][0] for one in made["rows"]] == ["a", "a"]


def test_an_object_reduced_to_its_metadata_has_all_of_it():
    document = json.loads(write_json(build_partial_metadata(_node(), "v1beta1")))
    assert document["apiVersion"] == "meta.k8s.io/v1beta1"
    assert document["metadata"].keys() == {
        "name",
        "namespace",
        "creationTimestamp",
        "labels",
        "resourceVersion",
    }


@pytest.mark.parametrize("its", KINDS, ids=lambda its: its.qualified_name)
def test_every_kind_makes_a_row_of_as_many_cells_as_columns(its):
    document = thing(its.internal_api_version, its.name)
    if not its.namespaced:
        document["metadata"]["namespace"] = ""
    cells = build_row(its, store_object(document), now=NOW)["cells"]
    assert len(cells) == len(build_column_definitions(its))
    assert all(isinstance(cell, str | int) for cell in cells)


_plain = st.none() | st.booleans() | st.integers(0, 99) | st.sampled_from(["", "x", "2027-01-15T07:00:00Z"])
_WORDS = """
conditions containers initContainers containerStatuses state ready phase reason devices results items
type name status hard used replicas addresses ports ingress subjects allocation reservedFor rules"""
_names = st.sampled_from(_WORDS.split())
_anything = st.recursive(
    _plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from([its for its in KINDS if its.open]),
    st.dictionaries(st.sampled_from(["spec", "status", "rules", "data", "series", "source"]), _anything),
)
def test_no_object_is_too_strange_for_a_row(its, rest):
    document = thing(its.internal_api_version, its.name, **rest)
    assert parse_document_kind(document)[0] is its
    cells = build_row(its, store_object(document), now=NOW)["cells"]
    assert all(isinstance(cell, str | int) for cell in cells)
