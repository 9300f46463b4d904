"""Rules between objects: a namespace must be there and alive, and claims of both paths share their names."""

from __future__ import annotations

from typing import Final

from dray.api.kinds import get_kind
from dray.server.admission.change import ADMITTED, CREATE, DELETE, UPDATE, AdmissionEffects, ObjectChange
from dray.server.http.errors import new_already_exists, new_forbidden, new_not_found
from dray.server.objects.stored_object import build_key
from dray.server.watch.cache import WatchCache
from dray.store import KeyAbsent, KeyUnchanged

PERMANENT_NAMESPACES: Final = ("default", "kube-system", "kube-public")


_NAMESPACE: Final = get_kind("", "Namespace")
_CLAIM_COUNTERPARTS: Final = {
    get_kind("resource.k8s.io", "ResourceClaim"): get_kind("cdi.k8s.io", "ResourceClaim"),
    get_kind("cdi.k8s.io", "ResourceClaim"): get_kind("resource.k8s.io", "ResourceClaim"),
}


class NamespaceLifecycle:
    """New objects need a namespace that is there and stays; some namespaces always stay."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.kind is _NAMESPACE:
            return self._check_permanent(change)
        if change.operation != CREATE or not change.kind.namespaced:
            return ADMITTED
        home = self._cache.get(_NAMESPACE, "", change.namespace)
        if home is None:
            raise new_not_found(_NAMESPACE, change.namespace)
        # Most namespaces stay; what does not name the field cannot have it.
        if b"deletionTimestamp" in home.value and home.metadata.deletion_timestamp:
            why = (
                f"unable to create new content in namespace {change.namespace} because it is being terminated"
            )
            raise new_forbidden(change.kind, change.name, why)
        return AdmissionEffects((KeyUnchanged(home.key, home.revision),))

    def _check_permanent(self, change: ObjectChange) -> AdmissionEffects:
        leaving = change.operation == DELETE or (
            change.operation == UPDATE and bool(change.view.metadata.deletion_timestamp)
        )
        if leaving and change.name in PERMANENT_NAMESPACES:
            raise new_forbidden(_NAMESPACE, change.name, "this namespace may not be deleted")
        return ADMITTED


class UniqueClaimNames:
    """A pod names a claim without saying of which path, so a name belongs to one claim of both."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        other = _CLAIM_COUNTERPARTS.get(change.kind)
        if other is None or change.operation != CREATE:
            return ADMITTED
        if self._cache.get(other, change.namespace, change.name) is not None:
            raise new_already_exists(other, change.name)
        return AdmissionEffects((KeyAbsent(build_key(other, change.namespace, change.name)),))
