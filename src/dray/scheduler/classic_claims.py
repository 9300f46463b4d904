"""Writes what was decided about classic claims: each action one status, on the version it was decided on.

An action that was overtaken is no failure: somebody else was faster, and the pod is decided again on what is
there then. Reservations of one pod are made all or not at all, so that two pods which need the same claims do
not hold one each and wait for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.claims.reservation import is_classic_reserved_for
from dray.client.client import Client
from dray.client.errors import ConflictError, InvalidObjectError, NotFoundError
from dray.placement.classic_negotiation import ClassicAction, ReserveClassic, UnreserveClassic, apply_action

_STALE_ERRORS = (ConflictError, NotFoundError, InvalidObjectError)
"""Another version, none at all, or one that no longer allows it, such as a claim that is being deleted."""


async def write_action(client: Client, action: ClassicAction) -> bool:
    """Write one action; False when it was overtaken."""
    try:
        await client.patch_changes(action.claim, apply_action(action), subresource="status")
    except _STALE_ERRORS:
        return False
    return True


async def reserve(client: Client, actions: Sequence[ReserveClassic]) -> bool:
    """Reserve all claims of a pod; False, and none of them, when one was overtaken."""
    for position, action in enumerate(actions):
        if not await write_action(client, action):
            await unreserve(client, actions[:position])
            return False
    return True


async def unreserve(client: Client, actions: Sequence[ReserveClassic]) -> None:
    """Take a pod off the claims that were reserved for it, because it gets no node after all."""
    for action in actions:
        await _remove_consumer(client, action.claim, action.pod)


async def _remove_consumer(client: Client, claim: ClassicResourceClaim, pod: Pod) -> None:
    """Remove a pod's entry from the claim as it is now, however often others write meanwhile."""
    while True:
        try:
            now = await client.get(ClassicResourceClaim, claim.metadata.name, claim.metadata.namespace)
            if now.metadata.uid != claim.metadata.uid or not is_classic_reserved_for(now, pod):
                return
            await client.patch_changes(now, apply_action(UnreserveClassic(now, pod)), subresource="status")
        except NotFoundError:
            return
        except ConflictError:
            continue
        return
