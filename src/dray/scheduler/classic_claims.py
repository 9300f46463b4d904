"""Writes what was decided about classic claims: each action one status, on the version it was decided on.

An action that was overtaken is no failure: somebody else was faster, and the pod is decided again on what is
there then. Reservations of one pod are made all or not at all, so that two pods which need the same claims do
not hold one each and wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.classic import ClassicClaim
from dray.api.core import Pod
from dray.claims.reservation import classic_reserved
from dray.client.client import Client
from dray.client.errors import Conflict, Invalid, NotFound
from dray.placement.classic_negotiation import ClassicAction, ReserveClassic, UnreserveClassic, outcome

_OVERTAKEN = (Conflict, NotFound, Invalid)
"""Another version, none at all, or one that no longer allows it, such as a claim that is being deleted."""


async def perform(client: Client, action: ClassicAction) -> bool:
    """Write one action; False when it was overtaken."""
    try:
        await client.amend(action.claim, outcome(action), subresource="status")
    except _OVERTAKEN:
        return False
    return True


async def reserve(client: Client, actions: Sequence[ReserveClassic]) -> bool:
    """Reserve all claims of a pod; False, and none of them, when one was overtaken."""
    for position, action in enumerate(actions):
        if not await perform(client, action):
            await unreserve(client, actions[:position])
            return False
    return True


async def unreserve(client: Client, actions: Sequence[ReserveClassic]) -> None:
    """Take a pod off the claims that were reserved for it, because it gets no node after all."""
    for action in actions:
        await _take_off(client, action.claim, action.pod)


async def _take_off(client: Client, claim: ClassicClaim, pod: Pod) -> None:
    """Remove a pod's entry from the claim as it is now, however often others write meanwhile."""
    while True:
        try:
            now = await client.get(ClassicClaim, claim.metadata.name, claim.metadata.namespace)
            if now.metadata.uid != claim.metadata.uid or not classic_reserved(now, pod):
                return
            await client.amend(now, outcome(UnreserveClassic(now, pod)), subresource="status")
        except NotFound:
            return
        except Conflict:
            continue
        return
