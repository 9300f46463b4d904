"""Flow control: bounds how many requests are carried out at a time, by priority level and fairly per user.

Theory of operation: a request has a priority level, by its user and resource. Levels are ordered, and each
may fill the slots only up to its share, so that the last slots are left for the levels above it: leases are
renewed and nodes are served under any load. Level and limits are those of the caller, whoever is
impersonated. A request without a free slot waits for a while in the queue of its level; a queue serves its
users in turn, so that a thousand requests of one do not delay the single request of another. Watches and logs
last long and take no slots; they are only counted.

Rules for this file: it runs in one thread and knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import TypeVar

from dray.clock import Clock
from dray.server.http.errors import ApiStatusError, new_too_many_requests
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ANONYMOUS, MASTERS, NODES, ApiCall, RequestUser

MAX_RATE_BUCKETS = 10_000
"""The number of users whose request rate is remembered."""


@dataclass(frozen=True, slots=True)
class PriorityLevel:
    """A class of requests, and which share of all slots it may fill."""

    name: str
    share: float
    matches: Callable[[bool, str, tuple[str, ...]], bool]
    """Called with whether the request is about a lease, the user's name and the user's groups."""
    description: str


_EXEMPT_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})


def _is_system(lease: bool, user: str, groups: tuple[str, ...]) -> bool:
    return MASTERS in groups or NODES in groups or user.startswith(("system:kube-", "dray:"))


PRIORITY_LEVELS: tuple[PriorityLevel, ...] = (
    PriorityLevel(
        "leases",
        1.0,
        lambda lease, user, groups: lease and user != ANONYMOUS,
        "leases, so that no component loses its leadership and no node its heartbeat when the server is busy",
    ),
    PriorityLevel("system", 0.95, _is_system, "administrators, nodes, scheduler and controllers"),
    PriorityLevel("others", 0.75, lambda lease, user, groups: user != ANONYMOUS, "all other users"),
    PriorityLevel("anonymous", 0.25, lambda lease, user, groups: True, "anonymous requests"),
)
"""The levels, first match; health checks have none and are always served."""


class FlowController:
    """Admits requests and watches within the limits."""

    def __init__(
        self, limits: ServerLimits, clock: Clock, on_refused: Callable[[str], None] = lambda limit: None
    ) -> None:
        """`on_refused` is called with the name of the limit that refuses a request."""
        self._limits, self._clock, self._on_refused = limits, clock, on_refused
        self._slots_by_level = [max(1, int(limits.max_in_flight * row.share)) for row in PRIORITY_LEVELS]
        self._queues = tuple(_FairQueue() for _ in PRIORITY_LEVELS)
        self._rate_buckets: OrderedDict[str, _TokenBucket] = OrderedDict()
        self.in_flight = {"readOnly": 0, "mutating": 0}
        self._executing = 0
        self.watches: dict[tuple[str, str, str], int] = {}
        self._watches_per_user: dict[str, int] = {}
        self._watch_count = 0

    def acquire(self, call: ApiCall, user: RequestUser) -> FlowControlSlot:
        """Hold a slot while the call lasts; entering raises an `ApiStatusError` when there is none."""
        return FlowControlSlot(self, call, user)

    @property
    def queued(self) -> int:
        """How many requests wait for a slot."""
        return sum(map(len, self._queues))

    # --- requests ---

    async def acquire_slot(self, call: ApiCall, user: RequestUser) -> None:
        """Take a slot, or wait in the queue for one."""
        if self._limits.requests_per_second:
            self._check_rate(user.name)
        rank = get_priority_rank(call, user)
        if self._executing < self._slots_by_level[rank] and not self._has_earlier_waiters(rank):
            self._executing += 1
        else:
            await self._wait_in_queue(rank, user.name)
        self.in_flight["mutating" if call.is_write else "readOnly"] += 1

    def release_slot(self, call: ApiCall) -> None:
        """Give the slot to the next request in the queues."""
        self.in_flight["mutating" if call.is_write else "readOnly"] -= 1
        self._dispatch_next()

    def _dispatch_next(self) -> None:
        self._executing -= 1
        for queue, slots in zip(self._queues, self._slots_by_level, strict=True):
            while self._executing < slots and (waiting := queue.pop_next()) is not None:
                self._executing += 1
                waiting.set_result(None)

    def _has_earlier_waiters(self, rank: int) -> bool:
        return any(map(len, self._queues[: rank + 1]))

    async def _wait_in_queue(self, rank: int, user: str) -> None:
        queue, limits = self._queues[rank], self._limits
        if self.queued >= limits.max_queued:
            raise self._refuse("max_queued", "too many requests are queued")
        if queue.count(user) >= limits.max_queued_per_user:
            raise self._refuse("max_queued_per_user", f"too many requests of `{user}` are queued")
        waiting = queue.add(user)
        try:
            async with asyncio.timeout(limits.queue_seconds):
                await waiting
        except TimeoutError:
            # The slot may have been granted just when the timeout expired.
            self._leave_queue(waiting)
            raise self._refuse(
                "queue_seconds", f"the server is busy: no free slot in {limits.queue_seconds:g} seconds"
            ) from None
        except asyncio.CancelledError:
            self._leave_queue(waiting)
            raise

    def _leave_queue(self, waiting: asyncio.Future[None]) -> None:
        if waiting.done() and not waiting.cancelled():
            self._dispatch_next()
        else:
            waiting.cancel()

    def _check_rate(self, user: str) -> None:
        now, rate = self._clock.monotonic(), self._limits.requests_per_second
        bucket = self._rate_buckets.get(user)
        if bucket is None:
            bucket = self._rate_buckets[user] = _TokenBucket(2 * rate, now)
            if len(self._rate_buckets) > MAX_RATE_BUCKETS:
                self._rate_buckets.popitem(last=False)
        self._rate_buckets.move_to_end(user)
        if not bucket.take(now, rate):
            raise self._refuse("requests_per_second", f"more than {rate:g} requests per second of `{user}`")

    # --- watches ---

    def open_watch(self, call: ApiCall, user: RequestUser) -> None:
        """Count an open watch."""
        limits = self._limits
        if self._watch_count >= limits.max_watches:
            raise self._refuse("max_watches", f"{self._watch_count} watches are open, no more are served")
        if self._watches_per_user.get(user.name, 0) >= limits.max_watches_per_user:
            text = f"`{user.name}` has {limits.max_watches_per_user} watches open, no more are served"
            raise self._refuse("max_watches_per_user", text)
        self._count_watch(call, user.name, 1)

    def close_watch(self, call: ApiCall, user: RequestUser) -> None:
        """Count a closed watch."""
        self._count_watch(call, user.name, -1)

    def _count_watch(self, call: ApiCall, user: str, by: int) -> None:
        self._watch_count += by
        _add_count(self._watches_per_user, user, by)
        _add_count(self.watches, (call.group, call.version, call.plural), by)

    def _refuse(self, limit: str, text: str) -> ApiStatusError:
        self._on_refused(limit)
        return new_too_many_requests(f"{text}; try again later")


_Key = TypeVar("_Key")


def _add_count(counts: dict[_Key, int], key: _Key, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def get_priority_rank(call: ApiCall, user: RequestUser) -> int:
    """The index of a request's level in the table."""
    return _find_rank(call.plural == "leases", user.name, user.groups)


