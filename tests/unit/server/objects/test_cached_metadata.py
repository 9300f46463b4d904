"""The metadata that a writer caches is what a reader would decode from the stored bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.api.kinds import Kind, get_kind
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject, build_key, cache_metadata

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}
METADATA: tuple[dict[str, Any], ...] = (
    {"name": "a"},
    {"name": "a", "namespace": "default", "uid": "u", "generation": 3, "labels": {"a": "b"}},
    {"name": "a", "namespace": "default", "ownerReferences": [OWNER], "finalizers": ["example.com/f"]},
    {
        "name": "a",
        "namespace": "default",
        "annotations": {"k": "v"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1"}],
    },
)


POD, CLAIM = get_kind("", "Pod"), get_kind("resource.k8s.io", "ResourceClaim")


def read_metadata(kind: Kind, value: bytes) -> Any:
    return StoredObject(kind, build_key(kind, "default", "a"), value, 5).metadata


@pytest.mark.parametrize("metadata", METADATA)
@pytest.mark.parametrize("kind", [POD, CLAIM], ids=["pod", "claim"])
@pytest.mark.parametrize("decoded", [True, False])
def test_cached_metadata_is_what_a_reader_decodes(
    kind: Kind, metadata: dict[str, Any], decoded: bool
) -> None:
    document = {"apiVersion": kind.internal_api_version, "kind": kind.name, "metadata": metadata}
    pending = PendingObject.from_document(document)
    if kind.open and not decoded:
        pending = PendingObject.from_open_document(kind, document)
    value = pending.encoded
    pending.cache_metadata(value)
    # The same text with a space is another key of the cache, and is decoded.
    assert read_metadata(kind, value) == read_metadata(kind, value + b" ")


def test_metadata_that_is_malformed_is_not_cached_and_breaks_no_write() -> None:
    value = b'{"metadata":{"labels":{"a":1}}}'
    cache_metadata(value, {"labels": {"a": 1}})
    with pytest.raises(msgspec.ValidationError):
        read_metadata(POD, value)
