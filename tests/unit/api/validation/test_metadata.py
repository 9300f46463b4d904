"""Validation of metadata, which is the same for all kinds."""

from __future__ import annotations

import pytest

from dray.api.validation import validate_create, validate_update
from tests.unit.api.validation.building import (
    claim,
    cluster_metadata,
    device_class,
    found,
    made,
    metadata,
    pod,
)

NODE = {"apiVersion": "v1", "kind": "Node"}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace"}
OWNER = {"apiVersion": "apps/v1", "kind": "Job", "name": "train", "uid": "1"}


def owner(**fields):
    return {**OWNER, **fields}


CREATE = {
    "a sound one": ({}, []),
    "no name": ({"name": ""}, ["Required metadata.name"]),
    "generated name": ({"name": "", "generateName": "train-"}, []),
    "generated name that cannot become one": (
        {"name": "", "generateName": "Train-"},
        ["Invalid metadata.generateName"],
    ),
    "a generated name may end in a dash only": (
        {"name": "", "generateName": "train-."},
        ["Invalid metadata.generateName"],
    ),
    "bad name": ({"name": "Train"}, ["Invalid metadata.name"]),
    "longest name": ({"name": "a" * 253}, []),
    "name too long": ({"name": "a" * 254}, ["Invalid metadata.name"]),
    "no namespace": ({"namespace": ""}, ["Required metadata.namespace"]),
    "bad namespace": ({"namespace": "a.b"}, ["Invalid metadata.namespace"]),
    "negative generation": ({"generation": -1}, ["Invalid metadata.generation"]),
    "labels": ({"labels": {"example.com/app": "train", "empty": ""}}, []),
    "bad label key": ({"labels": {"a/b/c": "train"}}, ["Invalid metadata.labels"]),
    "bad label value": ({"labels": {"app": "white space"}}, ["Invalid metadata.labels"]),
    "annotations take upper case in the domain": (
        {"annotations": {"Example.com/App": "any value at all"}},
        [],
    ),
    "bad annotation key": ({"annotations": {"a b": ""}}, ["Invalid metadata.annotations"]),
    "finalizer": ({"finalizers": ["example.com/hold"]}, []),
    "a finalizer without a domain": ({"finalizers": ["hold"]}, ["Invalid metadata.finalizers[0]"]),
    "standard finalizers": ({"finalizers": ["kubernetes", "orphan"]}, []),
    "bad finalizer": (
        {"finalizers": ["example.com/ok", "example.com/not ok"]},
        ["Invalid metadata.finalizers"],
    ),
    "finalizers that contradict each other": (
        {"finalizers": ["orphan", "foregroundDeletion"]},
        ["Invalid metadata.finalizers"],
    ),
    "owner": ({"ownerReferences": [owner(controller=True)]}, []),
    "owner of a core kind": ({"ownerReferences": [owner(apiVersion="v1", kind="Pod")]}, []),
    "owner without anything": (
        {"ownerReferences": [{}]},
        [
            "Required metadata.ownerReferences[0].apiVersion",
            "Required metadata.ownerReferences[0].kind",
            "Required metadata.ownerReferences[0].name",
            "Required metadata.ownerReferences[0].uid",
        ],
    ),
    "owner of an odd version": (
        {"ownerReferences": [owner(apiVersion="a/b/c")]},
        ["Invalid metadata.ownerReferences[0].apiVersion"],
    ),
    "two controllers": (
        {"ownerReferences": [owner(controller=True), owner(controller=True, uid="2")]},
        ["Invalid metadata.ownerReferences"],
    ),
    "an event owns nothing": (
        {"ownerReferences": [owner(apiVersion="v1", kind="Event")]},
        ["Invalid metadata.ownerReferences[0]"],
    ),
}


@pytest.mark.parametrize(("fields", "expected"), CREATE.values(), ids=CREATE)
def test_create(fields, expected):
    assert found(validate_create(claim(meta=metadata(**fields)))) == expected


@pytest.mark.parametrize("size", [256 * 1024, 256 * 1024 + 1])
def test_annotations_have_a_size_together(size):
    annotated = claim(meta=metadata(annotations={"a": "x" * (size - 2), "b": ""}))
    assert found(validate_create(annotated)) == (
        ["TooLong metadata.annotations"] if size > 256 * 1024 else []
    )


def test_kinds_without_namespace_take_none():
    spoiled = device_class(meta=cluster_metadata(namespace="ns"))
    assert found(validate_create(spoiled)) == ["Forbidden metadata.namespace"]


@pytest.mark.parametrize(
    ("envelope", "name", "expected"),
    [
        (NODE, "node.example.com", []),
        (NODE, "Node", ["Invalid metadata.name"]),
        (NAMESPACE, "team-a", []),
        (NAMESPACE, "team.a", ["Invalid metadata.name"]),
    ],
)
def test_kinds_without_rules_of_their_own_have_names(envelope, name, expected):
    assert found(validate_create(made({**envelope, "metadata": {"name": name}}))) == expected


UPDATE = {
    "nothing": ({}, {}, []),
    "name": ({}, {"name": "other"}, ["Invalid metadata.name"]),
    "namespace": ({}, {"namespace": "other"}, ["Invalid metadata.namespace"]),
    "uid": ({"uid": "1"}, {"uid": "2"}, ["Invalid metadata.uid"]),
    "the writer may leave out what the system filled in": (
        {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3},
        {},
        [],
    ),
    "time of creation": (
        {"creationTimestamp": "2026-01-01T00:00:00Z"},
        {"creationTimestamp": "2026-01-01T00:00:01Z"},
        ["Invalid metadata.creationTimestamp"],
    ),
    "nobody marks an object as deleted by writing it": (
        {},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        ["Invalid metadata.deletionTimestamp"],
    ),
    "generation goes up": ({"generation": 3}, {"generation": 4}, []),
    "generation never goes down": ({"generation": 3}, {"generation": 2}, ["Invalid metadata.generation"]),
    "labels may change": ({"labels": {"a": "b"}}, {"labels": {"a": "c"}}, []),
    "a new bad label": ({}, {"labels": {"a": "-"}}, ["Invalid metadata.labels"]),
    "a stored bad label": ({"labels": {"a": "-"}}, {"labels": {"a": "-", "b": "c"}}, []),
    "finalizers may come": ({}, {"finalizers": ["a/b"]}, []),
    "no finalizer comes to an object that is going": (
        {"finalizers": ["a/b"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": ["a/b", "a/c"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
        ["Forbidden metadata.finalizers"],
    ),
    "finalizers go": ({"finalizers": ["a/b"], "deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, []),
}


@pytest.mark.parametrize(("old", "new", "expected"), UPDATE.values(), ids=UPDATE)
def test_update(old, new, expected):
    assert found(validate_update(claim(meta=metadata(**new)), claim(meta=metadata(**old)))) == expected


def test_several_faults_are_reported_at_once():
    spoiled = pod(meta={"name": "A", "labels": {"-": "-"}})
    assert found(validate_create(spoiled)) == [
        "Invalid metadata.labels",
        "Invalid metadata.labels",
        "Invalid metadata.name",
        "Required metadata.namespace",
    ]