@lru_cache(maxsize=4096)
def _find_rank(lease: bool, user: str, groups: tuple[str, ...]) -> int:
    for rank, row in enumerate(PRIORITY_LEVELS):
        if row.matches(lease, user, groups):
            return rank
    return len(PRIORITY_LEVELS) - 1


class FlowControlSlot:
    """The slot of one call, as a context manager."""

    __slots__ = ("_call", "_controller", "_user")

    def __init__(self, controller: FlowController, call: ApiCall, user: RequestUser) -> None:
        self._controller, self._call, self._user = controller, call, user

    async def __aenter__(self) -> None:
        if self._call.is_long_running:
            self._controller.open_watch(self._call, self._user)
        elif not _is_exempt(self._call):
            await self._controller.acquire_slot(self._call, self._user)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._call.is_long_running:
            self._controller.close_watch(self._call, self._user)
        elif not _is_exempt(self._call):
            self._controller.release_slot(self._call)


def _is_exempt(call: ApiCall) -> bool:
    return not call.plural and call.path in _EXEMPT_PATHS


class _FairQueue:
    """Waiting requests, served in turn by user."""

    def __init__(self) -> None:
        self._users: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def count(self, user: str) -> int:
        return len(self._users.get(user, ()))

    def add(self, user: str) -> asyncio.Future[None]:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._users.setdefault(user, deque()).append(waiting)
        self._length += 1
        waiting.add_done_callback(lambda done: self._forget(user, done) if done.cancelled() else None)
        return waiting

    def pop_next(self) -> asyncio.Future[None] | None:
        """The next request; its user goes to the end of the order."""
        while self._users:
            user, waiters = self._users.popitem(last=False)
            waiting = waiters.popleft()
            self._length -= 1
            if waiters:
                self._users[user] = waiters
            if not waiting.done():
                return waiting
        return None

    def _forget(self, user: str, waiting: asyncio.Future[None]) -> None:
        waiters = self._users.get(user)
        if waiters is not None and waiting in waiters:
            waiters.remove(waiting)
            self._length -= 1
            if not waiters:
                del self._users[user]


class _TokenBucket:
    """A token bucket: tokens are refilled at a rate, up to a capacity."""

    __slots__ = ("_capacity", "_tokens", "_updated")

    def __init__(self, capacity: float, now: float) -> None:
        self._capacity = self._tokens = max(1.0, capacity)
        self._updated = now

    def take(self, now: float, rate: float) -> bool:
        self._tokens = min(self._capacity, self._tokens + (now - self._updated) * rate)
        self._updated = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
