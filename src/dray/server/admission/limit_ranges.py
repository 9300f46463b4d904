"""Limit ranges: complete new pods, and refuse pods and volume claims beyond the limits of their namespace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dray.api.kinds import get_kind
from dray.api.strategies.limit_ranges import apply_limit_range, list_claim_violations, list_pod_violations
from dray.server.admission.change import ADMITTED, CREATE, UPDATE, AdmissionEffects, ObjectChange, RuleScope
from dray.server.http.errors import new_forbidden
from dray.server.objects.pending_object import PendingObject
from dray.server.watch.cache import WatchCache

_POD: Final = get_kind("", "Pod")
_CLAIM: Final = get_kind("", "PersistentVolumeClaim")
_RANGE: Final = get_kind("", "LimitRange")


def apply_limit_ranges(pending: PendingObject, cache: WatchCache) -> PendingObject:
    """A new pod with the default requests and limits of its namespace; other kinds are left as they are."""
    if pending.kind is not _POD or not cache.count(_RANGE):
        return pending
    pod = pending.document
    for limit_range in _iterate_ranges(cache, str(pending.metadata.get("namespace") or "")):
        pod = apply_limit_range(pod, limit_range)
    return pending.replace_document(pod)


def _iterate_ranges(cache: WatchCache, namespace: str) -> Iterator[dict[str, Any]]:
    for stored in cache.list_objects(_RANGE, namespace):
        yield stored.document


class LimitRangeAdmission:
    """Refuses new pods, and new and changed volume claims, beyond the limits of their namespace.

    A limit range that is created at the same time may miss a pod, as in Kubernetes.
    """

    scopes: Final = (
        RuleScope((_POD, _CLAIM), (CREATE,), subresources=("",)),
        RuleScope((_CLAIM,), (UPDATE,), subresources=("",)),
    )

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        is_reviewed = change.operation == CREATE or (change.kind is _CLAIM and change.operation == UPDATE)
        document = change.document
        if not is_reviewed or change.subresource or document is None or not self._cache.count(_RANGE):
            return ADMITTED
        list_violations = list_pod_violations if change.kind is _POD else list_claim_violations
        violations: list[str] = []
        for limit_range in _iterate_ranges(self._cache, change.namespace):
            violations += list_violations(document, limit_range)
        if violations:
            text = violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"
            raise new_forbidden(change.kind, change.name, text)
        return ADMITTED
