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
from dray.api.kinds import Kind, known_kind
from dray.server.objects.pending_object import Draft
from dray.server.registry import pod_strategy

Document = dict[str, Any]
Named = tuple[str, str]

_TAINT_RULES: Final = known_kind("resource.k8s.io", "DeviceTaintRule")
_RBAC: Final = "rbac.authorization.k8s.io"

UNCOUNTED: Final[frozenset[Named]] = frozenset(
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

BORN_WITH_STATUS: Final[frozenset[Named]] = frozenset({("", "Node")})
"""Kinds that may bring a status of their own."""

MADE_BY_UPDATE: Final[frozenset[Named]] = frozenset({("coordination.k8s.io", "Lease"), ("", "Event")})
"""Kinds that a PUT creates when they are absent."""

TOLD_WHEN_GONE: Final[frozenset[Named]] = frozenset(
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
KUBERNETES: Final = "kubernetes"


def named(kind: Kind) -> Named:
    return kind.group, kind.name


def counts_generations(kind: Kind) -> bool:
    return named(kind) not in UNCOUNTED


def has_status(kind: Kind) -> bool:
    return "status" in kind.subresources


def newborn(draft: Draft) -> Draft:
    """A draft as its kind is born: status taken away or set, defaults of open kinds filled in."""
    if has_status(draft.kind) and named(draft.kind) not in BORN_WITH_STATUS:
        draft = draft.with_status_of(None)
    birth = _BIRTHS.get(named(draft.kind))
    return draft if birth is None else _after(draft, birth(draft.document))


def grown(draft: Draft, before: Draft) -> Draft:
    """A draft that follows a stored object, with what its kind does not let go."""
    if draft.kind is _TAINT_RULES:
        return _tainting_anew(draft, before)
    growth = _GROWTHS.get(named(draft.kind))
    return draft if growth is None else _after(draft, growth(draft.document, before.document))


def _after(draft: Draft, document: Document) -> Draft:
    return draft if document is draft.document else Draft.of_open(draft.kind, document)


def _tainting_anew(draft: Draft, before: Draft) -> Draft:
    """A rule whose effect changes counts from now on: nobody is to go for the time it only informed."""
    taint, was = draft.view.spec.taint, before.view.spec.taint
    if taint.effect == was.effect or taint.time_added != was.time_added:
        return draft
    view = replace(draft.view, spec=replace(draft.view.spec, taint=replace(taint, time_added=None)))
    return Draft.of_view(draft.kind, view).with_metadata(draft.metadata)


def unsettled(draft: Draft, before: Draft) -> list[FieldError]:
    """What a draft changes although it was settled when its kind was born."""
    judge = _SETTLED.get(named(draft.kind))
    return [] if judge is None else judge(draft.document, before.document)


def _namespace(namespace: Document) -> Document:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: metadata.get("name", "")}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), KUBERNETES]))
    return {
        **namespace,
        "metadata": {**metadata, "labels": labels},
        "spec": spec,
        "status": {"phase": "Active"},
    }


def _namespace_later(namespace: Document, before: Document) -> Document:
    """A namespace goes after all that is in it: who must agree is changed by `finalize` alone."""
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), NAMESPACE_LABEL: before["metadata"]["name"]}
    spec = {**(namespace.get("spec") or {})}
    spec["finalizers"] = (before.get("spec") or {}).get("finalizers") or []
    return {**namespace, "metadata": {**metadata, "labels": labels}, "spec": spec}


def _secret(secret: Document) -> Document:
    """What was written for people to read is kept like the rest."""
    plain = secret.get("stringData")
    if not isinstance(plain, dict) or not all(isinstance(text, str) for text in plain.values()):
        return secret
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
    kept = {name: value for name, value in secret.items() if name != "stringData"}
    return {**kept, "data": {**(kept.get("data") or {}), **coded}}


_BIRTHS: Mapping[Named, Callable[[Document], Document]] = MappingProxyType(
    {("", "Pod"): pod_strategy.born, ("", "Namespace"): _namespace, ("", "Secret"): _secret}
)

_GROWTHS: Mapping[Named, Callable[[Document, Document], Document]] = MappingProxyType(
    {
        ("", "Pod"): pod_strategy.grown,
        ("", "Namespace"): _namespace_later,
        ("", "Secret"): lambda secret, before: _secret(secret),
    }
)

_SETTLED: Mapping[Named, Callable[[Document, Document], list[FieldError]]] = MappingProxyType(
    {("", "Pod"): pod_strategy.unsettled}
)
