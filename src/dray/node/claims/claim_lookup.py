"""What the entries of a pod stand for, read fresh: a node may only get claims, one by one, by name.

The name of a claim that was made for the pod stands in the pod's status. Other clients may have wiped it from
there; what the agent has written down itself is then the second source. Names are unique across both groups
of claims, so a claim that one group does not have is looked for in the other.
"""

from __future__ import annotations

from typing import Final

from dray.api.classic import ClassicClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims.claim_names import classic_name, recorded
from dray.client.client import Client
from dray.client.errors import NotFound, NotServed
from dray.node.claims.admission import Absent, Claim, Found
from dray.node.claims.outcomes import Reason
from dray.node.claims.record import Record

_ABSENT: Final = (NotFound, NotServed)


async def find_claims(client: Client, pod: Pod, record: Record) -> dict[str, Found]:
    """What each entry of a pod stands for; raises what keeps us from reading."""
    return {entry.name: await _find(client, pod, entry, record) for entry in pod.spec.resource_claims}


def claim_name(pod: Pod, entry: PodResourceClaim, record: Record) -> str | Absent | None:
    """The name of the claim that an entry stands for; None when it needs none."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.template is not None:
        return classic_name(pod, entry)
    is_said, name = recorded(pod, entry)
    if is_said:
        return name
    for held in record.used_by(pod.metadata.uid):
        if any(user.uid == pod.metadata.uid and entry.name in user.entries for user in held.users):
            return held.name
    why = (
        f"no claim was made yet for entry `{entry.name}` (template `{entry.resource_claim_template_name}`), "
        "or the pod's status does not name it any more"
    )
    return Absent(Reason.CLAIM_NOT_MADE, why)


async def _find(client: Client, pod: Pod, entry: PodResourceClaim, record: Record) -> Found:
    name = claim_name(pod, entry, record)
    if not isinstance(name, str):
        return name
    namespace = pod.metadata.namespace
    claim: Claim | None = None
    if entry.template is None:
        claim = await _get(client, ResourceClaim, name, namespace)
    if claim is None and entry.resource_claim_template_name is None:
        claim = await _get(client, ClassicClaim, name, namespace)
    if claim is None:
        why = f"claim {namespace}/{name} of entry `{entry.name}` does not exist"
        return Absent(Reason.CLAIM_MISSING, why)
    return claim


async def _get(
    client: Client, kind: type[ResourceClaim] | type[ClassicClaim], name: str, namespace: str
) -> Claim | None:
    try:
        return await client.get(kind, name, namespace)
    except _ABSENT:
        return None
