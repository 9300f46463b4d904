"""Encodes the bodies of requests: objects in the version that the server serves, bindings and evictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dray.api import conversion
from dray.api.codec import encode, to_document
from dray.api.json_text import write_json
from dray.api.kinds import parse_document_kind
from dray.client.object_refs import Document


def encode_object(obj: Any, version: str) -> bytes:
    """Encode a struct or a document in the served version."""
    if isinstance(obj, msgspec.Struct):
        return encode(obj, version)
    return write_json(to_served_version(obj, version))


def to_served_version(obj: Any, version: str) -> Document:
    """Return a struct or a document as a document in the served version."""
    if isinstance(obj, msgspec.Struct):
        return to_document(obj, version)
    kind, own_version = parse_document_kind(obj)
    if own_version == version:
        return dict(obj)
    internal = conversion.convert_to_internal(kind, own_version, obj)
    return conversion.convert_from_internal(kind, version, internal)


def encode_binding(pod: str, namespace: str, node: str, uid: str) -> bytes:
    """Encode the binding of a pod to a node."""
    metadata = {"name": pod, "namespace": namespace} | ({"uid": uid} if uid else {})
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return write_json(binding)


def encode_eviction(pod: str, namespace: str, delete_options: Mapping[str, Any]) -> bytes:
    """Encode the eviction of a pod."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": delete_options,
    }
    return write_json(eviction)
