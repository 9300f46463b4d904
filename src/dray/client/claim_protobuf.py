"""Patches of claims in protobuf, for claims with opaque parameters that JSON cannot carry unchanged.

Theory of operation: kube-apiserver stores opaque parameters byte by byte, with the white space that their
author wrote, and its JSON shows them without it. Every write in JSON, whatever the patch names, therefore
changes them, and the server refuses it: the spec and an allocation are immutable. Protobuf carries the bytes
as they are. So a patch that was refused for that reason is repeated: the claim is read as protobuf, the
fields of the patch are replaced, and the claim is written back. The message classes name only fields that
patches of ours change; the protobuf runtime keeps all others as they were read.

Rules for this file: only `Client` imports it, when the first such patch is refused, because the protobuf
runtime is slow to import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from dray.api.json_text import write_json
from dray.api.messages.field_tables import LIST, MessageTable, parse_message_table
from dray.client.errors import ClientError, ConflictError
from dray.client.object_refs import Document
from dray.client.patches import ApplyPatch, MergePatch, ObjectPatch
from dray.client.rest_client import RestClient
from dray.client.transport import JSON, TransportRequest, TransportResponse
from dray.wire.protobuf import (
    SCALARS,
    MalformedProtobufError,
    ProtobufMessage,
    build_message_classes,
    decode_strictly,
)

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
MAX_WRITE_ATTEMPTS: Final = 5
"""How often a claim is read and written again when the patch names no version."""

_DEVICE_KEY: Final = ("driver", "pool", "device", "shareID")
"""The fields that tell the entries of `status.devices` apart."""

_MESSAGES: Final = """
Unknown
  2 raw bytes
ResourceClaim
  1 metadata ObjectMeta
  3 status ResourceClaimStatus
ObjectMeta
  5 uid string
  6 resourceVersion string
  12 annotations []MapEntry
  14 finalizers []string
MapEntry
  1 key string
  2 value string
ResourceClaimStatus
  2 reservedFor []ConsumerReference
  4 devices []AllocatedDeviceStatus
ConsumerReference
  1 apiGroup string
  3 resource string
  4 name string
  5 uid string
AllocatedDeviceStatus
  1 driver string
  2 pool string
  3 device string
  4 conditions []Condition
  5 data Json
  6 networkData NetworkDeviceData
  7 shareID string
Condition
  1 type string
  2 status string
  3 observedGeneration int64
  4 lastTransitionTime Time
  5 reason string
  6 message string
Time
  1 seconds int64
  2 nanos int32
Json
  1 raw bytes
NetworkDeviceData
  1 interfaceName string
  2 ips []string
  3 hardwareAddress string
"""


async def repeat_patch(
    rest_client: RestClient, path: str, query: Mapping[str, str], patch: ObjectPatch
) -> TransportResponse | None:
    """Apply a patch to the claim at `path` in protobuf; None when the server or the patch does not allow it.

    Raises `ConflictError` when the patch names another version or uid than the claim has.
    """
    if not isinstance(patch, MergePatch | ApplyPatch) or not _can_apply(patch.document):
        return None
    pinned = "resourceVersion" in (patch.document.get("metadata") or {})
    for left in reversed(range(1 if pinned else MAX_WRITE_ATTEMPTS)):
        read = await rest_client.call(
            TransportRequest("GET", path.removesuffix("/status"), accept=f"{PROTOBUF}, {JSON}")
        )
        if not read.body.startswith(MAGIC):
            return None
        body = apply_patch(read.body, patch)
        try:
            return await rest_client.call(TransportRequest("PUT", path, query, body, PROTOBUF))
        except ConflictError:
            if not left:
                raise
    return None


def _can_apply(document: Mapping[str, Any]) -> bool:
    """Whether the fields of a patch are among those of the messages."""
    metadata, status = document.get("metadata") or {}, document.get("status") or {}
    return (
        document.keys() <= {"apiVersion", "kind", "metadata", "status"}
        and metadata.keys() <= {"name", "namespace", "uid", "resourceVersion", "annotations", "finalizers"}
        and status.keys() <= {"reservedFor", "devices"}
    )


def apply_patch(body: bytes, patch: MergePatch | ApplyPatch) -> bytes:
    """Return the protobuf of a claim with a patch applied."""
    envelope = _decode("Unknown", body[len(MAGIC) :])
    claim = _decode("ResourceClaim", envelope.raw)
    metadata, status = patch.document.get("metadata") or {}, patch.document.get("status") or {}
    for name in ("uid", "resourceVersion"):
        if metadata.get(name, getattr(claim.metadata, name)) != getattr(claim.metadata, name):
            raise ConflictError(409, {"message": "the object has been modified", "reason": "Conflict"})
    if metadata.get("annotations"):
        _merge_map(claim.metadata.annotations, metadata["annotations"])
    if "finalizers" in metadata:
        claim.metadata.ClearField("finalizers")
        claim.metadata.finalizers.extend(metadata["finalizers"] or ())
    for name in ("reservedFor", "devices"):
        if name in status:
            entries = status[name] or ()
            if isinstance(patch, ApplyPatch):
                _remove_entries(getattr(claim.status, name), entries)
            else:
                claim.status.ClearField(name)
            _fill_message(claim.status, {name: entries})
    envelope.raw = claim.SerializeToString()
    return MAGIC + bytes(envelope.SerializeToString())


def _merge_map(existing: Any, changes: Mapping[str, str | None]) -> None:
    """Set entries of a map, or remove those that are None; the others stay."""
    merged = {entry.key: entry.value for entry in existing} | dict(changes)
    del existing[:]
    for key, value in merged.items():
        if value is not None:
            existing.add(key=key, value=value)


def _remove_entries(existing: Any, replacements: Iterable[Document]) -> None:
    """Remove the entries that an applied document has, too: they are added anew."""
    keys = {tuple(each.get(name, "") for name in _DEVICE_KEY) for each in replacements}
    kept = [each for each in existing if tuple(getattr(each, name) for name in _DEVICE_KEY) not in keys]
    del existing[:]
    existing.extend(kept)


def _fill_message(message: ProtobufMessage, document: Mapping[str, Any]) -> None:
    """Set the fields of a message from those of a document."""
    for field in _load_table()[message.DESCRIPTOR.name]:
        value = document.get(field.name)
        if value is None:
            continue
        if field.modifier == LIST and field.type in SCALARS:
            getattr(message, field.name).extend(value)
        elif field.modifier == LIST:
            for each in value:
                _fill_message(getattr(message, field.name).add(), each)
        elif field.type in SCALARS:
            setattr(message, field.name, value)
        elif field.type == "Time":
            getattr(message, field.name).seconds = int(datetime.fromisoformat(value).timestamp())
        elif field.type == "Json":
            getattr(message, field.name).raw = write_json(value)
        else:
            _fill_message(getattr(message, field.name), value)


def _decode(name: str, data: bytes) -> ProtobufMessage:
    try:
        return decode_strictly(_load_classes()[name], data)
    except MalformedProtobufError as broken:
        raise ClientError(f"the server sent a claim that is not Kubernetes protobuf: {broken}") from None


@lru_cache(maxsize=1)
def _load_table() -> MessageTable:
    return parse_message_table(_MESSAGES)


@lru_cache(maxsize=1)
def _load_classes() -> Mapping[str, Any]:
    return build_message_classes("kubernetes_claims", _load_table(), syntax="proto2")
