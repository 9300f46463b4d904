"""Reads of claims from the API: the claim itself, its consumers, and whether it is abandoned.

Theory of operation: a claim is in use while it exists under its uid and still has one of its devices, or
while a preparation of this node's agent says that the agent holds them: the agent then unprepares the claim
itself, once the pod's containers have ended. Clusters without dray's agents have no preparations.
"""

from __future__ import annotations

from dray.api.classic import ClassicResourceClaim
from dray.api.preparation import Preparation
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

    async def is_abandoned(self, record: PreparedClaimRecord) -> bool:
        """Whether a claim is not in use any more, and no agent is going to unprepare it."""
        if not record.name:
            return False  # the record was lost; the agent that holds the claim will unprepare it
        stored = await self._get_stored(record)
        if stored is not None and self._has_prepared_devices(stored, record):
            return False
        return not await self._has_preparation(record.uid)

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

    async def _has_preparation(self, uid: str) -> bool:
        """Whether this node's agent holds a claim; True when the driver may not read preparations."""
        if not await self._client.serves(Preparation):
            return False
        try:
            listing = await self._client.list(
                Preparation, selector=ObjectSelector(fields=f"spec.nodeName={self._node}")
            )
        except ForbiddenError:
            return True
        return any(each.spec.claim.uid == uid for each in listing.items)
