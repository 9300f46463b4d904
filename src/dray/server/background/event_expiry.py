"""Events go after a while: they tell what happened lately, and would otherwise be most of what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from dray.api.kinds import known_kind
from dray.clock import Clock
from dray.server.background.bootstrap import SERVER
from dray.server.http.errors import Failure
from dray.server.http.requests import Call, Request
from dray.server.objects.stored_object import Held
from dray.server.registry.object_registry import Registry, Remove, Same, Wanted
from dray.server.watch.cache import Cache

LIFETIME: Final = timedelta(hours=1)
_LOOK_SECONDS: Final = 60.0

_EVENT = known_kind("", "Event")


class Expiry:
    """Deletes events that nobody has repeated for a while."""

    def __init__(self, cache: Cache, registry: Registry, clock: Clock) -> None:
        self._cache = cache
        self._registry = registry
        self._clock = clock

    async def run(self) -> None:
        """Look every minute, for ever; the owner runs this as a task."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.sweep()

    async def sweep(self) -> int:
        """Delete what is over; how many that were."""
        end = self._clock.now() - LIFETIME
        gone = 0
        for held in self._cache.all(_EVENT):
            if last_told(held) < end:
                gone += await self._delete(held, end)
        return gone

    async def _delete(self, held: Held, end: datetime) -> bool:
        kind = held.kind

        def decide(now: Held | None) -> Wanted:
            if now is None:
                raise Failure(404, "NotFound", "gone already")
            return Remove() if last_told(now) < end else Same()

        call = Call("delete", "", kind, kind.group, kind.version, kind.plural, held.namespace, held.name)
        request = Request(call, SERVER, {"user-agent": "dray-server"})
        try:
            return (await self._registry.write(request, kind, held.namespace, held.name, decide)).gone
        except Failure:
            return False  # the next sweep finds it again


class _Told(msgspec.Struct, frozen=True, rename="camel"):
    """Where times may stand; nobody checked that they are times when the event was written."""

    metadata: Mapping[str, Any] = {}
    event_time: Any = None
    first_timestamp: Any = None
    last_timestamp: Any = None
    series: Any = None


_TOLD = msgspec.json.Decoder(_Told)
_ALWAYS = datetime.max.replace(tzinfo=UTC)


def last_told(held: Held) -> datetime:
    """When an event was told for the last time; what has no time never ends."""
    event = _TOLD.decode(held.value)
    given = (
        event.metadata.get("creationTimestamp"),
        event.event_time,
        event.first_timestamp,
        event.last_timestamp,
        event.series.get("lastObservedTime") if isinstance(event.series, dict) else None,
    )
    return max((moment for moment in map(_moment, given) if moment is not None), default=_ALWAYS)


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
