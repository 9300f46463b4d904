"""Leader election and heartbeats on leases.

Theory of operation: a leader writes its name into a lease and renews it. Clocks of machines differ, so nobody
compares the times in the lease with its own: a candidate remembers when, on its own clock, the lease last
changed, and may take it when it has not changed for the duration in the lease. The leader stops earlier,
after its renew deadline. So it has stopped before another candidate can start, as far as clocks run at the
same speed. Of two candidates that write at once, one gets a conflict, because writes are pinned to a version.

Rules for this file: `is_leader` reads the clock each time. A process that was suspended is no leader when it
resumes, before it does anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dray.client.client import Client
from dray.client.errors import AlreadyExistsError, ConflictError, NotFoundError
from dray.client.object_refs import Document, get_kind, get_resource_version
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.clock import format_micro_timestamp
from dray.errors import DrayError
from dray.tasks import wait_for_first

LEASE_KIND: Final = get_kind("Lease.coordination.k8s.io")
_JITTER: Final = 1.2
_RELEASE_SECONDS: Final = 5.0


class LeadershipLostError(DrayError):
    """Another candidate leads, or may start to."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds: how long a lease holds, how long a leader goes on without renewal, how often it tries."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > self.retry_period * _JITTER > 0:
            raise ValueError(
                f"expected lease > renew deadline > {_JITTER} x retry > 0, got {self.lease_duration:g}, "
                f"{self.renew_deadline:g}, {self.retry_period:g}"
            )


DEFAULT_LEASE_TIMING = LeaseTiming()


class LeaderElector:
    """One candidate for one lease."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        timing: LeaseTiming = DEFAULT_LEASE_TIMING,
    ) -> None:
        self.identity = identity
        self.leader = ""
        """The identity of the leader, as far as this candidate has seen."""
        self._client = client
        self._name, self._namespace = name, namespace
        self._timing = timing
        self._time_source = client.options.time_source
        self._version = ""
        self._observed: Document | None = None
        self._observed_at = 0.0
        self._renewed_at: float | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads at this moment."""
        return self._renewed_at is not None and self._compute_remaining_seconds() > 0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to become leader, then run `lead`. Return when it returns; `LeadershipLostError` when
        leadership is lost.

        However it ends, `lead` has ended before the lease is released.
        """
        await self._acquire()
        work = asyncio.ensure_future(lead())
        try:
            if await wait_for_first(work, self._renew()) == 1:
                raise LeadershipLostError(
                    f"`{self.identity}` no longer leads `{self._namespace}/{self._name}`"
                )
        finally:
            if work.done():
                await self._release()

    async def _acquire(self) -> None:
        while not await self._try_acquire_or_renew(self._timing.renew_deadline):
            await self._time_source.sleep(
                self._timing.retry_period * (1 + _JITTER * self._time_source.random_float())
            )

    async def _renew(self) -> None:
        """Renew until that is no longer possible."""
        while True:
            await self._time_source.sleep(
                min(self._timing.retry_period, max(self._compute_remaining_seconds(), 0))
            )
            if not self.is_leader:
                return
            if (
                not await self._try_acquire_or_renew(self._compute_remaining_seconds())
                and self.leader != self.identity
            ):
                self._renewed_at = None
                return

    def _compute_remaining_seconds(self) -> float:
        """Return the seconds for which this candidate still leads."""
        assert self._renewed_at is not None
        return self._renewed_at + self._timing.renew_deadline - self._time_source.clock.monotonic()

    async def _try_acquire_or_renew(self, seconds: float) -> bool:
        """Acquire or renew the lease, if that is possible now."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                return await self._acquire_or_renew()
        except (*CALL_ERRORS, TimeoutError):
            self._version = ""  # whether it was written is unknown: read it next time
            return False

    async def _acquire_or_renew(self) -> bool:
        began = self._time_source.clock.monotonic()
        if self._version and self.is_leader and await self._update_lease(self._version, began):
            return True
        try:
            lease = await self._client.get(LEASE_KIND, self._name, self._namespace)
        except NotFoundError:
            return await self._create_lease(began)
        self._observe(lease)
        if self.leader and self.leader != self.identity and not self._is_expired():
            return False
        return await self._update_lease(get_resource_version(lease), began)

    def _observe(self, lease: Document) -> None:
        spec = lease.get("spec") or {}
        if spec != self._observed:
            self._observed, self._observed_at = spec, self._time_source.clock.monotonic()
        self.leader = str(spec.get("holderIdentity") or "")

    def _is_expired(self) -> bool:
        assert self._observed is not None
        holds = self._observed.get("leaseDurationSeconds") or self._timing.lease_duration
        return self._time_source.clock.monotonic() >= self._observed_at + float(holds)

    async def _create_lease(self, began: float) -> bool:
        now = format_micro_timestamp(self._time_source.clock.now())
        spec = self._build_spec(now) | {"acquireTime": now, "leaseTransitions": 0}
        metadata = {"name": self._name, "namespace": self._namespace}
        lease = {
            "apiVersion": LEASE_KIND.internal_api_version,
            "kind": LEASE_KIND.name,
            "metadata": metadata,
            "spec": spec,
        }
        try:
            return self._record_acquired(await self._client.create(lease), began)
        except AlreadyExistsError:
            return False

    async def _update_lease(self, version: str, began: float) -> bool:
        now = format_micro_timestamp(self._time_source.clock.now())
        spec = self._build_spec(now)
        if self.leader != self.identity:
            times = (self._observed or {}).get("leaseTransitions") or 0
            spec |= {"acquireTime": now, "leaseTransitions": times + 1}
        patch = MergePatch({"metadata": {"resourceVersion": version}, "spec": spec})
        try:
            lease = await self._client.patch(LEASE_KIND, self._name, patch, self._namespace)
        except ConflictError:
            self._version = ""
            return False
        return self._record_acquired(lease, began)

    def _record_acquired(self, lease: Document, began: float) -> bool:
        self._observe(lease)
        self._version = get_resource_version(lease)
        self._renewed_at = began
        return True

    def _build_spec(self, now: str) -> Document:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._timing.lease_duration)),
            "renewTime": now,
        }

    async def _release(self) -> None:
        """Release the lease, so that the next leader need not wait; a failure is ignored."""
        was_leader, self._renewed_at, self._version = self.is_leader, None, ""
        if not was_leader:
            return
        with suppress(*CALL_ERRORS, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                while not await self._try_release():
                    pass  # a renewal that was in flight has arrived meanwhile

    async def _try_release(self) -> bool:
        """Whether the lease is no longer ours; False when it changed meanwhile."""
        lease = await self._client.get(LEASE_KIND, self._name, self._namespace)
        self._observe(lease)
        if self.leader != self.identity:
            return True
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1}
        patch = MergePatch({"metadata": {"resourceVersion": get_resource_version(lease)}, "spec": spec})
        try:
            await self._client.patch(LEASE_KIND, self._name, patch, self._namespace)
        except ConflictError:
            return False
        self.leader = ""
        return True


