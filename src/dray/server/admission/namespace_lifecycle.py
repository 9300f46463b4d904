"""Rules between objects: a namespace must be there and alive, and claims of both paths share their names."""

from __future__ import annotations

from typing import Final

from dray.api.kinds import known_kind
from dray.server.admission.change import CREATE, DELETE, NOTHING, UPDATE, Change, Extra
from dray.server.http.errors import already_exists, forbidden, not_found
from dray.server.objects.stored_object import key
from dray.server.watch.cache import Cache
from dray.store import Absent, Unchanged

PERMANENT: Final = ("default", "kube-system", "kube-public")


_NAMESPACE: Final = known_kind("", "Namespace")
_CLAIMS: Final = {
    known_kind("resource.k8s.io", "ResourceClaim"): known_kind("cdi.k8s.io", "ResourceClaim"),
    known_kind("cdi.k8s.io", "ResourceClaim"): known_kind("resource.k8s.io", "ResourceClaim"),
}


class Namespaces:
    """New objects need a namespace that is there and stays; some namespaces always stay."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def judge(self, change: Change) -> Extra:
        if change.kind is _NAMESPACE:
            return self._permanent(change)
        if change.operation != CREATE or not change.kind.namespaced:
            return NOTHING
        home = self._cache.get(_NAMESPACE, "", change.namespace)
        if home is None:
            raise not_found(_NAMESPACE, change.namespace)
        # Most namespaces stay; what does not name the field cannot have it.
        if b"deletionTimestamp" in home.value and home.metadata.deletion_timestamp:
            why = (
                f"unable to create new content in namespace {change.namespace} because it is being terminated"
            )
            raise forbidden(change.kind, change.name, why)
        return Extra((Unchanged(home.key, home.revision),))

    def _permanent(self, change: Change) -> Extra:
        leaving = change.operation == DELETE or (
            change.operation == UPDATE and bool(change.view.metadata.deletion_timestamp)
        )
        if leaving and change.name in PERMANENT:
            raise forbidden(_NAMESPACE, change.name, "this namespace may not be deleted")
        return NOTHING


class ClaimNames:
    """A pod names a claim without saying of which path, so a name belongs to one claim of both."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def judge(self, change: Change) -> Extra:
        other = _CLAIMS.get(change.kind)
        if other is None or change.operation != CREATE:
            return NOTHING
        if self._cache.get(other, change.namespace, change.name) is not None:
            raise already_exists(other, change.name)
        return Extra((Absent(key(other, change.namespace, change.name)),))
