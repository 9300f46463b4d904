"""The Preparation objects of this node in the API: they announce that drivers may hold a claim's devices.

Theory of operation: the agent creates a `Preparation` before it first calls a driver for a claim, and deletes
it after the last driver has unprepared the claim. Those of one pod are created in one call, and deleted with
the other last writes of the pod, on a server with transactions. While it exists, the server allocates the
devices to no one else, whatever happens to pod and claim. Its name is derived from claim and node, so that
creating it is idempotent. An annotation names the drivers, so that an agent that lost its record knows which
ones to call.

A server restored from a backup may have Preparations of claims that this node has released since, and it may
have allocated their devices to other nodes, which have not reported yet. So the agent does not trust a
Preparation that it did not announce itself: it deletes the object and creates it again, for the ledger to
decide.

Rules for this file: a server that does not know the kind has no quarantine, which is no error. Other failures
are returned as text; nothing is decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.preparation import (
    ACCOUNTED_ANNOTATION,
    RESTORED_PATH,
    Preparation,
    PreparationDevice,
    PreparationSpec,
    PreparedClaim,
)
from dray.client.client import Client, DeleteOptions
from dray.client.errors import AlreadyExistsError, ConflictError, ForbiddenError, NotFoundError
from dray.client.object_refs import ObjectSelector
from dray.client.rest_client import CALL_ERRORS
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import TransactionsUnsupported
from dray.node.claims.record import RecordedClaim
from dray.values.names import check_dns_subdomain

DRIVERS_ANNOTATION: Final = "dray.dev/drivers"
"""On a Preparation: its drivers, separated by commas."""

RECHECK_SECONDS: Final = 300.0
"""Interval for asking a server that does not know the kind again: it may have been upgraded."""


def build_preparation_name(claim_uid: str, node: str) -> str:
    """Derive the name of a node's Preparation of a claim; readable where that is a valid name."""
    name = f"{claim_uid}.{node}"
    if not check_dns_subdomain(name):
        return name
    return "p-" + hashlib.sha256(f"{claim_uid}/{node}".encode()).hexdigest()[:48]


def build_preparation(
    recorded: RecordedClaim, node: str, devices: tuple[PreparationDevice, ...] = ()
) -> Preparation:
    """Build the announcement of a claim, or with `devices` the report of which devices are held."""
    drivers = ",".join(part.driver for part in recorded.parts)
    return Preparation(
        metadata=ObjectMeta(
            name=build_preparation_name(recorded.uid, node), annotations={DRIVERS_ANNOTATION: drivers}
        ),
        spec=PreparationSpec(
            node_name=node,
            claim=PreparedClaim(namespace=recorded.namespace, name=recorded.name, uid=recorded.uid),
            devices=devices,
        ),
    )


def parse_drivers(preparation: Preparation) -> tuple[str, ...]:
    """Return the drivers that a Preparation names."""
    noted = preparation.metadata.annotations.get(DRIVERS_ANNOTATION, "")
    return tuple(driver for driver in noted.split(",") if driver)


