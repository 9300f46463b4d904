"""The monitor of kube-controller-manager: whether its claim controller works in this cluster, too.

Theory of operation: two claim controllers create two claims for every entry of a pod, so ours stands back
while the other works. kube-controller-manager holds a lease and renews it; the lease is observed, and counts
as held until it was not renewed for twice its duration, measured by our own clock. A
kube-controller-manager without leader election has no lease; then a claim that it created for a pod a short
time ago shows it. It may run without its claim controller; nothing shows that, so an option overrules the
monitor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from dray.api.core import Lease
from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.client.client import Client
from dray.client.errors import ForbiddenError, NotFoundError
from dray.client.informers.informer import strip_managed_fields
from dray.client.informers.shared_reflectors import SharingClient
from dray.client.rest_client import CALL_ERRORS
from dray.telemetry.logs import StructuredLogger

KUBE_CONTROLLER_MANAGER: Final = "kube-controller-manager"
"""The name of its lease, and of the field manager of what it writes."""
LEASE_NAMESPACE: Final = "kube-system"
POLL_SECONDS: Final = 2.0
DEFAULT_LEASE_SECONDS: Final = 15
EXPIRY_FACTOR: Final = 2
"""A lease that was not renewed for so many times its duration is no longer held."""
CREATED_CLAIM_SECONDS: Final = 600
"""Seconds for which a claim that it created shows that it works, where it has no lease."""


@dataclass(frozen=True, slots=True)
class _ObservedLease:
    """The lease as read, and when it was first seen so."""

    holder: str
    renewed: str
    seconds: float
    since: float


class ClaimCreationObserver:
    """Takes note of the claims of pods that kube-controller-manager creates, and drops their managed fields.

    It is the transform of an informer or of a shared reflector, which does not keep managed fields.
    """

    def __init__(self) -> None:
        self.last_created: datetime | None = None
        """When the newest of these claims was created."""

    def __call__(self, claim: ResourceClaim) -> ResourceClaim:
        """Take note of a claim, and return it without its managed fields."""
        if claim_names.POD_CLAIM_NAME_ANNOTATION in claim.metadata.annotations:
            self._observe_managers(claim)
        stripped: ResourceClaim = strip_managed_fields(claim)
        return stripped

    def _observe_managers(self, claim: ResourceClaim) -> None:
        managers = {entry.get("manager") for entry in claim.metadata.managed_fields if _is_of_object(entry)}
        created = claim.metadata.creation_timestamp
        if KUBE_CONTROLLER_MANAGER in managers and created:
            moment = datetime.fromisoformat(created).astimezone(UTC)
            self.last_created = max(self.last_created or moment, moment)


def get_claim_observer(client: Client) -> ClaimCreationObserver:
    """Return the observer of the shared reflectors of a client, which has seen all claims; or a new one."""
    shared = client.reflectors.get_transform(ResourceClaim) if isinstance(client, SharingClient) else None
    return shared if isinstance(shared, ClaimCreationObserver) else ClaimCreationObserver()


class KubeControllerMonitor:
    """Observes whether kube-controller-manager keeps the claims of the cluster."""

    def __init__(self, client: Client, log: StructuredLogger) -> None:
        self._client, self._log = client, log
        self.claim_observer = get_claim_observer(client)
        self._time_source = client.options.time_source
        self._lease: _ObservedLease | None = None
        self.is_active = False
        """Whether its claim controller works, so that ours stands back."""
        self.on_changed: Callable[[], None] = lambda: None
        """Called after `is_active` has changed."""

    async def run(self) -> None:
        """Observe until cancelled."""
        while True:
            await self.check()
            await self._time_source.sleep(POLL_SECONDS)

    async def check(self) -> None:
        """Read the lease and decide."""
        try:
            await self._read_lease()
        except ForbiddenError as refused:
            self._lease = None
            self._log.debug("cannot read the lease of kube-controller-manager", why=str(refused))
        except CALL_ERRORS:
            return  # what was observed last holds
        active, why = self._decide()
        if active != self.is_active:
            self.is_active = active
            if active:
                self._log.warning(
                    "kube-controller-manager keeps the claims, this controller stands back", why=why
                )
            else:
                self._log.warning("this controller keeps the claims", why=why)
            self.on_changed()

    async def _read_lease(self) -> None:
        try:
            spec = (await self._client.get(Lease, KUBE_CONTROLLER_MANAGER, LEASE_NAMESPACE)).spec
        except NotFoundError:
            self._lease = None
            return
        seconds = EXPIRY_FACTOR * (spec.lease_duration_seconds or DEFAULT_LEASE_SECONDS)
        known, now = self._lease, self._time_source.clock.monotonic()
        seen = _ObservedLease(spec.holder_identity or "", spec.renew_time or "", seconds, now)
        if known is None or (known.holder, known.renewed) != (seen.holder, seen.renewed):
            self._lease = seen

    def _decide(self) -> tuple[bool, str]:
        lease = self._lease
        if lease is not None:
            name = f"lease {LEASE_NAMESPACE}/{KUBE_CONTROLLER_MANAGER}"
            if not lease.holder:
                return False, f"{name} has no holder"
            held = self._time_source.clock.monotonic() - lease.since < lease.seconds
            return held, f"{name} is held by {lease.holder}" if held else f"{name} is not renewed"
        limit = self._time_source.clock.now() - timedelta(seconds=CREATED_CLAIM_SECONDS)
        last_created = self.claim_observer.last_created
        recent = last_created is not None and last_created > limit
        return (
            recent,
            "it has created claims for pods" if recent else "it has created no claims for some time",
        )


def _is_of_object(entry: object) -> bool:
    """Whether an entry of the managed fields is about the object and not a subresource."""
    return isinstance(entry, dict) and not entry.get("subresource")
