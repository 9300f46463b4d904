"""Claims whose opaque parameters have white space are patched in protobuf; nothing else changes."""

from __future__ import annotations

import json

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from dray.api.resource import ResourceClaim
from dray.client.claim_protobuf import MAGIC, PROTOBUF, _load_classes, apply_patch
from dray.client.errors import ConflictError, InvalidObjectError
from dray.client.patches import ApplyPatch, JsonPatch, MergePatch
from tests.unit.client.fakeapi import IN_DEFAULT, FakeApi, FakeResponse, claim, client_of, serves

UID = "b3786271-6083-4437-add4-5a35c5e50e03"
PARAMETERS = b'{"b": 1, "a": [1, 2]}'
STORED = (
    b"k8s\x00\n#\n\x12resource.k8s.io/v1\x12\rResourceClaim\x12\xa9\x02\n\xc8\x01\n\x02ws\x12\x00\x1a\x07default"
    b'"\x00*$b3786271-6083-4437-add4-5a35c5e50e032\x032238\x00B\x08\x08\x9d\xda\xf4\xd7\x06\x10\x00\x8a\x01}\n'
    b'\rPython-urllib\x12\x06Update\x1a\x12resource.k8s.io/v1"\x08\x08\x9d\xda\xf4\xd7\x06\x10\x002\x08FieldsV1:'
    b':\n8{"f:spec":{"f:devices":{"f:config":{},"f:requests":{}}}}B\x00\x12Z\nX\n&\n\x03gpu\x12\x1f\n\x0fgpu.'
    b"example.com\x1a\nExactCount \x01\x1a.\x12,\n*\n\x0fgpu.example.com\x12\x17\n\x15"
    b'{"b": 1, "a": [1, 2]}\x1a\x00\x1a\x00"\x00'
)
"""A claim as kube-apiserver 1.37 sends it, created by a client that writes JSON with white space."""

REFUSED = {
    "kind": "Status",
    "message": 'ResourceClaim.resource.k8s.io "ws" is invalid: spec: Invalid value: null: field is immutable',
    "reason": "Invalid",
    "code": 422,
    "details": {"causes": [{"reason": "FieldValueInvalid", "message": "immutable", "field": "spec"}]},
}
"""What it says to a JSON patch of the finalizers of that claim."""

PATH = f"{IN_DEFAULT}/ws"
FINALIZERS = MergePatch({"metadata": {"uid": UID, "resourceVersion": "223", "finalizers": ["keep"]}})
CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}


def read(body):
    envelope = _load_classes()["Unknown"].FromString(body[len(MAGIC) :])
    return _load_classes()["ResourceClaim"].FromString(envelope.raw)


def without_edits(message):
    """Everything that the messages do not name."""
    return sorted((each.field_number, each.data) for each in UnknownFieldSet(message))


def test_only_what_a_patch_names_changes():
    before, after = read(STORED), read(apply_patch(STORED, FINALIZERS))
    assert list(after.metadata.finalizers) == ["keep"]
    assert (after.metadata.uid, after.metadata.resourceVersion) == (UID, "223")
    assert without_edits(after) == without_edits(before) != []
    assert without_edits(after.metadata) == without_edits(before.metadata) != []
    assert PARAMETERS in after.SerializeToString()


def test_finalizers_and_consumers_can_be_removed():
    given = apply_patch(STORED, MergePatch({"status": {"reservedFor": [CONSUMER]}}))
    assert [(each.name, each.resource, each.uid) for each in read(given).status.reservedFor] == [
        ("p", "pods", "u")
    ]
    given = apply_patch(given, FINALIZERS)
    freed = MergePatch({"metadata": {"finalizers": None}, "status": {"reservedFor": None}})
    assert read(apply_patch(given, freed)) == read(STORED)


