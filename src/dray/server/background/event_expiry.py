"""Events go after a while: they tell what happened lately, and would otherwise be most of what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from dray.api.kinds import get_kind
from dray.clock import Clock
from dray.server.background.bootstrap import SERVER_USER
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import ApiCall, ApiRequest
from dray.server.objects.stored_object import StoredObject
from dray.server.registry.object_registry import DeleteObject, LeaveUnchanged, ObjectRegistry, WriteDecision
from dray.server.watch.cache import WatchCache

EVENT_LIFETIME: Final = timedelta(hours=1)
_SWEEP_SECONDS: Final = 60.0

_EVENT = get_kind("", "Event")


class EventExpiry:
    """Deletes events that nobody has repeated for a while."""

    def __init__(self, cache: WatchCache, registry: ObjectRegistry, clock: Clock) -> None:
        self._cache = cache
        self._registry = registry
        self._clock = clock

    async def run(self) -> None:
        """Look every minute, for ever; the owner runs this as a task."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> int:
        """Delete what is over; how many that were."""
        end = self._clock.now() - EVENT_LIFETIME
        gone = 0
        for held in self._cache.list_objects(_EVENT):
            if get_last_observed(held) < end:
                gone += await self._delete(held, end)
        return gone

    async def _delete(self, stored: StoredObject, end: datetime) -> bool:
        kind = stored.kind

        def decide(now: StoredObject | None) -> WriteDecision:
            if now is None:
                raise ApiStatusError(404, "NotFound", "gone already")
            return DeleteObject() if get_last_observed(now) < end else LeaveUnchanged()

        call = ApiCall(
            "delete", "", kind, kind.group, kind.version, kind.plural, stored.namespace, stored.name
        )
        request = ApiRequest(call, SERVER_USER, {"user-agent": "dray-server"})
        try:
            return (await self._registry.write(request, kind, stored.namespace, stored.name, decide)).deleted
        except ApiStatusError:
            return False  # the next sweep finds it again


class _EventTimes(msgspec.Struct, frozen=True, rename="camel"):
    """Where times may stand; nobody checked that they are times when the event was written."""

    metadata: Mapping[str, Any] = {}
    event_time: Any = None
    first_timestamp: Any = None
    last_timestamp: Any = None
    series: Any = None


_EVENT_TIMES_DECODER = msgspec.json.Decoder(_EventTimes)
_NEVER_EXPIRES = datetime.max.replace(tzinfo=UTC)


def get_last_observed(stored: StoredObject) -> datetime:
    """When an event was told for the last time; what has no time never ends."""
    event = _EVENT_TIMES_DECODER.decode(stored.value)
    given = (
        event.metadata.get("creationTimestamp"),
        event.event_time,
        event.first_timestamp,
        event.last_timestamp,
        event.series.get("lastObservedTime") if isinstance(event.series, dict) else None,
    )
    return max((moment for moment in map(_parse_time, given) if moment is not None), default=_NEVER_EXPIRES)


def _parse_time(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
