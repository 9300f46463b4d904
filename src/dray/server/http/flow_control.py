"""The turnstile: how many requests are carried out at a time, and who is next.

Theory of operation: a request belongs to a class, by who asks and for what. Classes stand in an order, and
each may fill the places only up to its share, so that the last places are left for those above: a lease is
renewed and a node heard however many others press. Who finds no place waits, for a while, in the queue of its
class; in a queue every user has a turn after the other, so that a thousand requests of one do not delay the
single one of another. Watches and logs are no such requests: they last, and are only counted.

Rules for this file: one thread; nothing here knows HTTP.
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
from dray.server.http.errors import Failure, too_many_requests
from dray.server.http.limits import Limits
from dray.server.http.requests import ANONYMOUS, MASTERS, NODES, WRITES, Call, User

BUCKETS = 10_000
"""So many users are remembered for their rate."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Requests that are treated alike, and how much of all places they may fill."""

    name: str
    share: float
    holds: Callable[[bool, str, tuple[str, ...]], bool]
    """Asked whether it is about a lease, by whom, and of which groups they are."""
    about: str


_HEALTH = frozenset({"/healthz", "/livez", "/readyz", "/version"})


def _is_system(lease: bool, user: str, groups: tuple[str, ...]) -> bool:
    return MASTERS in groups or NODES in groups or user.startswith(("system:kube-", "dray:"))


CLASSES: tuple[PriorityClass, ...] = (
    PriorityClass(
        "leases",
        1.0,
        lambda lease, user, groups: lease and user != ANONYMOUS,
        "leases, so that nobody loses its leadership or is thought dead because the server is busy",
    ),
    PriorityClass("system", 0.95, _is_system, "administrators, nodes, scheduler and controllers"),
    PriorityClass("others", 0.75, lambda lease, user, groups: user != ANONYMOUS, "everybody else"),
    PriorityClass("anonymous", 0.25, lambda lease, user, groups: True, "who has no name"),
)
"""The classes, first match; health checks are in none and always pass."""


class Gate:
    """Lets requests in."""

    def __init__(
        self, limits: Limits, clock: Clock, refused: Callable[[str], None] = lambda limit: None
    ) -> None:
        """`refused` is told the name of a limit whenever it turns a request away."""
        self._limits, self._clock, self._refused = limits, clock, refused
        self._seats = [max(1, int(limits.max_in_flight * row.share)) for row in CLASSES]
        self._queues = tuple(_Queue() for _ in CLASSES)
        self._rates: OrderedDict[str, _Bucket] = OrderedDict()
        self.in_flight = {"readOnly": 0, "mutating": 0}
        self._inside = 0
        self.watches: dict[tuple[str, str, str], int] = {}
        self._watchers: dict[str, int] = {}
        self._watching = 0

    def entered(self, call: Call, user: User) -> Visit:
        """Holds a place while the call lasts; to enter raises a `Failure` when there is none."""
        return Visit(self, call, user)

    @property
    def waiting(self) -> int:
        """How many requests wait for a place."""
        return sum(map(len, self._queues))

    # --- requests ---

    async def take_seat(self, call: Call, user: User) -> None:
        """Come in, maybe after a while."""
        if self._limits.requests_per_second:
            self._check_rate(user.name)
        rank = rank_of(call, user)
        if self._inside < self._seats[rank] and not self._anybody_before(rank):
            self._inside += 1
        else:
            await self._wait(rank, user.name)
        self.in_flight["mutating" if call.verb in WRITES else "readOnly"] += 1

    def leave_seat(self, call: Call) -> None:
        """Go, and let the next one in."""
        self.in_flight["mutating" if call.verb in WRITES else "readOnly"] -= 1
        self._vacate()

    def _vacate(self) -> None:
        self._inside -= 1
        for queue, seats in zip(self._queues, self._seats, strict=True):
            while self._inside < seats and (waiting := queue.next()) is not None:
                self._inside += 1
                waiting.set_result(None)

    def _anybody_before(self, rank: int) -> bool:
        return any(map(len, self._queues[: rank + 1]))

    async def _wait(self, rank: int, user: str) -> None:
        queue, limits = self._queues[rank], self._limits
        if self.waiting >= limits.max_queued:
            raise self._turned_away("max_queued", "too many requests wait already")
        if queue.count(user) >= limits.max_queued_per_user:
            raise self._turned_away("max_queued_per_user", f"too many requests of `{user}` wait already")
        waiting = queue.add(user)
        try:
            async with asyncio.timeout(limits.queue_seconds):
                await waiting
        except TimeoutError:
            # The place may have come in the very moment the time was over.
            self._give_up(waiting)
            raise self._turned_away("queue_seconds", "the server is busy; no place in time") from None
        except asyncio.CancelledError:
            self._give_up(waiting)
            raise

    def _give_up(self, waiting: asyncio.Future[None]) -> None:
        if waiting.done() and not waiting.cancelled():
            self._vacate()
        else:
            waiting.cancel()

    def _check_rate(self, user: str) -> None:
        now, rate = self._clock.monotonic(), self._limits.requests_per_second
        bucket = self._rates.get(user)
        if bucket is None:
            bucket = self._rates[user] = _Bucket(2 * rate, now)
            if len(self._rates) > BUCKETS:
                self._rates.popitem(last=False)
        self._rates.move_to_end(user)
        if not bucket.take(now, rate):
            raise self._turned_away(
                "requests_per_second", f"more than {rate:g} requests per second of `{user}`"
            )

    # --- watches ---

    def open_watch(self, call: Call, user: User) -> None:
        """Count a watch in."""
        limits = self._limits
        if self._watching >= limits.max_watches:
            raise self._turned_away("max_watches", f"{self._watching} watches are open, no more are served")
        if self._watchers.get(user.name, 0) >= limits.max_watches_per_user:
            text = f"`{user.name}` has {limits.max_watches_per_user} watches open, no more are served"
            raise self._turned_away("max_watches_per_user", text)
        self._count_watch(call, user.name, 1)

    def close_watch(self, call: Call, user: User) -> None:
        """Count a watch out."""
        self._count_watch(call, user.name, -1)

    def _count_watch(self, call: Call, user: str, by: int) -> None:
        self._watching += by
        _count(self._watchers, user, by)
        _count(self.watches, (call.group, call.version, call.plural), by)

    def _turned_away(self, limit: str, text: str) -> Failure:
        self._refused(limit)
        return too_many_requests(f"{text}; try again later")