def test_device_statuses_are_applied_by_their_keys():
    def device(name, **more):
        return {"driver": "gpu.example.com", "pool": "a", "device": name, **more}

    other, old = device("other", data={"a": 1}), device("mine", networkData={"interfaceName": "eth0"})
    given = apply_patch(STORED, MergePatch({"status": {"devices": [old, other]}}))
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Up",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    new = ApplyPatch(
        {"metadata": {"uid": UID}, "status": {"devices": [device("mine", conditions=[condition])]}}, "m"
    )
    kept, written = read(apply_patch(given, new)).status.devices
    assert (kept.device, kept.data.raw) == ("other", b'{"a":1}')
    assert (written.device, written.conditions[0].lastTransitionTime.seconds) == ("mine", 1767225600)
    assert not written.HasField("networkData")


@pytest.mark.parametrize("pins", [{"resourceVersion": "222"}, {"uid": "another"}])
def test_a_claim_in_another_version_is_a_conflict(pins):
    with pytest.raises(ConflictError):
        apply_patch(STORED, MergePatch({"metadata": {**pins, "finalizers": ["keep"]}}))


async def test_a_patch_refused_for_opaque_parameters_is_repeated_in_protobuf():
    api = serves(FakeApi(), "v1")
    api.answer("PATCH", PATH, FakeResponse(REFUSED, 422))
    api.answer("GET", PATH, FakeResponse(STORED))
    api.answer("PUT", PATH, FakeResponse(claim("ws", 224)))
    written = await client_of(api).patch(ResourceClaim, "ws", FINALIZERS, "default")
    assert written.metadata.resource_version == "224"
    (put,) = api.requests("PUT", PATH)
    assert put.headers["content-type"] == PROTOBUF
    assert list(read(put.body).metadata.finalizers) == ["keep"]


async def test_a_claim_is_read_again_when_it_changed_and_no_version_was_named():
    api, status = serves(FakeApi(), "v1"), f"{PATH}/status"
    api.answer("PATCH", status, FakeResponse(REFUSED, 422))
    api.answer("GET", PATH, FakeResponse(STORED))
    conflict = FakeResponse({"kind": "Status", "reason": "Conflict", "code": 409}, 409)
    api.answer("PUT", status, conflict, FakeResponse(claim("ws", 224)))
    patch = MergePatch({"status": {"reservedFor": [CONSUMER]}})
    await client_of(api).patch(ResourceClaim, "ws", patch, "default", subresource="status")
    assert len(api.requests("GET", PATH)) == len(api.requests("PUT", status)) == 2


@pytest.mark.parametrize(
    ("patch", "field", "stored"),
    [
        (FINALIZERS, "metadata.labels", STORED),
        (FINALIZERS, "spec", json.dumps(claim("ws", 223)).encode()),
        (MergePatch({"spec": {"devices": None}}), "spec", STORED),
        (MergePatch({"metadata": {"labels": {"a": "b"}}}), "spec", STORED),
        (JsonPatch([]), "spec", STORED),
    ],
)
async def test_other_refusals_stay_what_they_are(patch, field, stored):
    refused = {**REFUSED, "details": {"causes": [{"field": field}]}}
    api = serves(FakeApi(), "v1")
    api.answer("PATCH", PATH, FakeResponse(refused, 422))
    api.answer("GET", PATH, FakeResponse(stored))
    with pytest.raises(InvalidObjectError, match="field is immutable"):
        await client_of(api).patch(ResourceClaim, "ws", patch, "default")
    assert not api.requests("PUT", PATH)


def test_annotations_are_merged():
    def annotate(body, **changes):
        return apply_patch(body, MergePatch({"metadata": {"uid": UID, "annotations": changes}}))

    given = annotate(annotate(STORED, a="1", b="2"), b="3", c=None)
    assert {each.key: each.value for each in read(given).metadata.annotations} == {"a": "1", "b": "3"}
    assert without_edits(read(given).metadata) == without_edits(read(STORED).metadata) != []
    assert PARAMETERS in given
    assert read(annotate(given, a=None, b=None)) == read(STORED)
