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
    ACCOUNTED,
    RESTORED_PAGE,
    DeviceInHand,
    Preparation,
    PreparationSpec,
    PreparedClaim,
)
from dray.client.client import Client, Deletion
from dray.client.errors import AlreadyExists, Conflict, Forbidden, NotFound
from dray.client.object_refs import Selection
from dray.client.rest_client import TROUBLE
from dray.node.claims.record import Held
from dray.values.names import dns_subdomain

DRIVERS: Final = "dray.dev/drivers"
"""On a preparation: the drivers that have a part in it, separated by commas."""

ASK_AGAIN: Final = 300.0
"""Seconds after which a server that did not know the kind is asked again: it may have been upgraded."""


def preparation_name(claim_uid: str, node: str) -> str:
    """The name of a node's preparation of a claim; readable where that is a legal name."""
    name = f"{claim_uid}.{node}"
    if not dns_subdomain(name):
        return name
    return "p-" + hashlib.sha256(f"{claim_uid}/{node}".encode()).hexdigest()[:48]


def preparation_of(held: Held, node: str, devices: tuple[DeviceInHand, ...] = ()) -> Preparation:
    """What a node says when it is about to prepare a claim, or which devices of it it has."""
    drivers = ",".join(part.driver for part in held.parts)
    return Preparation(
        metadata=ObjectMeta(name=preparation_name(held.uid, node), annotations={DRIVERS: drivers}),
        spec=PreparationSpec(
            node_name=node,
            claim=PreparedClaim(namespace=held.namespace, name=held.name, uid=held.uid),
            devices=devices,
        ),
    )


def drivers_noted(preparation: Preparation) -> tuple[str, ...]:
    """The drivers that a preparation names."""
    noted = preparation.metadata.annotations.get(DRIVERS, "")
    return tuple(driver for driver in noted.split(",") if driver)


class Preparations:
    """The preparations of one node."""

    def __init__(self, client: Client, node: Callable[[], Node]) -> None:
        """`node` is the node as it was last seen."""
        self._client = client
        self._seen = node
        self._node = node().metadata.name
        self._served: bool | None = None
        self._asked = 0.0
        self.said: set[str] = set()
        """The uids of claims of which the server was told, and heard, that this node has them."""

    async def served(self) -> bool:
        """Whether the server keeps preparations; raises whatever keeps us from knowing."""
        now = self._client.habits.tempo.clock.monotonic()
        if self._served or (self._served is False and now - self._asked < ASK_AGAIN):
            return self._served
        self._served, self._asked = await self._client.serves(Preparation), now
        return self._served

    async def announce(self, claims: Iterable[Held]) -> str:
        """Say that claims are about to be prepared; what keeps us from it, or nothing."""
        for held in claims:
            try:
                await self._announce(held)
            except TROUBLE as trouble:
                return f"claim {held}: {trouble}"
        return ""

    async def _announce(self, held: Held) -> None:
        said = preparation_of(held, self._node)
        try:
            await self._client.create(said)
        except AlreadyExists:
            standing = await self._client.get(Preparation, said.metadata.name)
            if replace(standing.spec, devices=()) != said.spec:
                raise
            if held.uid not in self.said and await self.unheard():
                await self.deny(standing)
                await self._client.create(said)
        self.said.add(held.uid)

    async def withdraw(self, held: Held) -> str:
        """Say that a claim was given back; what keeps us from it, or nothing."""
        name = preparation_name(held.uid, self._node)
        try:
            await self._client.delete(Preparation, name)
        except NotFound:
            pass
        except TROUBLE as trouble:
            is_anothers = isinstance(trouble, Forbidden) and not await self._is_own(name)
            return "" if is_anothers else f"claim {held}: {trouble}"
        self.said.discard(held.uid)
        return ""

    async def tell(self, held: Held, devices: tuple[DeviceInHand, ...], standing: Preparation | None) -> None:
        """Say which devices of a claim this node has, whatever the server knows; raises its refusal."""
        told = preparation_of(held, self._node, devices)
        if standing is None:
            await self._client.create(told)
        else:
            await self._client.update(replace(told, metadata=standing.metadata))

    async def deny(self, standing: Preparation) -> None:
        """Say that this node does not have what a preparation says it has."""
        with suppress(NotFound, Conflict):
            name, uid = standing.metadata.name, standing.metadata.uid
            await self._client.delete(Preparation, name, "", Deletion(uid=uid))

    async def restored(self) -> str:
        """From which restore the server goes on; nothing when it never was restored."""
        try:
            page = await self._client.document(RESTORED_PAGE)
        except (NotFound, Forbidden):
            return ""
        found = page.get("id") if isinstance(page, dict) else None
        return found if isinstance(found, str) else ""

    async def unheard(self) -> bool:
        """Whether the server was restored and has not heard since what this node has."""
        restore = await self.restored()
        return restore not in ("", self._seen().metadata.annotations.get(ACCOUNTED))

    async def _is_own(self, name: str) -> bool:
        """Whether a preparation that we may not touch is ours all the same; when in doubt, it is."""
        with suppress(*TROUBLE):
            return any(each.metadata.name == name for each in await self.standing() or ())
        return True

    async def standing(self) -> tuple[Preparation, ...] | None:
        """What the API says this node has; None when the server does not keep such things."""
        if not await self.served():
            return None
        own = Selection(fields=f"spec.nodeName={self._node}")
        return tuple((await self._client.list(Preparation, select=own)).items)
