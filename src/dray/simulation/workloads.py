"""Pods of workloads: a Deployment of three replicas means three pods.

Only workloads as people write them are expanded. One that comes from a cluster (it has a uid) has its pods
there already, and the number of pods of a DaemonSet or a CronJob is not in its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_REPLICA_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "Deployment": "replicas",
        "ReplicaSet": "replicas",
        "StatefulSet": "replicas",
        "ReplicationController": "replicas",
        "Job": "parallelism",
    }
)
"""Kinds whose pods are created, and the field of `spec` with their number; one by default."""

MAX_PODS = 1000
"""Pods created for one workload; more would only repeat the same answer."""


def build_pods(workload: Mapping[str, Any], template_path: str, *, namespace: str) -> list[dict[str, Any]]:
    """Build the pods of a workload as numbered documents; none for other kinds."""
    metadata = _to_mapping(workload.get("metadata"))
    spec = _to_mapping(workload.get("spec"))
    counted = _REPLICA_FIELDS.get(str(workload.get("kind")))
    if counted is None or metadata.get("uid") or metadata.get("ownerReferences"):
        return []
    template: Any = workload
    for name in template_path.split("."):
        template = _to_mapping(template).get(name)
    count = spec.get(counted, 1)
    if not isinstance(template, Mapping) or not isinstance(count, int):
        return []
    base = metadata.get("name") or str(metadata.get("generateName", "pod")).rstrip("-")
    where = metadata.get("namespace") or namespace
    return [_build_pod(template, f"{base}-{i}", where) for i in range(min(count, MAX_PODS))]


def _build_pod(template: Mapping[str, Any], name: str, namespace: str) -> dict[str, Any]:
    metadata = {**_to_mapping(template.get("metadata")), "name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": dict(_to_mapping(template.get("spec"))),
    }


def _to_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
