"""Writes the decisions about classic claims: one status write per action, on the version it was decided on.

A stale action is no failure: another writer was faster, and the pod is decided again on the newer state.
Reservations of one pod are made all or not at all, so that two pods which need the same claims do not hold
one each and wait for ever.
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
"""Another version, none at all, or one that no longer allows the action, such as a claim that is being
deleted.
"""


async def write_action(client: Client, action: ClassicAction) -> bool:
    """Write one action; False when it was stale."""
    try:
        await client.patch_changes(action.claim, apply_action(action), subresource="status")
    except _STALE_ERRORS:
        return False
    return True


async def reserve(client: Client, actions: Sequence[ReserveClassic]) -> bool:
    """Reserve all claims of a pod; False, and none of them, when one action was stale."""
    for position, action in enumerate(actions):
        if not await write_action(client, action):
            await unreserve(client, actions[:position])
            return False
    return True


async def unreserve(client: Client, actions: Sequence[ReserveClassic]) -> None:
    """Remove a pod from the claims that were reserved for it, because it gets no node."""
    for action in actions:
        await _remove_consumer(client, action.claim, action.pod)


async def _remove_consumer(client: Client, claim: ClassicResourceClaim, pod: Pod) -> None:
    """Remove a pod from the claim as it is now, however often others write meanwhile."""
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
