"""The binder: writes a placement to the server, or undoes it.

Theory of operation: on a server with transactions the claims of a pod and its binding are one write (see
`bind_transaction`). Otherwise each claim is allocated and reserved by itself (see `reservations`), and when
every claim is reserved for the pod and its devices are ready, the binding is posted. After a definite failure
the binder removes the pod from its claims again and releases devices that no other pod uses. After an
uncertain one (no response came) everything stays, and the watch shows the outcome.

Rules for this file: the binder decides nothing that the scheduling cycle did not decide. A placement that
does not fit any more raises `StalePlacementError`, and the pod is tried again.
"""

from __future__ import annotations

from collections.abc import Callable

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.claims import reservation
from dray.claims.binding_conditions import (
    MAX_WAIT_SECONDS,
    DeviceFailure,
    check_readiness,
    explain_not_ready,
    has_binding_conditions,
)
from dray.client.client import Client
from dray.client.errors import ApiError, NotFoundError
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.assume_cache import ClaimAssumeCache
from dray.scheduler.binding.bind_transaction import BindTransactions
from dray.scheduler.binding.errors import DevicesNotReadyError, PodGoneOrBoundError, StalePlacementError
from dray.scheduler.binding.pod_binding import is_gone_or_bound, write_binding
from dray.scheduler.binding.reservations import Reservations


class Binder:
    """Writes placements."""

    def __init__(self, client: Client, claims: ClaimAssumeCache, max_wait: float = MAX_WAIT_SECONDS) -> None:
        self._client = client
        self._claims = claims
        self._time_source = client.options.time_source
        self._max_wait = max_wait
        self.reservations = Reservations(client, claims)
        self.transactions = BindTransactions(client, self.reservations)

    async def try_bind_together(self, placement: Placement) -> bool:
        """Allocate and reserve the claims of a placement and bind its pod, in one transaction; False when
        that has to be written one by one. Raise when it fails.
        """
        try:
            return await self.transactions.try_bind(placement)
        except PodGoneOrBoundError:
            # Perhaps by this very transaction; then its claims have their devices.
            await self.reread_claims(placement)
            raise
        except (ApiError, StalePlacementError):
            await self.unreserve_claims(placement)
            raise

    async def bind_claims(
        self, placement: Placement, on_waiting: Callable[[str], None] = lambda _why: None
    ) -> None:
        """Allocate and reserve the claims of a placement and wait until their devices are ready; raise when
        that fails.

        `on_waiting` receives what the devices wait for while they are not ready: that may take minutes.
        """
        subject = placement.pending_pod
        try:
            for claim in subject.claims:
                await self.reservations.reserve(claim, subject.pod, placement.node)
            for claim in subject.claims:
                await self._wait_for_devices(claim, on_waiting)
        except DevicesNotReadyError:
            # A scheduler that ran before may have reserved them: they are of no use to the pod all the same.
            if not await self.is_gone_or_bound(subject.pod):
                for claim in subject.claims:
                    self.reservations.record_ours(claim, subject.pod)
            await self.unreserve_claims(placement)
            raise
        except (ApiError, StalePlacementError):
            await self.unreserve_claims(placement)
            raise

    async def bind_pod(self, placement: Placement) -> None:
        """Bind a pod whose claims are reserved; raise when that fails."""
        try:
            await write_binding(self._client, placement)
        except PodGoneOrBoundError:
            raise
        except ApiError:
            await self.unreserve_claims(placement)
            raise

    async def is_gone_or_bound(self, pod: Pod) -> bool:
        """Whether a pod is gone or has a node, as far as the server tells."""
        return await is_gone_or_bound(self._client, pod)

    async def reread_claims(self, placement: Placement) -> None:
        """Read the claims of a placement whose write got no response, however long that takes."""
        backoff = Backoff(self._time_source)
        for claim in placement.pending_pod.claims:
            while True:
                try:
                    now = await self._client.get(ResourceClaim, claim.metadata.name, claim.metadata.namespace)
                    self._claims.update(now)
                    break
                except NotFoundError:
                    self._claims.remove(claim)
                    break
                except CALL_ERRORS:
                    await backoff.wait()

    # --- binding conditions ---

    async def _wait_for_devices(self, claim: ResourceClaim, on_waiting: Callable[[str], None]) -> None:
        """Wait until the devices of a claim are ready."""
        stored = self._claims.get_stored(claim)
        if stored is None or not has_binding_conditions(stored):
            return
        began = self._time_source.clock.monotonic()
        async with self.reservations.locks.use(claim) as claim_lock:
            while True:
                stored = self._claims.get_stored(claim)
                if stored is None or stored.status.allocation is None:
                    raise StalePlacementError(
                        f"claim {_format_claim_name(claim)} lost its devices while the pod waited for them"
                    )
                state = check_readiness(stored)
                if state is None:
                    return
                left = began + self._max_wait - self._time_source.clock.monotonic()
                why = explain_not_ready(stored)
                if isinstance(state, DeviceFailure):
                    raise DevicesNotReadyError(why)
                if left <= 0:
                    raise DevicesNotReadyError(f"{why} for more than {self._max_wait:g} seconds")
                on_waiting(why)
                await self.reservations.locks.wait_for_change(claim_lock.changed, left)

    # --- undo ---

    async def unreserve_claims(self, placement: Placement) -> None:
        """Remove the pod from the claims reserved for it; release devices that no other pod uses."""
        pod = placement.pending_pod.pod
        for claim in placement.pending_pod.claims:
            stored = self._claims.get_stored(claim)
            ours = self.reservations.is_reserved_by_us(claim, pod)
            if ours and stored is not None and reservation.is_reserved_for(stored, pod):
                try:
                    await self.reservations.release(claim, pod)
                except (*CALL_ERRORS, StalePlacementError):
                    continue  # the next attempt finds the claim reserved, and goes on from there

    def forget_placement(self, placement: Placement) -> None:
        """Forget the reservations of a pod that is no longer in flight."""
        for claim in placement.pending_pod.claims:
            self.reservations.forget(claim, placement.pending_pod.pod)


def _format_claim_name(claim: ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
