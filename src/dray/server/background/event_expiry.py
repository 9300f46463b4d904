"""Event expiry: deletes events an hour after they were last observed; they would fill the store otherwise."""

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
    """Deletes events that were not observed for `EVENT_LIFETIME`."""

    def __init__(self, cache: WatchCache, registry: ObjectRegistry, clock: Clock) -> None:
        self._cache = cache
        self._registry = registry
        self._clock = clock

    async def run(self) -> None:
        """Sweep periodically, forever; the owner runs this as a task."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> int:
        """Delete expired events; returns how many."""
        oldest = self._clock.now() - EVENT_LIFETIME
        deleted = 0
        for stored in self._cache.list_objects(_EVENT):
            if get_last_observed(stored) < oldest:
                deleted += await self._delete(stored, oldest)
        return deleted

    async def _delete(self, stored: StoredObject, oldest: datetime) -> bool:
        kind = stored.kind

        def decide(current: StoredObject | None) -> WriteDecision:
            if current is None:
                raise ApiStatusError(404, "NotFound", "the event is deleted already")
            return DeleteObject() if get_last_observed(current) < oldest else LeaveUnchanged()

        call = ApiCall(
            "delete", "", kind, kind.group, kind.version, kind.plural, stored.namespace, stored.name
        )
        request = ApiRequest(call, SERVER_USER, {"user-agent": "dray-server"})
        try:
            return (await self._registry.write(request, kind, stored.namespace, stored.name, decide)).deleted
        except ApiStatusError:
            return False  # the next sweep finds it again


class _EventTimes(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an event that may contain times; events are not validated."""

    metadata: Mapping[str, Any] = {}
    event_time: Any = None
    first_timestamp: Any = None
    last_timestamp: Any = None
    series: Any = None


_EVENT_TIMES_DECODER = msgspec.json.Decoder(_EventTimes)
_NEVER_EXPIRES = datetime.max.replace(tzinfo=UTC)


def get_last_observed(stored: StoredObject) -> datetime:
    """When an event was last observed; an event without a time never expires."""
    event = _EVENT_TIMES_DECODER.decode(stored.value)
    times = (
        event.metadata.get("creationTimestamp"),
        event.event_time,
        event.first_timestamp,
        event.last_timestamp,
        event.series.get("lastObservedTime") if isinstance(event.series, dict) else None,
    )
    return max((time for time in map(_parse_time, times) if time is not None), default=_NEVER_EXPIRES)


def _parse_time(text: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo is not None else None
