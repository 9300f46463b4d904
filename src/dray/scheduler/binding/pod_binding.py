"""The binding of a pod: the last write of a placement, and what its refusal means."""

from __future__ import annotations

from dray.api.core import Pod
from dray.client.client import Client
from dray.client.errors import ApiError
from dray.client.rest_client import CALL_ERRORS
from dray.placement.scheduling_cycle import Placement
from dray.scheduler.binding.errors import PodGoneOrBoundError


async def write_binding(client: Client, placement: Placement) -> None:
    """Bind a pod whose claims are reserved; raise when that fails."""
    pod, node = placement.pending_pod.pod, placement.node
    try:
        await client.bind(pod.metadata.name, pod.metadata.namespace, node.metadata.name, uid=pod.metadata.uid)
    except ApiError as refused:
        await raise_refusal(client, pod, refused)


async def raise_refusal(client: Client, pod: Pod, refused: ApiError) -> None:
    """Raise the refusal of a binding, or that the pod needs none any more."""
    if await is_gone_or_bound(client, pod):
        raise PodGoneOrBoundError(refused.message) from None
    raise refused


async def is_gone_or_bound(client: Client, pod: Pod) -> bool:
    """Whether a pod is gone or has a node, by another writer or by a write whose response got lost.

    This asks the server itself: devices taken from a pod that runs would be given to another.
    """
    try:
        now = await client.get(Pod, pod.metadata.name, pod.metadata.namespace)
    except CALL_ERRORS:
        return True
    return now.metadata.uid != pod.metadata.uid or bool(now.spec.node_name)
