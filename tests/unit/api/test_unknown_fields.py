"""Objects carry the fields that we do not understand, and are written without them."""

from __future__ import annotations

import msgspec
import pytest

from dray.api import codec
from dray.api.core import Pod
from dray.api.decode_report import UnknownField
from dray.api.kinds import KINDS
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.api.unknown_fields import (
    MAX_MARKED_FIELDS,
    UNSUPPORTED_FIELDS,
    explain_unknown_fields,
    list_unknown_fields,
    mark_unknown_fields,
    remove_mark,
)

KINDS_BY_STRUCT = {kind.type: kind for kind in KINDS}
METADATA = ObjectMeta(name="a", namespace="default", labels={"x": "y"}, resource_version="7")
CLAIM = ResourceClaim(metadata=METADATA)


def mark(obj, *paths):
    unknown = [UnknownField(path, path.rpartition(".")[2]) for path in paths]
    return mark_unknown_fields(obj, KINDS_BY_STRUCT[type(obj)], unknown)


def test_an_object_carries_its_unknown_fields_and_every_copy_does():
    marked = mark(CLAIM, "spec.devices.tomorrow", "later")
    assert list_unknown_fields(marked) == ("spec.devices.tomorrow", "later")
    metadata = msgspec.structs.replace(marked.metadata, labels={})
    assert list_unknown_fields(msgspec.structs.replace(marked, metadata=metadata)) == (
        "spec.devices.tomorrow",
        "later",
    )
    assert marked != CLAIM


def test_no_encoder_writes_the_mark():
    marked = mark(CLAIM, "spec.tomorrow")
    assert codec.encode(marked) == codec.encode(CLAIM)
    assert codec.to_document(marked) == codec.to_document(CLAIM)
    assert codec.to_document(marked, "v1beta1") == codec.to_document(CLAIM, "v1beta1")
    assert remove_mark(marked) == CLAIM
    assert remove_mark(CLAIM) is CLAIM


@pytest.mark.parametrize(
    ("struct", "path"),
    [
        (ResourceClaim, "metadata.tomorrow"),
        (ResourceClaim, "metadata.ownerReferences[0].tomorrow"),
        (ResourceClaim, "status.tomorrow"),
        (ResourceClaim, "status.allocation.devices.results[0].skipNodeOperations"),
        (DeviceClass, "spec.extendedResourceName"),
        (ResourceSlice, "spec.partitionTypeAttribute"),
    ],
)
def test_fields_that_change_no_allocation_do_not_mark_an_object(struct, path):
    obj = struct(metadata=METADATA)
    assert mark(obj, path) is obj


@pytest.mark.parametrize(
    ("struct", "path"),
    [
        (ResourceClaim, "spec.extendedResourceName"),
        (ResourceClaim, "specification"),
        (ResourceSlice, "spec.skipNodeOperations"),
        (DeviceTaintRule, "spec.deviceSelector.tomorrow"),
        (Pod, "spec.resourceClaims[0].tomorrow"),
    ],
)
def test_other_fields_do(struct, path):
    assert list_unknown_fields(mark(struct(metadata=METADATA), path)) == (path,)


def test_an_object_carries_a_limited_number_of_fields():
    marked = mark(CLAIM, *(f"spec.x{number}" for number in range(1000)))
    assert len(list_unknown_fields(marked)) == MAX_MARKED_FIELDS


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["spec.tomorrow"], "`spec.tomorrow` is unknown to this dray"),
        (
            ["spec.skipNodeOperations"],
            "`spec.skipNodeOperations` is not supported by this dray yet",
        ),
        (
            ["spec.a", "spec.skipNodeOperations"],
            "`spec.a`, `spec.skipNodeOperations` are unknown to this dray",
        ),
        (
            [f"spec.devices[{number}].{number % 5}" for number in range(20)],
            "`spec.devices[].0`, `spec.devices[].1`, `spec.devices[].2` and 2 more are unknown to this dray",
        ),
    ],
)
def test_the_text_names_the_fields(paths, text):
    assert explain_unknown_fields(paths, with_indexes=False) == text


def test_with_indexes_the_text_has_the_place():
    assert explain_unknown_fields(["spec.devices[3].x"]) == "`spec.devices[3].x` is unknown to this dray"


PUBLISHED_BY_1_37 = {
    "ResourceClaim": {
        "spec.devices.requests[0].exactly.derivedAttributes",
        "spec.devices.requests[0].firstAvailable[0].derivedAttributes",
    },
    "ResourceSlice": {
        "spec.devices[0].consumesCounters[0].compatibilityGroups",
        "spec.devices[0].nodeAllocatableResources",
        "spec.skipNodeOperations",
    },
}
"""The fields of Kubernetes 1.37 that change an allocation and are not built."""


@pytest.mark.parametrize("kind", PUBLISHED_BY_1_37)
def test_fields_that_are_known_and_not_built_are_named_as_such(kind):
    for path in PUBLISHED_BY_1_37[kind]:
        assert path.rpartition(".")[2] in UNSUPPORTED_FIELDS
        assert explain_unknown_fields([path]) == f"`{path}` is not supported by this dray yet"