class NodePreparations:
    """The Preparations of one node."""

    def __init__(self, client: Client, get_node: Callable[[], Node]) -> None:
        """`get_node` returns the node as last observed."""
        self._client = client
        self._get_node = get_node
        self._node = get_node().metadata.name
        self._served: bool | None = None
        self._checked_at = 0.0
        self.announced: set[str] = set()
        """The uids of claims whose announcement the server has accepted."""

    async def is_served(self) -> bool:
        """Return whether the server has the kind; raises the errors of the client."""
        now = self._client.options.time_source.clock.monotonic()
        if self._served or (self._served is False and now - self._checked_at < RECHECK_SECONDS):
            return self._served
        self._served, self._checked_at = await self._client.serves(Preparation), now
        return self._served

    async def announce(self, claims: Sequence[RecordedClaim]) -> str:
        """Announce that claims are about to be prepared; return what failed, or nothing."""
        if len(claims) > 1 and await self._announce_together(claims):
            return ""
        for recorded in claims:
            try:
                await self._announce(recorded)
            except CALL_ERRORS as error:
                return f"claim {recorded}: {error}"
        return ""

    async def _announce_together(self, claims: Sequence[RecordedClaim]) -> bool:
        """Announce claims in one call; return False when they have to be announced one after the other."""
        transaction = ObjectTransaction()
        for recorded in claims:
            transaction.create(build_preparation(recorded, self._node))
        if not await self._commit(transaction):
            return False
        self.announced.update(recorded.uid for recorded in claims)
        return True

    async def _announce(self, recorded: RecordedClaim) -> None:
        preparation = build_preparation(recorded, self._node)
        try:
            await self._client.create(preparation)
        except AlreadyExistsError:
            existing = await self._client.get(Preparation, preparation.metadata.name)
            if replace(existing.spec, devices=()) != preparation.spec:
                raise
            if recorded.uid not in self.announced and await self.is_restore_unaccounted():
                await self.delete_stale(existing)
                await self._client.create(preparation)
        self.announced.add(recorded.uid)

    async def withdraw(self, recorded: RecordedClaim) -> str:
        """Delete the Preparation of a released claim; return what failed, or nothing."""
        name = build_preparation_name(recorded.uid, self._node)
        try:
            await self._client.delete(Preparation, name)
        except NotFoundError:
            pass
        except CALL_ERRORS as error:
            is_foreign = isinstance(error, ForbiddenError) and not await self._is_own(name)
            return "" if is_foreign else f"claim {recorded}: {error}"
        self.announced.discard(recorded.uid)
        return ""

    async def withdraw_with(self, claims: Sequence[RecordedClaim], transaction: ObjectTransaction) -> bool:
        """Delete the Preparations of released claims together with the other writes of a transaction.

        Return False when nothing was written, or when that is not known.
        """
        for recorded in claims:
            transaction.delete(Preparation, build_preparation_name(recorded.uid, self._node))
        if len(transaction) < 2 or not await self._commit(transaction):
            return False
        self.announced.difference_update(recorded.uid for recorded in claims)
        return True

    async def _commit(self, transaction: ObjectTransaction) -> bool:
        try:
            done = await self._client.transactions.commit(transaction)
        except CALL_ERRORS:
            return False
        return not isinstance(done, TransactionsUnsupported)

    async def report_devices(
        self, recorded: RecordedClaim, devices: tuple[PreparationDevice, ...], existing: Preparation | None
    ) -> None:
        """Report which devices of a claim this node holds; raises the errors of the client."""
        preparation = build_preparation(recorded, self._node, devices)
        if existing is None:
            await self._client.create(preparation)
        else:
            await self._client.update(replace(preparation, metadata=existing.metadata))

    async def delete_stale(self, existing: Preparation) -> None:
        """Delete a Preparation whose claim this node does not hold."""
        with suppress(NotFoundError, ConflictError):
            name, uid = existing.metadata.name, existing.metadata.uid
            await self._client.delete(Preparation, name, "", DeleteOptions(uid=uid))

    async def read_restore_id(self) -> str:
        """Read the id of the server's last restore; empty when there was none."""
        try:
            page = await self._client.get_json(RESTORED_PATH)
        except (NotFoundError, ForbiddenError):
            return ""
        found = page.get("id") if isinstance(page, dict) else None
        return found if isinstance(found, str) else ""

    async def is_restore_unaccounted(self) -> bool:
        """Return whether the server was restored and this node has not reported its devices since."""
        restore = await self.read_restore_id()
        return restore not in ("", self._get_node().metadata.annotations.get(ACCOUNTED_ANNOTATION))

    async def _is_own(self, name: str) -> bool:
        """Return whether a Preparation that may not be deleted is this node's; True when in doubt."""
        with suppress(*CALL_ERRORS):
            return any(each.metadata.name == name for each in await self.list_existing() or ())
        return True

    async def list_existing(self) -> tuple[Preparation, ...] | None:
        """List the Preparations of this node; None when the server does not have the kind."""
        if not await self.is_served():
            return None
        own = ObjectSelector(fields=f"spec.nodeName={self._node}")
        return tuple((await self._client.list(Preparation, selector=own)).items)
