"""Reads of claims from the API: the claim itself, its consumers, and whether it is gone.

Theory of operation: a claim is gone when it does not exist under its uid any more, or has none of the devices
that were prepared for it. That says nothing about containers: those of a pod that was deleted by force may
still run. Only the node's agent knows, and only dray's agents announce in the API, as preparations, which
claims they hold. Where no preparations are announced, a claim that is gone is left to the agent. Kubelets
unprepare the claims of their checkpoint that no pod uses, but they retry to stop a container for as long as
that takes, so no waiting time tells that it has ended.
"""

from __future__ import annotations

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Node
from dray.api.preparation import ACCOUNTED_ANNOTATION, Preparation
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import ForbiddenError, NotFoundError
from dray.client.object_refs import ObjectSelector
from dray.driver.preparing.prepared_records import PreparedClaimRecord
from dray.values.names import check_dns_label, check_dns_subdomain


class DriverClaimLookup:
    """Reads claims for one driver on one node."""

    def __init__(self, client: Client, driver: str, node: str) -> None:
        self._client = client
        self._driver = driver
        self._node = node

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """Read a claim; None when it does not exist."""
        if check_dns_label(namespace) or check_dns_subdomain(name):
            return None  # no claim has such a name, and it must not become another URL path
        try:
            return await self._client.get(ResourceClaim, name, namespace)
        except NotFoundError:
            return None

    async def get_classic_claim(self, uid: str) -> ClassicResourceClaim | None:
        """Read a classic claim, which agents name only by its uid; None when it does not exist."""
        listing = await self._client.list(ClassicResourceClaim)
        return next((each for each in listing.items if each.metadata.uid == uid), None)

    async def list_consumers(self, record: PreparedClaimRecord) -> tuple[str, ...]:
        """Return the uids of the consumers that reserve a claim."""
        stored = await self._get_stored(record)
        return () if stored is None else tuple(each.uid for each in stored.status.reserved_for)

    async def is_gone(self, record: PreparedClaimRecord) -> bool:
        """Whether a claim does not exist any more, or has none of the devices that were prepared for it."""
        if not record.name:
            return False  # the record was lost; the agent that holds the claim will unprepare it
        stored = await self._get_stored(record)
        return stored is None or not self._has_prepared_devices(stored, record)

    async def explain_hold(self, uid: str) -> str:
        """Explain why a claim that is gone is left to the agent; empty when no agent holds it."""
        if not await self._client.serves(Preparation):
            return "the server has no preparations: only the agent knows whether a container still runs"
        try:
            node = await self._client.get(Node, self._node)
            own = ObjectSelector(fields=f"spec.nodeName={self._node}")
            preparations = (await self._client.list(Preparation, selector=own)).items
        except (ForbiddenError, NotFoundError) as failed:
            return f"the preparations of this node cannot be read: {failed}"
        if ACCOUNTED_ANNOTATION not in node.metadata.annotations:
            return "the agent of this node announces no preparations: only it knows whether a container runs"
        held = any(each.spec.claim.uid == uid for each in preparations)
        return "the agent holds it, and unprepares it when its containers have ended" if held else ""

    async def _get_stored(self, record: PreparedClaimRecord) -> ResourceClaim | ClassicResourceClaim | None:
        if record.classic:
            return await self.get_classic_claim(record.uid)
        if not record.name:
            return None
        stored = await self.get_claim(record.namespace, record.name)
        return stored if stored is not None and stored.metadata.uid == record.uid else None

    def _has_prepared_devices(
        self, stored: ResourceClaim | ClassicResourceClaim, record: PreparedClaimRecord
    ) -> bool:
        """Whether a claim has devices that were prepared for it; it may have been allocated again since."""
        if isinstance(stored, ClassicResourceClaim):
            return stored.status.driver_name == self._driver
        allocation = stored.status.allocation
        results = () if allocation is None else allocation.devices.results
        held = {(self._driver, each.pool, each.device) for each in record.devices}
        return any((each.driver, each.pool, each.device) in held for each in results)
