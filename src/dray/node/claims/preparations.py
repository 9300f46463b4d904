"""The node's word in the API that it has the devices of a claim in its hands.

Theory of operation: a `Preparation` is written before the first driver is asked for a claim and deleted after
the last one let go. While it stands, the server gives the devices to nobody else, whatever becomes of pod and
claim. Its name follows from claim and node, so writing it twice is writing it once. The drivers are noted on
it: whoever lost everything else still knows whom to ask to let go.

A server that was restored from a copy may have preparations of a past in which this node had a claim, and
has given it back since; and it may have given the devices to others, who have not told it yet. So what was
never said to be taken is not believed to be taken then: it is deleted, and said anew for the ledger to judge.

Rules for this file: a server that does not know the kind is a server without quarantine, and no trouble. Any
other no is told as a text; nothing is decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
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
from dray.node.claims.record import RecordedClaim
from dray.values.names import check_dns_subdomain

DRIVERS_ANNOTATION: Final = "dray.dev/drivers"
"""On a preparation: the drivers that have a part in it, separated by commas."""

RECHECK_SECONDS: Final = 300.0
"""Seconds after which a server that did not know the kind is asked again: it may have been upgraded."""


def build_preparation_name(claim_uid: str, node: str) -> str:
    """The name of a node's preparation of a claim; readable where that is a legal name."""
    name = f"{claim_uid}.{node}"
    if not check_dns_subdomain(name):
        return name
    return "p-" + hashlib.sha256(f"{claim_uid}/{node}".encode()).hexdigest()[:48]


def build_preparation(
    held: RecordedClaim, node: str, devices: tuple[PreparationDevice, ...] = ()
) -> Preparation:
    """What a node says when it is about to prepare a claim, or which devices of it it has."""
    drivers = ",".join(part.driver for part in held.parts)
    return Preparation(
        metadata=ObjectMeta(
            name=build_preparation_name(held.uid, node), annotations={DRIVERS_ANNOTATION: drivers}
        ),
        spec=PreparationSpec(
            node_name=node,
            claim=PreparedClaim(namespace=held.namespace, name=held.name, uid=held.uid),
            devices=devices,
        ),
    )


def parse_drivers(preparation: Preparation) -> tuple[str, ...]:
    """The drivers that a preparation names."""
    noted = preparation.metadata.annotations.get(DRIVERS_ANNOTATION, "")
    return tuple(driver for driver in noted.split(",") if driver)


class NodePreparations:
    """The preparations of one node."""

    def __init__(self, client: Client, get_node: Callable[[], Node]) -> None:
        """`get_node` is the node as it was last seen."""
        self._client = client
        self._get_node = get_node
        self._node = get_node().metadata.name
        self._served: bool | None = None
        self._checked_at = 0.0
        self.announced: set[str] = set()
        """The uids of claims of which the server was told, and heard, that this node has them."""

    async def is_served(self) -> bool:
        """Whether the server keeps preparations; raises whatever keeps us from knowing."""
        now = self._client.options.time_source.clock.monotonic()
        if self._served or (self._served is False and now - self._checked_at < RECHECK_SECONDS):
            return self._served
        self._served, self._checked_at = await self._client.serves(Preparation), now
        return self._served

    async def announce(self, claims: Iterable[RecordedClaim]) -> str:
        """Say that claims are about to be prepared; what keeps us from it, or nothing."""
        for held in claims:
            try:
                await self._announce(held)
            except CALL_ERRORS as trouble:
                return f"claim {held}: {trouble}"
        return ""

    async def _announce(self, held: RecordedClaim) -> None:
        said = build_preparation(held, self._node)
        try:
            await self._client.create(said)
        except AlreadyExistsError:
            standing = await self._client.get(Preparation, said.metadata.name)
            if replace(standing.spec, devices=()) != said.spec:
                raise
            if held.uid not in self.announced and await self.is_restore_unaccounted():
                await self.delete_stale(standing)
                await self._client.create(said)
        self.announced.add(held.uid)

    async def withdraw(self, held: RecordedClaim) -> str:
        """Say that a claim was given back; what keeps us from it, or nothing."""
        name = build_preparation_name(held.uid, self._node)
        try:
            await self._client.delete(Preparation, name)
        except NotFoundError:
            pass
        except CALL_ERRORS as trouble:
            is_anothers = isinstance(trouble, ForbiddenError) and not await self._is_own(name)
            return "" if is_anothers else f"claim {held}: {trouble}"
        self.announced.discard(held.uid)
        return ""

    async def report_devices(
        self, held: RecordedClaim, devices: tuple[PreparationDevice, ...], existing: Preparation | None
    ) -> None:
        """Say which devices of a claim this node has, whatever the server knows; raises its refusal."""
        told = build_preparation(held, self._node, devices)
        if existing is None:
            await self._client.create(told)
        else:
            await self._client.update(replace(told, metadata=existing.metadata))

    async def delete_stale(self, existing: Preparation) -> None:
        """Say that this node does not have what a preparation says it has."""
        with suppress(NotFoundError, ConflictError):
            name, uid = existing.metadata.name, existing.metadata.uid
            await self._client.delete(Preparation, name, "", DeleteOptions(uid=uid))

    async def read_restore_id(self) -> str:
        """From which restore the server goes on; nothing when it never was restored."""
        try:
            page = await self._client.get_json(RESTORED_PATH)
        except (NotFoundError, ForbiddenError):
            return ""
        found = page.get("id") if isinstance(page, dict) else None
        return found if isinstance(found, str) else ""

    async def is_restore_unaccounted(self) -> bool:
        """Whether the server was restored and has not heard since what this node has."""
        restore = await self.read_restore_id()
        return restore not in ("", self._get_node().metadata.annotations.get(ACCOUNTED_ANNOTATION))

    async def _is_own(self, name: str) -> bool:
        """Whether a preparation that we may not touch is ours all the same; when in doubt, it is."""
        with suppress(*CALL_ERRORS):
            return any(each.metadata.name == name for each in await self.list_existing() or ())
        return True

    async def list_existing(self) -> tuple[Preparation, ...] | None:
        """What the API says this node has; None when the server does not keep such things."""
        if not await self.is_served():
            return None
        own = ObjectSelector(fields=f"spec.nodeName={self._node}")
        return tuple((await self._client.list(Preparation, selector=own)).items)
