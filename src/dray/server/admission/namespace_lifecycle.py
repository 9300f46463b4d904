"""The admission rule on namespaces: new objects need one that exists and is not being deleted."""

from __future__ import annotations

from typing import Final

from dray.api.kinds import KINDS, get_kind
from dray.server.admission.change import (
    ADMITTED,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionEffects,
    ObjectChange,
    RuleScope,
)
from dray.server.http.errors import new_forbidden, new_not_found
from dray.server.watch.cache import WatchCache
from dray.store import KeyUnchanged

PERMANENT_NAMESPACES: Final = ("default", "kube-system", "kube-public")

_NAMESPACE: Final = get_kind("", "Namespace")


class NamespaceLifecycle:
    """Refuses new objects without an active namespace, and the deletion of permanent namespaces."""

    scopes: Final = (
        RuleScope((_NAMESPACE,), (UPDATE, DELETE)),
        RuleScope(tuple(kind for kind in KINDS if kind.namespaced), (CREATE,)),
    )

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.kind is _NAMESPACE:
            return self._check_permanent(change)
        if change.operation != CREATE or not change.kind.namespaced:
            return ADMITTED
        namespace = self._cache.get(_NAMESPACE, "", change.namespace)
        if namespace is None:
            raise new_not_found(_NAMESPACE, change.namespace)
        # Most namespaces are active: decode the metadata only when the bytes contain the field's name.
        if b"deletionTimestamp" in namespace.value and namespace.metadata.deletion_timestamp:
            why = (
                f"unable to create new content in namespace {change.namespace} because it is being terminated"
            )
            raise new_forbidden(change.kind, change.name, why, [_build_cause(change.namespace)])
        return AdmissionEffects((KeyUnchanged(namespace.key, namespace.revision),))

    def _check_permanent(self, change: ObjectChange) -> AdmissionEffects:
        deleting = change.operation == DELETE or (
            change.operation == UPDATE and bool(change.view.metadata.deletion_timestamp)
        )
        if deleting and change.name in PERMANENT_NAMESPACES:
            raise new_forbidden(_NAMESPACE, change.name, "this namespace may not be deleted")
        return ADMITTED


def _build_cause(namespace: str) -> dict[str, str]:
    """The cause by which controllers recognise that they need not try again, nor report an error."""
    message = f"namespace {namespace} is being terminated"
    return {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