_Key = TypeVar("_Key")


def _count(counts: dict[_Key, int], key: _Key, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def rank_of(call: Call, user: User) -> int:
    """The place of a request's class in the table."""
    return _rank(call.plural == "leases", user.name, user.groups)


@lru_cache(maxsize=4096)
def _rank(lease: bool, user: str, groups: tuple[str, ...]) -> int:
    for rank, row in enumerate(CLASSES):
        if row.holds(lease, user, groups):
            return rank
    return len(CLASSES) - 1


class Visit:
    """A call's time inside."""

    __slots__ = ("_call", "_gate", "_user")

    def __init__(self, gate: Gate, call: Call, user: User) -> None:
        self._gate, self._call, self._user = gate, call, user

    async def __aenter__(self) -> None:
        if self._call.is_long:
            self._gate.open_watch(self._call, self._user)
        elif not _passes(self._call):
            await self._gate.take_seat(self._call, self._user)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._call.is_long:
            self._gate.close_watch(self._call, self._user)
        elif not _passes(self._call):
            self._gate.leave_seat(self._call)


def _passes(call: Call) -> bool:
    return not call.plural and call.path in _HEALTH


class _Queue:
    """Those who wait, user after user."""

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

    def next(self) -> asyncio.Future[None] | None:
        """Whose turn it is; the user goes to the end of the line."""
        while self._users:
            user, line = self._users.popitem(last=False)
            waiting = line.popleft()
            self._length -= 1
            if line:
                self._users[user] = line
            if not waiting.done():
                return waiting
        return None

    def _forget(self, user: str, waiting: asyncio.Future[None]) -> None:
        line = self._users.get(user)
        if line is not None and waiting in line:
            line.remove(waiting)
            self._length -= 1
            if not line:
                del self._users[user]


class _Bucket:
    """Tokens that come back with time."""

    __slots__ = ("_largest", "_then", "_tokens")

    def __init__(self, largest: float, now: float) -> None:
        self._largest = self._tokens = max(1.0, largest)
        self._then = now

    def take(self, now: float, rate: float) -> bool:
        self._tokens = min(self._largest, self._tokens + (now - self._then) * rate)
        self._then = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
