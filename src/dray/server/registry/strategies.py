"""What the server itself does to objects when they come, change and go, as tables by kind.

Theory of operation: every object gets a name, an identity and a time of birth; beyond that, kinds differ in
few ways, and each way is a table here: which count their generations, which are born with a status, which get
defaults that other components rely on. Closed kinds have their defaults in `api.defaults`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from dray.api.fields import FieldError
from dray.api.kinds import Kind, get_kind
from dray.server.objects.pending_object import PendingObject
from dray.server.registry import pod_strategy

Document = dict[str, Any]
GroupKind = tuple[str, str]

_TAINT_RULES: Final = get_kind("resource.k8s.io", "DeviceTaintRule")
_RBAC: Final = "rbac.authorization.k8s.io"

WITHOUT_GENERATION: Final[frozenset[GroupKind]] = frozenset(
    {
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "ServiceAccount"),
        ("", "Event"),
        ("", "ResourceQuota"),
        ("coordination.k8s.io", "Lease"),
        *(
            ("rbac.authorization.k8s.io", f"{scope}Role{what}")
            for scope in ("", "Cluster")
            for what in ("", "Binding")
        ),
    }
)
"""Kinds whose generation nobody counts."""

STATUS_ON_CREATE: Final[frozenset[GroupKind]] = frozenset({("", "Node")})
"""Kinds that may bring a status of their own."""

ALLOW_CREATE_ON_UPDATE: Final[frozenset[GroupKind]] = frozenset(
    {("coordination.k8s.io", "Lease"), ("", "Event")}
)
"""Kinds that a PUT creates when they are absent."""

RETURN_DELETED_OBJECT: Final[frozenset[GroupKind]] = frozenset(
    {
        ("", "Pod"),
        ("", "ServiceAccount"),
        ("", "Service"),
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("resource.k8s.io", "ResourceSlice"),
        ("resource.k8s.io", "DeviceClass"),
        ("cdi.k8s.io", "ResourceClaim"),
    }
)
"""Kinds whose deletion is answered with the object itself."""

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
KUBERNETES_FINALIZER: Final = "kubernetes"


def get_group_kind(kind: Kind) -> GroupKind:
    return kind.group, kind.name


def tracks_generation(kind: Kind) -> bool:
    return get_group_kind(kind) not in WITHOUT_GENERATION


def has_status(kind: Kind) -> bool:
    return "status" in kind.subresources


def prepare_for_create(pending: PendingObject) -> PendingObject:
    """A draft as its kind is born: status taken away or set, defaults of open kinds filled in."""
    if has_status(pending.kind) and get_group_kind(pending.kind) not in STATUS_ON_CREATE:
        pending = pending.copy_status_from(None)
    birth = _CREATE_STRATEGIES.get(get_group_kind(pending.kind))
    return pending if birth is None else _replace_document(pending, birth(pending.document))


def prepare_for_update(pending: PendingObject, before: PendingObject) -> PendingObject:
    """A draft that follows a stored object, with what its kind does not let go."""
    if pending.kind is _TAINT_RULES:
        return _reset_taint_time(pending, before)
    growth = _UPDATE_STRATEGIES.get(get_group_kind(pending.kind))
    return (
        pending if growth is None else _replace_document(pending, growth(pending.document, before.document))
    )


def _replace_document(pending: PendingObject, document: Document) -> PendingObject:
    return (
        pending if document is pending.document else PendingObject.from_open_document(pending.kind, document)
    )


def _reset_taint_time(pending: PendingObject, before: PendingObject) -> PendingObject:
    """A rule whose effect changes counts from now on: nobody is to go for the time it only informed."""
    taint, was = pending.view.spec.taint, before.view.spec.taint
    if taint.effect == was.effect or taint.time_added != was.time_added:
        return pending
    view = replace(pending.view, spec=replace(pending.view.spec, taint=replace(taint, time_added=None)))
    return PendingObject.from_view(pending.kind, view).replace_metadata(pending.metadata)


def validate_immutable_fields(pending: PendingObject, before: PendingObject) -> list[FieldError]:
    """What a draft changes although it was settled when its kind was born."""
    judge = _IMMUTABLE_FIELD_CHECKS.get(get_group_kind(pending.kind))
    return [] if judge is None else judge(pending.document, before.document)


def _prepare_namespace(namespace: Document) -> Document:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: metadata.get("name", "")}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), KUBERNETES_FINALIZER]))
    return {
        **namespace,
        "metadata": {**metadata, "labels": labels},
        "spec": spec,
        "status": {"phase": "Active"},
    }


def _update_namespace(namespace: Document, before: Document) -> Document:
    """A namespace goes after all that is in it: who must agree is changed by `finalize` alone."""
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: before["metadata"]["name"]}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = (before.get("spec") or {}).get("finalizers") or []
    return {**namespace, "metadata": {**metadata, "labels": labels}, "spec": spec}


def _encode_string_data(secret: Document) -> Document:
    """What was written for people to read is kept like the rest."""
    plain = secret.get("stringData")
    if not isinstance(plain, dict) or not all(isinstance(text, str) for text in plain.values()):
        return secret
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
    kept = {name: value for name, value in secret.items() if name != "stringData"}
    return {**kept, "data": {**(kept.get("data") or {}), **coded}}


_CREATE_STRATEGIES: Mapping[GroupKind, Callable[[Document], Document]] = MappingProxyType(
    {
        ("", "Pod"): pod_strategy.prepare_for_create,
        ("", "Namespace"): _prepare_namespace,
        ("", "Secret"): _encode_string_data,
    }
)

_UPDATE_STRATEGIES: Mapping[GroupKind, Callable[[Document, Document], Document]] = MappingProxyType(
    {
        ("", "Pod"): pod_strategy.prepare_for_update,
        ("", "Namespace"): _update_namespace,
        ("", "Secret"): lambda secret, before: _encode_string_data(secret),
    }
)

_IMMUTABLE_FIELD_CHECKS: Mapping[GroupKind, Callable[[Document, Document], list[FieldError]]] = (
    MappingProxyType({("", "Pod"): pod_strategy.validate_immutable_spec})
)
