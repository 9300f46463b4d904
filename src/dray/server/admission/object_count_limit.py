"""The admission rule that bounds the number of objects of one kind in one namespace.

A quota is exact and set per namespace; this limit is approximate and applies to all namespaces. Concurrent
creates do not see each other, so the count may exceed the limit by the number of requests in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from dray.api.kinds import KINDS
from dray.server.admission.change import ADMITTED, CREATE, AdmissionEffects, ObjectChange, RuleScope
from dray.server.http.errors import new_forbidden
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

_COUNTED_KINDS: Final = tuple(kind for kind in KINDS if kind.namespaced and kind.stored_as is None)


class ObjectCountLimit:
    """Refuses objects beyond the limit."""

    def __init__(self, cache: WatchCache, max_objects: int, on_refused: Callable[[str], None]) -> None:
        """A limit of 0 is no limit."""
        self._max_objects, self._on_refused = max_objects, on_refused
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self.scopes: Final = (RuleScope(_COUNTED_KINDS, (CREATE,)),) if max_objects else ()
        if max_objects:
            for kind in _COUNTED_KINDS:
                cache.add_listener(kind, self._on_change)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if not self._max_objects or change.operation != CREATE:
            return ADMITTED
        kind = change.kind
        if self._counts[kind.group, kind.plural, change.namespace] >= self._max_objects:
            self._on_refused("max_objects_per_namespace")
            why = f"namespace {change.namespace} has {self._max_objects} {kind.plural}, which is the limit"
            raise new_forbidden(change.kind, change.name, why)
        return ADMITTED

    def _on_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        stored = new if new is not None else old
        if stored is None or (old is None) == (new is None):
            return
        key = (stored.kind.group, stored.kind.plural, stored.namespace)
        self._counts[key] += 1 if old is None else -1
        if not self._counts[key]:
            del self._counts[key]
