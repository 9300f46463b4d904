"""The admission rule that keeps the names of claims unique across `resource.k8s.io` and `cdi.k8s.io`."""

from __future__ import annotations

from typing import Final

from dray.api.kinds import get_kind
from dray.server.admission.change import ADMITTED, CREATE, AdmissionEffects, ObjectChange, RuleScope
from dray.server.http.errors import new_already_exists
from dray.server.objects.stored_object import build_key
from dray.server.watch.cache import WatchCache
from dray.store import KeyAbsent

_CLAIM_COUNTERPARTS: Final = {
    get_kind("resource.k8s.io", "ResourceClaim"): get_kind("cdi.k8s.io", "ResourceClaim"),
    get_kind("cdi.k8s.io", "ResourceClaim"): get_kind("resource.k8s.io", "ResourceClaim"),
}


class UniqueClaimNames:
    """Refuses a claim whose name a claim of the other kind has: a pod names a claim without its kind."""

    scopes: Final = (RuleScope(tuple(_CLAIM_COUNTERPARTS), (CREATE,)),)

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.operation != CREATE:
            return ADMITTED
        other = _CLAIM_COUNTERPARTS[change.kind]
        if self._cache.get(other, change.namespace, change.name) is not None:
            raise new_already_exists(other, change.name)
        return AdmissionEffects((KeyAbsent(build_key(other, change.namespace, change.name)),))
