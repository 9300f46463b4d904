"""Kinds that clients may send as protobuf, and their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from dray.server.http.protobuf.message_tables import CLAIM_MESSAGES, OBJECT_MESSAGES
from dray.wire.protobuf import (
    LIST,
    SCALARS,
    FieldDefinition,
    ProtobufMessage,
    build_message_classes,
    decode_strictly,
    parse_message_table,
)

MAP: Final = "{}"
INLINE: Final = "+"
"""Modifiers of the tables of this package, besides those of `dray.wire.protobuf`."""

DELETE_OPTIONS = "DeleteOptions"
"""The one kind that clients send in any group and version."""

ROOT_MESSAGES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("v1", "Binding"): "Binding",
        ("v1", "ConfigMap"): "ConfigMap",
        ("v1", "Event"): "CoreEvent",
        ("v1", "Namespace"): "Namespace",
        ("v1", "ResourceQuota"): "ResourceQuota",
        ("v1", "Secret"): "Secret",
        ("v1", "ServiceAccount"): "ServiceAccount",
        ("v1", "Status"): "Status",
        ("authentication.k8s.io/v1", "SelfSubjectReview"): "SelfSubjectReview",
        ("authentication.k8s.io/v1", "TokenRequest"): "TokenRequest",
        ("authentication.k8s.io/v1", "TokenReview"): "TokenReview",
        ("authorization.k8s.io/v1", "LocalSubjectAccessReview"): "SubjectAccessReview",
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): "SelfSubjectAccessReview",
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): "SelfSubjectRulesReview",
        ("authorization.k8s.io/v1", "SubjectAccessReview"): "SubjectAccessReview",
        ("coordination.k8s.io/v1", "Lease"): "Lease",
        ("events.k8s.io/v1", "Event"): "Event",
        ("policy/v1", "Eviction"): "Eviction",
        ("rbac.authorization.k8s.io/v1", "ClusterRole"): "ClusterRole",
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "RoleBinding",
        ("rbac.authorization.k8s.io/v1", "Role"): "Role",
        ("rbac.authorization.k8s.io/v1", "RoleBinding"): "RoleBinding",
        ("resource.k8s.io/v1", "ResourceClaim"): "ResourceClaim",
    }
)
"""The message of each kind that clients may send as protobuf."""


_ENVELOPE_MESSAGES: Final = """
Unknown
  1 typeMeta TypeMeta
  2 raw bytes
  3 contentEncoding string
  4 contentType string
TypeMeta
  1 apiVersion string
  2 kind string
Timestamp
  1 seconds int64
  2 nanos int32
QuantityText
  1 string string
RawJson
  1 raw bytes
StringList
  1 items []string
StringEntry
  1 key string
  2 value string
BytesEntry
  1 key string
  2 value bytes
"""
"""The envelope, the messages that have a text form in JSON, and the entries of maps."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """A message of the tables: its class, and its fields by number."""

    message_class: Any
    fields: Mapping[int, FieldDefinition]

    def decode(self, data: bytes) -> ProtobufMessage:
        """Decode a message; raises `MalformedProtobufError`."""
        return decode_strictly(self.message_class, data)


@cache
def load_messages() -> Mapping[str, MessageType]:
    """Build the messages of the tables.

    A field that contains a message has the type `bytes` in the class of its holder and is decoded when it is
    read: decoded in one go, two bytes of a hostile body would take up a message before anything counts them.
    """
    table = parse_message_table(_ENVELOPE_MESSAGES + OBJECT_MESSAGES + CLAIM_MESSAGES)
    flat = {name: tuple(_flatten(field) for field in fields) for name, fields in table.items()}
    classes = build_message_classes("kubernetes", flat, syntax="proto2")
    return {
        name: MessageType(classes[name], {field.number: field for field in fields})
        for name, fields in table.items()
    }


def _flatten(field: FieldDefinition) -> FieldDefinition:
    is_scalar = field.type in SCALARS and field.modifier != MAP
    modifier = LIST if field.modifier in (LIST, MAP) else ""
    return replace(field, type=field.type if is_scalar else "bytes", modifier=modifier)
