"""What runs where: nodes with their pods and devices, from what the server tells.

Theory of operation: a pure function puts pods, claims and slices together by node; everything that shows a
cluster to people (`dray up`, `dray status`) shows this. Devices that several nodes reach are counted under
the name of their pool. A share counts as used as soon as anybody has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.claims.claim_names import find_recorded_name
from dray.placement.fencing import is_out_of_service
from dray.placement.node_health import UNREACHABLE, find_ready_condition

NO_NODE: Final = ""
FENCED_STATE: Final = "fenced"
"""The word for a node that was declared out of service."""
NOT_READY_STATE: Final = "not ready"
"""The word for a node on which nothing could run, and for a pod with a container that does not."""
LOST_STATE: Final = "lost"


class PoolDevice(NamedTuple):
    """A device, wherever it is."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class PodOverview:
    """A pod, how far it has come, and what it has."""

    name: str
    """With its namespace: `ml/train-0`."""
    word: str
    devices: tuple[str, ...] = ()
    why: str = ""
    """Why it waits or is not ready, as the pod itself says."""


@dataclass(frozen=True, slots=True)
class PoolOverview:
    """How much of a pool is used."""

    driver: str
    pool: str
    used: tuple[str, ...]
    free: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """A node with what is on it; the node without a name has what no node has alone."""

    name: str
    word: str
    pods: tuple[PodOverview, ...]
    pools: tuple[PoolOverview, ...]
    why: str = ""
    """Why it is not ready, or lost, as the node itself says or is said of it."""


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """A cluster at one moment."""

    nodes: tuple[NodeOverview, ...]
    waiting: tuple[PodOverview, ...]


def build_overview(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    claims: Iterable[ResourceClaim],
    slices: Iterable[ResourceSlice],
) -> ClusterOverview:
    """Put together what is on which node."""
    held = list(claims)
    by_name = {(claim.metadata.name, claim.metadata.namespace): claim for claim in held}
    seated: dict[str, list[PodOverview]] = {}
    for pod in sorted(pods, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        seated.setdefault(pod.spec.node_name, []).append(_summarize_pod(pod, lambda *key: by_name.get(key)))
    pools = _build_pool_overviews(slices, _collect_allocated_devices(held))
    known = {node.metadata.name: (_describe_node_state(node), node) for node in nodes}
    names = sorted({*known, *seated, *pools} - {NO_NODE}, key=_build_natural_sort_key)
    rows = []
    for name in names:
        word, node = known.get(name, ("gone", None))
        why = (
            _get_not_ready_message(node) if node is not None and word in (NOT_READY_STATE, LOST_STATE) else ""
        )
        rows.append(NodeOverview(name, word, tuple(seated.get(name, ())), pools.get(name, ()), why))
    if NO_NODE in pools:
        rows.append(NodeOverview(NO_NODE, "", (), pools[NO_NODE]))
    return ClusterOverview(tuple(rows), tuple(seated.get(NO_NODE, ())))


def describe_pod_state(pod: Pod) -> str:
    """How far a pod has come, in a word."""
    if pod.metadata.deletion_timestamp is not None:
        return "ending"
    if not pod.spec.node_name:
        return "waiting"
    return {"Running": "running", "Succeeded": "done", "Failed": "failed"}.get(pod.status.phase, "starting")


ClaimLookup = Callable[[str, str], ResourceClaim | None]
"""A claim by its name and namespace."""


def list_pod_devices(pod: Pod, find_claim: ClaimLookup) -> Iterator[str]:
    """What the claims of a pod hold, as people would write it: `gpu-0`, `eth0 (bandwidth 5G)`."""
    for entry in pod.spec.resource_claims:
        found, name = find_recorded_name(pod, entry)
        name = entry.resource_claim_name or (name if found else None)
        claim = find_claim(name, pod.metadata.namespace) if name else None
        if claim is None or claim.status.allocation is None:
            continue
        for result in claim.status.allocation.devices.results:
            amounts = ", ".join(f"{name} {amount}" for name, amount in result.consumed_capacity.items())
            yield f"{result.device} ({amounts})" if amounts else result.device


def _summarize_pod(pod: Pod, find_claim: ClaimLookup) -> PodOverview:
    word = describe_pod_state(pod)
    devices = () if word in ("done", "failed") else tuple(list_pod_devices(pod, find_claim))
    told = [each.message for each in pod.status.conditions if each.type == "PodScheduled"]
    why = told[0] if word == "waiting" and told else ""
    if word == "running":
        unready = [each for each in pod.status.conditions if each.type == "Ready" and each.status == "False"]
        word, why = (NOT_READY_STATE, unready[0].message) if unready else (word, "")
    return PodOverview(f"{pod.metadata.namespace}/{pod.metadata.name}", word, devices, why)


def _describe_node_state(node: Node) -> str:
    """How a node is; the worst that is true of it."""
    if is_out_of_service(node):
        return FENCED_STATE
    ready = find_ready_condition(node)
    if any(taint.key == UNREACHABLE for taint in node.spec.taints) or (ready and ready.status == "Unknown"):
        return LOST_STATE
    if ready and ready.status == "False":
        return NOT_READY_STATE
    return "cordoned" if node.spec.unschedulable else "ready"


def _get_not_ready_message(node: Node) -> str:
    ready = find_ready_condition(node)
    return ready.message if ready is not None and ready.status != "True" else ""


def _collect_allocated_devices(claims: Iterable[ResourceClaim]) -> set[PoolDevice]:
    return {
        PoolDevice(result.driver, result.pool, result.device)
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if not result.admin_access
    }


def _build_pool_overviews(
    slices: Iterable[ResourceSlice], allocated: set[PoolDevice]
) -> dict[str, tuple[PoolOverview, ...]]:
    """The pools of each node, of their newest generation."""
    newest: dict[tuple[str, str], tuple[int, list[ResourceSlice]]] = {}
    for each in slices:
        key, generation = (each.spec.driver, each.spec.pool.name), each.spec.pool.generation
        before, kept = newest.get(key, (-1, []))
        if generation > before:
            newest[key] = generation, [each]
        elif generation == before:
            kept.append(each)
    found: dict[str, list[PoolOverview]] = {}
    for (driver, pool), (_, pages) in sorted(newest.items()):
        names = sorted(
            {device.name for page in pages for device in page.spec.devices}, key=_build_natural_sort_key
        )
        used = tuple(name for name in names if PoolDevice(driver, pool, name) in allocated)
        free = tuple(name for name in names if name not in used)
        node = pages[0].spec.node_name or NO_NODE
        found.setdefault(node, []).append(PoolOverview(driver, pool, used, free))
    return {node: tuple(uses) for node, uses in found.items()}


def _build_natural_sort_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Names in the order in which people count: node-2 before node-10."""
    parts: list[tuple[int, int | str]] = []
    text = ""
    for sign in name + "\0":
        if text and (sign.isdigit() != text[-1].isdigit() or sign == "\0"):
            parts.append((0, int(text)) if text.isdecimal() else (1, text))
            text = ""
        text += sign
    return tuple(parts)
