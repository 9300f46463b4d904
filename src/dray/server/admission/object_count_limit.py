"""No namespace may fill the server: a bound on how many objects of a kind one namespace has.

A quota is exact and chosen per namespace; this bound is coarse and for all of them. Creations that are under
way at the same moment do not see each other, so it may be passed by as many as are carried out at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dray.api.kinds import KINDS
from dray.server.admission.change import ADMITTED, CREATE, AdmissionEffects, ObjectChange
from dray.server.http.errors import new_forbidden
from dray.server.objects.stored_object import StoredObject, get_storage_kind
from dray.server.watch.cache import WatchCache


class ObjectCountLimit:
    """Refuses one object too many."""

    def __init__(self, cache: WatchCache, max_objects: int, on_refused: Callable[[str], None]) -> None:
        """`max_objects` is 0 when there is no bound."""
        self._max_objects, self._on_refused = max_objects, on_refused
        self._counts: Counter[tuple[str, str, str]] = Counter()
        if max_objects:
            for kind in KINDS:
                if kind.namespaced and kind.stored_as is None:
                    cache.add_listener(kind, self._on_change)

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if not self._max_objects or change.operation != CREATE or not change.kind.namespaced:
            return ADMITTED
        kind = get_storage_kind(change.kind)
        if self._counts[kind.group, kind.plural, change.namespace] >= self._max_objects:
            self._on_refused("max_objects_per_namespace")
            why = f"namespace {change.namespace} has {self._max_objects} {kind.plural}, no more are taken"
            raise new_forbidden(change.kind, change.name, why)
        return ADMITTED

    def _on_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        held = new if new is not None else old
        if held is None or (old is None) == (new is None):
            return
        place = (held.kind.group, held.kind.plural, held.namespace)
        self._counts[place] += 1 if old is None else -1
        if not self._counts[place]:
            del self._counts[place]
