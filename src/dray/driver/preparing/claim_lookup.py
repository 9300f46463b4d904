"""Asking the API about claims: what they are, who has them reserved, whether anybody still wants them.

Theory of operation: a claim is wanted while it exists under its uid and still has one of its devices, or
while a preparation stands by which the agent of this node says that it holds them: the agent will then give
them back itself, once the pod's containers have ended. Clusters without our agents have no preparations.
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
    """The API, as far as one driver on one node asks it about claims."""

    def __init__(self, client: Client, driver: str, node: str) -> None:
        self._client = client
        self._driver = driver
        self._node = node

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim as it is now."""
        if check_dns_label(namespace) or check_dns_subdomain(name):
            return None  # nothing is called like that, and it must not become another path
        try:
            return await self._client.get(ResourceClaim, name, namespace)
        except NotFoundError:
            return None

    async def get_classic_claim(self, uid: str) -> ClassicResourceClaim | None:
        """A classic claim, which is only known by its uid."""
        listing = await self._client.list(ClassicResourceClaim)
        return next((each for each in listing.items if each.metadata.uid == uid), None)

    async def list_consumers(self, record: PreparedClaimRecord) -> tuple[str, ...]:
        """The uids of those that have a claim reserved."""
        stored = await self._get_stored(record)
        return () if stored is None else tuple(each.uid for each in stored.status.reserved_for)

    async def is_abandoned(self, record: PreparedClaimRecord) -> bool:
        """Whether nobody wants a claim any more, and nobody else will give it back."""
        if not record.name:
            return False  # what was known of it is lost; whoever holds it will say so
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
        """Whether a claim has what was prepared for it; it may have got something else since, elsewhere."""
        if isinstance(stored, ClassicResourceClaim):
            return stored.status.driver_name == self._driver
        allocation = stored.status.allocation
        results = () if allocation is None else allocation.devices.results
        held = {(self._driver, each.pool, each.device) for each in record.devices}
        return any((each.driver, each.pool, each.device) in held for each in results)

    async def _has_preparation(self, uid: str) -> bool:
        """Whether the agent of this node says that it holds a claim; also when we may not know."""
        if not await self._client.serves(Preparation):
            return False
        try:
            listing = await self._client.list(
                Preparation, selector=ObjectSelector(fields=f"spec.nodeName={self._node}")
            )
        except ForbiddenError:
            return True
        return any(each.spec.claim.uid == uid for each in listing.items)
