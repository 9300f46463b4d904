"""The overview of a cluster: nodes with their pods and devices, as `dray up` and `dray status` show it.

Theory of operation: a pure function groups pods, claims and slices by node. Devices that several nodes reach
are listed under the name of their pool. A shared device counts as used as soon as one share is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.unknown_fields import explain_unknown_fields, list_unknown_fields
from dray.claims.claim_names import find_recorded_name
from dray.placement.fencing import is_out_of_service
from dray.placement.node_health import NOT_READY, UNREACHABLE, find_ready_condition

NO_NODE: Final = ""
FENCED_STATE: Final = "fenced"
"""The state of a node that was declared out of service."""
NOT_READY_STATE: Final = "not ready"
"""The state of a node that cannot run pods, and of a pod with a container that is not ready."""
LOST_STATE: Final = "lost"
UNKNOWN_STATE: Final = "unknown"
"""The state of a node that may not be read."""


class PoolDevice(NamedTuple):
    """The full name of a device."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A device of a pod, its claim, and what a share of it takes."""

    driver: str
    pool: str
    device: str
    claim: str
    consumed: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.device + self._format_amounts()

    @property
    def full_name(self) -> str:
        """The device with its driver and pool, and what a share takes."""
        return f"{self.driver}/{self.pool}/{self.device}{self._format_amounts()}"

    def _format_amounts(self) -> str:
        amounts = ", ".join(f"{name} {amount}" for name, amount in self.consumed.items())
        return f" ({amounts})" if amounts else ""


@dataclass(frozen=True, slots=True)
class PodOverview:
    """A pod, its state, and its devices."""

    name: str
    """With its namespace: `ml/train-0`."""
    word: str
    devices: tuple[AllocatedDevice, ...] = ()
    why: str = ""
    """Why it waits or is not ready, from its conditions."""


@dataclass(frozen=True, slots=True)
class PoolOverview:
    """The used and free devices of a pool."""

    driver: str
    pool: str
    used: tuple[str, ...]
    free: tuple[str, ...]
    why: str = ""
    """Why its free devices are not allocated: fields that this dray does not understand."""


@dataclass(frozen=True, slots=True)
class NodeOverview:
    """A node with its pods and pools; the node without a name has the pools of no single node."""

    name: str
    word: str
    pods: tuple[PodOverview, ...]
    pools: tuple[PoolOverview, ...]
    why: str = ""
    """Why it is not ready or lost, from its conditions."""


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """A cluster at one moment."""

    nodes: tuple[NodeOverview, ...]
    waiting: tuple[PodOverview, ...]


