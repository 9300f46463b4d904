"""What the entries of a pod stand for, read fresh: a node may only get claims, one by one, by name.

The name of a claim that was made for the pod stands in the pod's status. Other clients may have wiped it from
there; what the agent has written down itself is then the second source. Names are unique across both groups
of claims, so a claim that one group does not have is looked for in the other.
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
    """What each entry of a pod stands for; raises what keeps us from reading."""
    return {entry.name: await _find_claim(client, pod, entry, record) for entry in pod.spec.resource_claims}


def resolve_claim_name(pod: Pod, entry: PodResourceClaim, record: ClaimsRecord) -> str | MissingClaim | None:
    """The name of the claim that an entry stands for; None when it needs none."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.template is not None:
        return build_classic_name(pod, entry)
    is_said, name = find_recorded_name(pod, entry)
    if is_said:
        return name
    for held in record.find_used_by(pod.metadata.uid):
        if any(user.uid == pod.metadata.uid and entry.name in user.entries for user in held.users):
            return held.name
    why = (
        f"no claim was made yet for entry `{entry.name}` (template `{entry.resource_claim_template_name}`), "
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
