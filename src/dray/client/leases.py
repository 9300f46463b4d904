"""Leases: who of several leads, and the sign of life of one.

Theory of operation: a leader writes its name into a lease and renews it. Clocks of machines differ, so nobody
compares the times written there with its own: a candidate notes when, on its own clock, the lease last
changed, and may take it when it has not changed for as long as the lease says it holds. The leader counts
from before it sent its last renewal that succeeded and stops leading after the renew deadline, which is
shorter. So it has stopped before anybody else can begin, as far as clocks run at the same speed. What was
written is known by the object's version: of two candidates that write at once, one gets a conflict.

Rules for this file: `is_leader` asks the clock each time. A process that was suspended finds itself out of
office when it wakes, before it does anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dray.client.client import Client
from dray.client.errors import AlreadyExists, Conflict, NotFound
from dray.client.object_refs import Document, kind_called, resource_version_of
from dray.client.patches import MergePatch
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.errors import DrayError

LEASE: Final = kind_called("Lease.coordination.k8s.io")
_JITTER: Final = 1.2
_RELEASE_SECONDS: Final = 5.0


class LeadershipLost(DrayError):  # noqa: N818 - what is the case
    """Somebody else leads, or may begin to."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long a lease holds, how long a leader goes on without renewal, how often it tries."""

    lease: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry * _JITTER > 0:
            raise ValueError(
                f"expected lease > renew deadline > {_JITTER} x retry > 0, got {self.lease:g}, "
                f"{self.renew_deadline:g}, {self.retry:g}"
            )


USUAL = Timing()


