"""No namespace may fill the server: a bound on how many objects of a kind one namespace has.

A quota is exact and chosen per namespace; this bound is coarse and for all of them. Creations that are under
way at the same moment do not see each other, so it may be passed by as many as are carried out at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dray.api.kinds import KINDS
from dray.server.admission.change import CREATE, NOTHING, Change, Extra
from dray.server.http.errors import forbidden
from dray.server.objects.stored_object import Held, keeper
from dray.server.watch.cache import Cache


class Crowding:
    """Refuses one object too many."""

    def __init__(self, cache: Cache, most: int, refused: Callable[[str], None]) -> None:
        """`most` is 0 when there is no bound."""
        self._most, self._refused = most, refused
        self._counts: Counter[tuple[str, str, str]] = Counter()
        if most:
            for kind in KINDS:
                if kind.namespaced and kind.kept_as is None:
                    cache.listen(kind, self._changed)

    def judge(self, change: Change) -> Extra:
        if not self._most or change.operation != CREATE or not change.kind.namespaced:
            return NOTHING
        kind = keeper(change.kind)
        if self._counts[kind.group, kind.plural, change.namespace] >= self._most:
            self._refused("max_objects_per_namespace")
            why = f"namespace {change.namespace} has {self._most} {kind.plural}, no more are taken"
            raise forbidden(change.kind, change.name, why)
        return NOTHING

    def _changed(self, old: Held | None, new: Held | None) -> None:
        held = new if new is not None else old
        if held is None or (old is None) == (new is None):
            return
        place = (held.kind.group, held.kind.plural, held.namespace)
        self._counts[place] += 1 if old is None else -1
        if not self._counts[place]:
            del self._counts[place]