def build_overview(
    nodes: Iterable[Node] | None,
    pods: Iterable[Pod],
    claims: Iterable[ResourceClaim],
    slices: Iterable[ResourceSlice],
) -> ClusterOverview:
    """Build the overview from the objects of a cluster; without nodes, their states are unknown."""
    all_claims = list(claims)
    by_name = {(claim.metadata.name, claim.metadata.namespace): claim for claim in all_claims}
    pods_by_node: dict[str, list[PodOverview]] = {}
    for pod in sorted(pods, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        pods_by_node.setdefault(pod.spec.node_name, []).append(
            _summarize_pod(pod, lambda *key: by_name.get(key))
        )
    pools = _build_pool_overviews(slices, _collect_allocated_devices(all_claims))
    known = {node.metadata.name: (_describe_node_state(node), node) for node in nodes or ()}
    names = sorted({*known, *pods_by_node, *pools} - {NO_NODE}, key=_build_natural_sort_key)
    rows = []
    for name in names:
        state, node = known.get(name, ("gone" if nodes is not None else UNKNOWN_STATE, None))
        why = (
            _get_not_ready_message(node)
            if node is not None and state in (NOT_READY_STATE, LOST_STATE)
            else ""
        )
        rows.append(NodeOverview(name, state, tuple(pods_by_node.get(name, ())), pools.get(name, ()), why))
    if NO_NODE in pools:
        rows.append(NodeOverview(NO_NODE, "", (), pools[NO_NODE]))
    return ClusterOverview(tuple(rows), tuple(pods_by_node.get(NO_NODE, ())))


def describe_pod_state(pod: Pod) -> str:
    """Return the state of a pod in a word."""
    if pod.metadata.deletion_timestamp is not None:
        return "ending"
    if not pod.spec.node_name:
        return "waiting"
    return {"Running": "running", "Succeeded": "done", "Failed": "failed"}.get(pod.status.phase, "starting")


ClaimLookup = Callable[[str, str], ResourceClaim | None]
"""Returns a claim by its name and namespace."""


def list_pod_devices(pod: Pod, find_claim: ClaimLookup) -> Iterator[AllocatedDevice]:
    """List the devices of a pod's claims; as text they read `gpu-0`, `eth0 (bandwidth 5G)`."""
    for entry in pod.spec.resource_claims:
        found, name = find_recorded_name(pod, entry)
        name = entry.resource_claim_name or (name if found else None)
        claim = find_claim(name, pod.metadata.namespace) if name else None
        if claim is None or claim.status.allocation is None:
            continue
        for result in claim.status.allocation.devices.results:
            amounts = {capacity: str(amount) for capacity, amount in result.consumed_capacity.items()}
            yield AllocatedDevice(result.driver, result.pool, result.device, claim.metadata.name, amounts)


def _summarize_pod(pod: Pod, find_claim: ClaimLookup) -> PodOverview:
    state = describe_pod_state(pod)
    devices = () if state in ("done", "failed") else tuple(list_pod_devices(pod, find_claim))
    messages = [each.message for each in pod.status.conditions if each.type == "PodScheduled"]
    why = messages[0] if state == "waiting" and messages else ""
    if state == "running":
        unready = [each for each in pod.status.conditions if each.type == "Ready" and each.status == "False"]
        state, why = (NOT_READY_STATE, unready[0].message) if unready else (state, "")
    return PodOverview(f"{pod.metadata.namespace}/{pod.metadata.name}", state, devices, why)


def _describe_node_state(node: Node) -> str:
    """Return the state of a node; the worst that is true of it."""
    if is_out_of_service(node):
        return FENCED_STATE
    ready = find_ready_condition(node)
    if _has_taint(node, UNREACHABLE) or (ready and ready.status == "Unknown"):
        return LOST_STATE
    if (ready and ready.status == "False") or _has_taint(node, NOT_READY):
        return NOT_READY_STATE
    return "cordoned" if node.spec.unschedulable else "ready"


def _get_not_ready_message(node: Node) -> str:
    ready = find_ready_condition(node)
    if ready is not None and ready.status != "True":
        return ready.message
    return f"it has the taint `{NOT_READY}`" if _has_taint(node, NOT_READY) else ""


def _has_taint(node: Node, key: str) -> bool:
    return any(taint.key == key for taint in node.spec.taints)


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
    """Build the overviews of the pools of each node, of their newest generation."""
    newest: dict[tuple[str, str], tuple[int, list[ResourceSlice]]] = {}
    for each in slices:
        key, generation = (each.spec.driver, each.spec.pool.name), each.spec.pool.generation
        before, kept = newest.get(key, (-1, []))
        if generation > before:
            newest[key] = generation, [each]
        elif generation == before:
            kept.append(each)
    found: dict[str, list[PoolOverview]] = {}
    for (driver, pool), (_, slices_of_pool) in sorted(newest.items()):
        names = sorted(
            {device.name for each in slices_of_pool for device in each.spec.devices},
            key=_build_natural_sort_key,
        )
        used = tuple(name for name in names if PoolDevice(driver, pool, name) in allocated)
        free = tuple(name for name in names if name not in used)
        node = slices_of_pool[0].spec.node_name or NO_NODE
        unknown = [path for each in slices_of_pool for path in list_unknown_fields(each)]
        why = explain_unknown_fields(unknown, with_indexes=False) if unknown else ""
        found.setdefault(node, []).append(PoolOverview(driver, pool, used, free, why))
    return {node: tuple(uses) for node, uses in found.items()}


def _build_natural_sort_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Build a sort key in the order in which people count: node-2 before node-10."""
    parts: list[tuple[int, int | str]] = []
    text = ""
    for character in name + "\0":
        if text and (character.isdigit() != text[-1].isdigit() or character == "\0"):
            parts.append((0, int(text)) if text.isdecimal() else (1, text))
            text = ""
        text += character
    return tuple(parts)
