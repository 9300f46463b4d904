"""Lookup of a pod's claims on the server; a node may only get single claims by name.

The pod's status has the name of a claim generated for the pod. Other clients may have removed it from there;
then the agent's own record is the second source. Names are unique across both API groups of claims, so a
claim that one group does not have is looked up in the other.
"""

from __future__ import annotations

from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims.claim_names import build_classic_name, find_recorded_name
from dray.client.client import Client
from dray.client.errors import KindNotServedError, NotFoundError
from dray.node.claims.admission import Claim, ClaimLookup, MissingClaim
from dray.node.claims.outcomes import NotReadyReason
from dray.node.claims.record import ClaimsRecord

_NOT_FOUND_ERRORS: Final = (NotFoundError, KindNotServedError)


async def find_claims(client: Client, pod: Pod, record: ClaimsRecord) -> dict[str, ClaimLookup]:
    """Look up the claim of each entry of a pod; raises the errors of the client."""
    return {entry.name: await _find_claim(client, pod, entry, record) for entry in pod.spec.resource_claims}


def resolve_claim_name(pod: Pod, entry: PodResourceClaim, record: ClaimsRecord) -> str | MissingClaim | None:
    """Return the name of an entry's claim; None when it needs none."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.template is not None:
        return build_classic_name(pod, entry)
    is_recorded, name = find_recorded_name(pod, entry)
    if is_recorded:
        return name
    for recorded in record.find_used_by(pod.metadata.uid):
        if any(user.uid == pod.metadata.uid and entry.name in user.entries for user in recorded.users):
            return recorded.name
    why = (
        f"no claim exists yet for entry `{entry.name}` (template `{entry.resource_claim_template_name}`), "
        "or the pod's status does not name it any more"
    )
    return MissingClaim(NotReadyReason.CLAIM_NOT_MADE, why)


async def _find_claim(client: Client, pod: Pod, entry: PodResourceClaim, record: ClaimsRecord) -> ClaimLookup:
    name = resolve_claim_name(pod, entry, record)
    if not isinstance(name, str):
        return name
    namespace = pod.metadata.namespace
    claim: Claim | None = None
    if entry.template is None:
        claim = await _get_or_none(client, ResourceClaim, name, namespace)
    if claim is None and entry.resource_claim_template_name is None:
        claim = await _get_or_none(client, ClassicResourceClaim, name, namespace)
    if claim is None:
        why = f"claim {namespace}/{name} of entry `{entry.name}` does not exist"
        return MissingClaim(NotReadyReason.CLAIM_MISSING, why)
    return claim


async def _get_or_none(
    client: Client, kind: type[ResourceClaim] | type[ClassicResourceClaim], name: str, namespace: str
) -> Claim | None:
    try:
        return await client.get(kind, name, namespace)
    except _NOT_FOUND_ERRORS:
        return None
