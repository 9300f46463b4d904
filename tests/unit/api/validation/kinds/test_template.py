"""Claim templates: the rules of claims, one level deeper."""

from __future__ import annotations

import pytest

from dray.api.validation import validate_create, validate_update
from tests.unit.api.validation.building import found, metadata, request, template


def test_a_valid_template_is_accepted():
    assert not validate_create(template(inner={"labels": {"app": "train"}, "annotations": {"note": "any"}}))


def test_errors_have_paths_below_the_template_spec():
    place = "spec.spec.devices.requests[0].exactly.deviceClassName"
    assert found(validate_create(template(request(deviceClassName="")))) == [f"Required {place}"]


INNER = {
    "name": ({"name": "x"}, ["Forbidden spec.metadata.name"]),
    "generated name": ({"generateName": "x-"}, ["Forbidden spec.metadata.generateName"]),
    "namespace": ({"namespace": "x"}, ["Forbidden spec.metadata.namespace"]),
    "finalizers": ({"finalizers": ["a/b"]}, ["Forbidden spec.metadata.finalizers"]),
    "owners": ({"ownerReferences": [{}]}, ["Forbidden spec.metadata.ownerReferences"]),
    "bad label": ({"labels": {"a b": ""}}, ["Invalid spec.metadata.labels"]),
    "bad annotation": ({"annotations": {"a b": ""}}, ["Invalid spec.metadata.annotations"]),
}


@pytest.mark.parametrize(("inner", "expected"), INNER.values(), ids=INNER)
def test_only_labels_and_annotations_are_copied_into_claims(inner, expected):
    assert found(validate_create(template(inner=inner))) == expected


def test_a_template_never_changes():
    old = template(request(count=1))
    assert found(validate_update(template(request(count=2)), old)) == ["Invalid spec"]
    assert found(validate_update(template(request(count=1), inner={"labels": {"a": "b"}}), old)) == [
        "Invalid spec"
    ]
    assert not validate_update(template(request(count=1), meta=metadata(labels={"a": "b"})), old)