@dataclass(frozen=True, slots=True)
class HeartbeatOptions:
    """The holder of a heartbeat lease, how long a renewal counts and how often it is made, in seconds."""

    holder: str
    duration_seconds: int = 40
    interval_seconds: float = 10.0
    get_owner_reference: Callable[[], Document] | None = None
    """Returns the owner reference: the lease is deleted with its owner."""


class Heartbeat:
    """Renews one lease; for example that of a node."""

    def __init__(self, client: Client, name: str, namespace: str, options: HeartbeatOptions) -> None:
        self._client = client
        self._name, self._namespace = name, namespace
        self._options = options
        self._time_source = client.options.time_source
        self.failures = 0
        """How many renewals failed since the last one that succeeded."""

    async def run(self) -> None:
        """Renew until cancelled; after a failure sooner than otherwise."""
        backoff = Backoff(self._time_source, initial=0.2, maximum=self._options.interval_seconds)
        while True:
            try:
                await self.renew()
            except CALL_ERRORS:
                self.failures += 1
                await backoff.wait()
            else:
                self.failures = 0
                backoff.reset()
                await self._time_source.sleep(self._options.interval_seconds)

    async def renew(self) -> None:
        """Renew the lease now."""
        spec = {
            "holderIdentity": self._options.holder,
            "leaseDurationSeconds": self._options.duration_seconds,
            "renewTime": format_micro_timestamp(self._time_source.clock.now()),
        }
        try:
            await self._client.patch(LEASE_KIND, self._name, MergePatch({"spec": spec}), self._namespace)
        except NotFoundError:
            with suppress(AlreadyExistsError):
                await self._client.create(self._build_lease(spec))

    def _build_lease(self, spec: Document) -> Document:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if self._options.get_owner_reference is not None:
            metadata["ownerReferences"] = [self._options.get_owner_reference()]
        return {
            "apiVersion": LEASE_KIND.internal_api_version,
            "kind": LEASE_KIND.name,
            "metadata": metadata,
            "spec": spec,
        }
