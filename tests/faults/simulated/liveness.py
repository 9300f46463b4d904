"""What must be so when a cluster is at rest: nothing is stuck, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dray.api.json_text import read_json
from tests.faults.simulated.invariants import ClusterModel
from tests.faults.simulated.stored_fields import ReadPod
from tests.simulated.cluster import SimulatedCluster
from tests.simulated.store import complete

_FINISHED: Final = ("Succeeded", "Failed")


def find_stuck_objects(model: ClusterModel, cluster: SimulatedCluster) -> list[str]:
    """Find objects that should be gone, and pods that neither run nor say why."""
    return [*_find_undeleted(model, cluster), *_find_waiting_pods(model), *_find_wrong_reservations(model)]


def _find_undeleted(model: ClusterModel, cluster: SimulatedCluster) -> Iterator[str]:
    for entry in complete(cluster.store.contents.range(b"/registry/")).entries:
        if b'"deletionTimestamp"' not in entry.value:
            continue
        claim = model.claims.get(entry.key)
        if claim is None or not any(model.is_live(each.uid) for each in claim.status.reserved_for):
            metadata = read_json(entry.value)["metadata"]
            yield f"{entry.key.decode()} stays deleted: {metadata.get('finalizers')}"


def _find_waiting_pods(model: ClusterModel) -> Iterator[str]:
    for pod in model.pods.values():
        if pod.status.phase in (*_FINISHED, "Running"):
            continue
        if pod.spec.node_name:
            if _has_its_claims(model, pod):
                yield f"pod {pod.metadata.name} has a node and its claims, and is {pod.status.phase}"
        elif not _says_why(pod) and len(model.list_claims(pod)) == len(pod.spec.resource_claims):
            yield f"pod {pod.metadata.name} waits without a reason"


def _says_why(pod: ReadPod) -> bool:
    return any(each.type == "PodScheduled" and each.message for each in pod.status.conditions)


def _has_its_claims(model: ClusterModel, pod: ReadPod) -> bool:
    """Whether a pod may use all its claims; agents refuse those that are being deleted, and say so."""
    claims = model.list_claims(pod)
    uid = pod.metadata.uid
    return len(claims) == len(pod.spec.resource_claims) and all(
        claim.metadata.deletion_timestamp is None
        and uid in {consumer.uid for consumer in claim.status.reserved_for}
        for claim in claims
    )


def _find_wrong_reservations(model: ClusterModel) -> Iterator[str]:
    for claim in model.claims.values():
        for consumer in claim.status.reserved_for:
            pod = model.pods_by_uid.get(consumer.uid)
            if pod is None or pod.status.phase in _FINISHED:
                yield f"claim {claim.metadata.name} is reserved for a pod that has ended"


def find_leftovers(model: ClusterModel, cluster: SimulatedCluster) -> list[str]:
    """Find what is left of pods and claims that were all deleted."""
    found = [f"pod {pod.metadata.name} is left" for pod in model.pods.values()]
    found += [f"claim {claim.metadata.name} is left" for claim in model.claims.values()]
    for prefix in (b"/ledger/devices/", b"/ledger/preparations/", b"/ledger/counters/"):
        found += [
            f"a row is left: {entry.key.decode()} {entry.value.decode()}"
            for entry in complete(cluster.store.contents.range(prefix)).entries
        ]
    for machine in cluster.machines.values():
        for name, driver in machine.drivers.items():
            if driver.prepared:
                found.append(f"{machine.name} has prepared {sorted(driver.prepared)} for {name}")
    return found
