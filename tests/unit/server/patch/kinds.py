"""The kinds that these tests use."""

from __future__ import annotations

from dray.api.kinds import Kind, find_kind


def _kind(group: str, name: str) -> Kind:
    found = find_kind(group, name)
    assert found is not None
    return found


POD = _kind("", "Pod")
NODE = _kind("", "Node")
SERVICE = _kind("", "Service")
CONFIG = _kind("", "ConfigMap")
DEPLOYMENT = _kind("apps", "Deployment")
BUDGET = _kind("policy", "PodDisruptionBudget")
CLAIM = _kind("resource.k8s.io", "ResourceClaim")
SLICE = _kind("resource.k8s.io", "ResourceSlice")
