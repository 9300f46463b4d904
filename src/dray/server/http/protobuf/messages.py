"""Which kinds may come as protobuf, and the fields of their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from dray.server.http.protobuf.message_tables import CLAIM_MESSAGES, OBJECT_MESSAGES

DELETE_OPTIONS = "DeleteOptions"
"""The one kind that clients write in any group and version."""

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
"""The message of each kind that may come as protobuf."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message."""

    name: str
    type: str
    modifier: str = ""
    """`*`, `[]`, `{}`, `+` or nothing."""


@cache
def load_messages() -> Mapping[str, Mapping[int, MessageField]]:
    """The tables, read: every message with its fields by number."""
    found: dict[str, dict[int, MessageField]] = {}
    current: dict[int, MessageField] = {}
    for line in filter(None, (OBJECT_MESSAGES + CLAIM_MESSAGES).splitlines()):
        if not line.startswith(" "):
            current = found[line] = {}
            continue
        number, name, text = line.split()
        bare = text.lstrip("*[]{}+")
        current[int(number)] = MessageField(name, bare, text.removesuffix(bare))
    return found