class Election:
    """One candidate for one lease."""

    def __init__(
        self, client: Client, name: str, namespace: str, identity: str, timing: Timing = USUAL
    ) -> None:
        self.identity = identity
        self.leader = ""
        """Who leads, as far as this candidate has seen."""
        self._client = client
        self._name, self._namespace = name, namespace
        self._timing = timing
        self._tempo = client.habits.tempo
        self._version = ""
        self._observed: Document | None = None
        self._observed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads at this very moment."""
        return self._renewed_at is not None and self._left() > 0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to become leader, then `lead`. Returns when that returns; `LeadershipLost` when it must stop.

        However it ends, `lead` has ended before the lease is given back.
        """
        await self._acquire()
        work, renewal = asyncio.ensure_future(lead()), asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                renewal.result()
                raise LeadershipLost(f"`{self.identity}` no longer leads `{self._namespace}/{self._name}`")
            await work
        finally:
            for task in (work, renewal):
                task.cancel()
            await asyncio.wait((work, renewal))
            for task in (work, renewal):
                if not task.cancelled():
                    task.exception()  # has been raised, or was said on the way out
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt(self._timing.renew_deadline):
            await self._tempo.sleep(self._timing.retry * (1 + _JITTER * self._tempo.chance()))

    async def _renew(self) -> None:
        """Renew until that is no longer possible."""
        while True:
            await self._tempo.sleep(min(self._timing.retry, max(self._left(), 0)))
            if not self.is_leader:
                return
            if not await self._attempt(self._left()) and self.leader != self.identity:
                self._renewed_at = None
                return

    def _left(self) -> float:
        """Seconds for which this candidate still leads."""
        assert self._renewed_at is not None
        return self._renewed_at + self._timing.renew_deadline - self._tempo.clock.monotonic()

    async def _attempt(self, seconds: float) -> bool:
        """Take or renew the lease, if that is possible now."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._take()
        except (*TROUBLE, TimeoutError):
            self._version = ""  # whether it was written is unknown: read it next time
            return False

    async def _take(self) -> bool:
        began = self._tempo.clock.monotonic()
        if self._version and self.is_leader and await self._write(self._version, began):
            return True
        try:
            lease = await self._client.get(LEASE, self._name, self._namespace)
        except NotFound:
            return await self._create(began)
        self._observe(lease)
        if self.leader and self.leader != self.identity and not self._expired():
            return False
        return await self._write(resource_version_of(lease), began)

    def _observe(self, lease: Document) -> None:
        spec = lease.get("spec") or {}
        if spec != self._observed:
            self._observed, self._observed_at = spec, self._tempo.clock.monotonic()
        self.leader = str(spec.get("holderIdentity") or "")

    def _expired(self) -> bool:
        assert self._observed is not None
        holds = self._observed.get("leaseDurationSeconds") or self._timing.lease
        return self._tempo.clock.monotonic() >= self._observed_at + float(holds)

    async def _create(self, began: float) -> bool:
        now = micro_time(self._tempo.clock.now())
        spec = self._spec(now) | {"acquireTime": now, "leaseTransitions": 0}
        metadata = {"name": self._name, "namespace": self._namespace}
        lease = {
            "apiVersion": LEASE.internal_api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": spec,
        }
        try:
            return self._taken(await self._client.create(lease), began)
        except AlreadyExists:
            return False

    async def _write(self, version: str, began: float) -> bool:
        now = micro_time(self._tempo.clock.now())
        spec = self._spec(now)
        if self.leader != self.identity:
            times = (self._observed or {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": now, "leaseTransitions": times + 1}
        patch = MergePatch({"metadata": {"resourceVersion": version}, "spec": spec})
        try:
            lease = await self._client.patch(LEASE, self._name, patch, self._namespace)
        except Conflict:
            self._version = ""
            return False
        return self._taken(lease, began)

    def _taken(self, lease: Document, began: float) -> bool:
        self._observe(lease)
        self._version = resource_version_of(lease)
        self._renewed_at = began
        return True

    def _spec(self, now: str) -> Document:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._timing.lease)),
            "renewTime": now,
        }

    async def _release(self) -> None:
        """Give the lease back, so that the next leader need not wait; nobody minds when that fails."""
        held, self._renewed_at, self._version = self.is_leader, None, ""
        if not held:
            return
        with suppress(*TROUBLE, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                while not await self._give_back():
                    pass  # a renewal that was under way when we stopped has arrived meanwhile

    async def _give_back(self) -> bool:
        """Whether the lease is not ours any more; False when it changed while we looked."""
        lease = await self._client.get(LEASE, self._name, self._namespace)
        self._observe(lease)
        if self.leader != self.identity:
            return True
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1}
        patch = MergePatch({"metadata": {"resourceVersion": resource_version_of(lease)}, "spec": spec})
        try:
            await self._client.patch(LEASE, self._name, patch, self._namespace)
        except Conflict:
            return False
        self.leader = ""
        return True


@dataclass(frozen=True, slots=True)
class Pulse:
    """The sign of life of one holder: how long it counts and how often it is given, in seconds."""

    holder: str
    lasts: int = 40
    every: float = 10.0
    owner: Callable[[], Document] | None = None
    """Tells an owner reference: the lease goes when the owner goes, and may come back with another."""


class Heartbeat:
    """Keeps one lease fresh; for example that of a node."""

    def __init__(self, client: Client, name: str, namespace: str, pulse: Pulse) -> None:
        self._client = client
        self._name, self._namespace = name, namespace
        self._pulse = pulse
        self._tempo = client.habits.tempo
        self.failures = 0
        """How many beats failed since the last one that did not."""

    async def run(self) -> None:
        """Beat until cancelled; after a failure sooner than otherwise."""
        backoff = Backoff(self._tempo, first=0.2, longest=self._pulse.every)
        while True:
            try:
                await self.beat()
            except TROUBLE:
                self.failures += 1
                await backoff.wait()
            else:
                self.failures = 0
                backoff.reset()
                await self._tempo.sleep(self._pulse.every)

    async def beat(self) -> None:
        """Give a sign of life now."""
        spec = {
            "holderIdentity": self._pulse.holder,
            "leaseDurationSeconds": self._pulse.lasts,
            "renewTime": micro_time(self._tempo.clock.now()),
        }
        try:
            await self._client.patch(LEASE, self._name, MergePatch({"spec": spec}), self._namespace)
        except NotFound:
            with suppress(AlreadyExists):
                await self._client.create(self._lease(spec))

    def _lease(self, spec: Document) -> Document:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if self._pulse.owner is not None:
            metadata["ownerReferences"] = [self._pulse.owner()]
        return {
            "apiVersion": LEASE.internal_api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": spec,
        }


def micro_time(moment: datetime) -> str:
    """A time with microseconds, as leases and events have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
