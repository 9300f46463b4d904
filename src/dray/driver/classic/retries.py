"""Retries of failed claims: when each is due, with a delay that grows up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass

from dray.client.object_refs import ObjectKey
from dray.client.timing import Backoff, TimeSource


@dataclass(frozen=True, slots=True)
class ClassicRetryDelay:
    """Seconds before a retry: after the first failure, and at most."""

    first: float = 0.5
    longest: float = 60.0


@dataclass(slots=True)
class _ScheduledRetry:
    """A claim that is reconciled again at a time."""

    backoff: Backoff
    due_at: float = 0.0


class ClassicRetries:
    """The scheduled retries of a controller, by key."""

    def __init__(self, time_source: TimeSource, delay: ClassicRetryDelay) -> None:
        self._time_source, self._delay = time_source, delay
        self._scheduled: dict[ObjectKey, _ScheduledRetry] = {}

    def schedule(self, key: ObjectKey) -> None:
        """Schedule the next retry of a key, later than the one before."""
        retry = self._scheduled.get(key)
        if retry is None:
            backoff = Backoff(self._time_source, initial=self._delay.first, maximum=self._delay.longest)
            retry = self._scheduled[key] = _ScheduledRetry(backoff)
        retry.due_at = self._time_source.clock.monotonic() + retry.backoff.compute_delay()

    def forget(self, key: ObjectKey) -> None:
        """Remove a key, because it needs no retry or is gone."""
        self._scheduled.pop(key, None)

    def list_due(self) -> list[ObjectKey]:
        """Return the keys whose retry is due; they stay until they are forgotten or scheduled again."""
        now = self._time_source.clock.monotonic()
        return [key for key, retry in self._scheduled.items() if retry.due_at <= now]

    def compute_wait_seconds(self) -> float | None:
        """Return the time until the next retry; None when none is scheduled."""
        if not self._scheduled:
            return None
        soonest = min(retry.due_at for retry in self._scheduled.values())
        return max(0.0, soonest - self._time_source.clock.monotonic())
