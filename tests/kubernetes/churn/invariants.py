"""What must be true when the churn pauses: nothing is stuck, and no device has two holders at any time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
FINISHED = ("Succeeded", "Failed")
Objects = dict[str, list[Document]]
"""Objects by the plural of their kind."""


def find_stuck(objects: Objects, nodes: set[str]) -> list[str]:
    """What some controller should have finished: empty when the cluster has settled."""
    pods = {pod["metadata"]["uid"]: pod for pod in objects["pods"]}
    found = [*_find_stuck_claims(objects["resourceclaims"], pods)]
    found += _find_stuck_pods(objects["pods"], nodes)
    for plural, items in objects.items():
        if plural in ("pods", "resourceclaims"):
            continue
        for item in items:
            if "deletionTimestamp" in item["metadata"]:
                found.append(f"{plural} {_name(item)} is still terminating")
            elif _is_unobserved(plural, item):
                found.append(f"{plural} {_name(item)}: its controller has not seen its generation")
    return found


def _is_unobserved(plural: str, item: Document) -> bool:
    if plural not in ("deployments", "statefulsets", "daemonsets"):
        return False
    seen = item.get("status", {}).get("observedGeneration", 0)
    return bool(seen < item["metadata"].get("generation", 0))


def _find_stuck_claims(claims: list[Document], pods: dict[str, Document]) -> Iterator[str]:
    for claim in claims:
        metadata, status, name = claim["metadata"], claim.get("status", {}), _name(claim)
        users = status.get("reservedFor") or ()
        if "deletionTimestamp" in metadata:
            yield f"claim {name} is still terminating: {metadata.get('finalizers')}"
        if "allocation" in status and not users:
            yield f"claim {name} is allocated without a consumer"
        used = any(user["uid"] in pods and not _has_finished(pods[user["uid"]]) for user in users)
        for user in users:
            pod = pods.get(user["uid"])
            if pod is None:
                yield f"claim {name} is reserved for pod {user['name']}, which is gone"
            elif _has_finished(pod) and not used:
                yield f"claim {name} is reserved for pod {user['name']}, which has finished"
        for owner in metadata.get("ownerReferences") or ():
            if owner["kind"] == "Pod" and owner["uid"] not in pods:
                yield f"claim {name} belongs to pod {owner['name']}, which is gone"


def _has_finished(pod: Document) -> bool:
    """Whether a pod will not run again.

    While others use its claim, kube-controller-manager 1.37 removes and adds its reservation in turns, on any
    server: only the last user of a claim has to lose it.
    """
    return pod.get("status", {}).get("phase") in FINISHED


def _find_stuck_pods(pods: list[Document], nodes: set[str]) -> Iterator[str]:
    for pod in pods:
        status, node, name = pod.get("status", {}), pod["spec"].get("nodeName"), _name(pod)
        conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
        waiting = conditions.get("PodScheduled", {})
        if "deletionTimestamp" in pod["metadata"]:
            yield f"pod {name} is still terminating: {pod['metadata'].get('finalizers')}"
        elif node and node not in nodes:
            yield f"pod {name} is on node {node}, which is gone"
        elif node and status.get("phase") == "Pending":
            yield f"pod {name} was placed and does not start"
        elif not (node or _lacks_claim(pod) or (waiting.get("status") == "False" and waiting.get("reason"))):
            yield f"pod {name} waits without a reason"


def _lacks_claim(pod: Document) -> bool:
    """Whether a claim of the pod was not created: a quota refuses it. kube-scheduler says nothing then."""
    made = {entry["name"] for entry in pod.get("status", {}).get("resourceClaimStatuses") or ()}
    entries = pod["spec"].get("resourceClaims") or ()
    return any("resourceClaimTemplateName" in each and each["name"] not in made for each in entries)


def _name(item: Document) -> str:
    metadata = item["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


class DeviceHolders:
    """Who holds which device, event by event; a device that is not shared has one holder at most."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.allocations = 0
        self._held: dict[str, tuple[str, set[tuple[str, str, str]]]] = {}

    def reset(self, claims: list[Document]) -> None:
        """Start again from a list, after events were lost."""
        self._held.clear()
        for claim in claims:
            self.apply("MODIFIED", claim)

    def apply(self, event: str, claim: Document) -> None:
        uid = claim["metadata"]["uid"]
        _, before = self._held.pop(uid, ("", set()))
        after = set() if event == "DELETED" else _read_devices(claim)
        if not after:
            return
        self._held[uid] = (_name(claim), after)
        if after == before:
            return
        self.allocations += 1
        holders: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for name, devices in self._held.values():
            for device in devices & after:
                holders[device].append(name)
        self.violations += [
            f"{'/'.join(device)}: {names}" for device, names in holders.items() if len(names) > 1
        ]


def _read_devices(claim: Document) -> set[tuple[str, str, str]]:
    """The devices that the claim has for itself."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results") or ()
    return {
        (result["driver"], result["pool"], result["device"])
        for result in results
        if not result.get("adminAccess") and not result.get("shareID")
    }
