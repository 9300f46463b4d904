"""Pods that workloads would make: a Deployment of three replicas stands for three pods.

Only workloads as people write them are followed. One that comes out of a cluster (it has a uid) has its pods
there already, and the pods of a DaemonSet or a CronJob are not the author's to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_COUNTS: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "replicas",
        "ReplicaSet": "replicas",
        "StatefulSet": "replicas",
        "ReplicationController": "replicas",
        "Job": "parallelism",
    }
)
"""Kinds whose pods are made, and the field of `spec` that says how many; one when it does not."""

MOST = 1000
"""Pods made of one workload; more would only repeat the same answer."""


def pods_of(workload: Mapping[str, Any], way: str, *, namespace: str) -> list[dict[str, Any]]:
    """The pods of a workload as documents, numbered; none for what is not followed."""
    metadata = _map(workload.get("metadata"))
    spec = _map(workload.get("spec"))
    counted = _COUNTS.get(str(workload.get("kind")))
    if counted is None or metadata.get("uid") or metadata.get("ownerReferences"):
        return []
    template: Any = workload
    for name in way.split("."):
        template = _map(template).get(name)
    count = spec.get(counted, 1)
    if not isinstance(template, Mapping) or not isinstance(count, int):
        return []
    base = metadata.get("name") or str(metadata.get("generateName", "pod")).rstrip("-")
    where = metadata.get("namespace") or namespace
    return [_pod(template, f"{base}-{i}", where) for i in range(min(count, MOST))]


def _pod(template: Mapping[str, Any], name: str, namespace: str) -> dict[str, Any]:
    metadata = {**_map(template.get("metadata")), "name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(_map(template.get("spec")))}


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
