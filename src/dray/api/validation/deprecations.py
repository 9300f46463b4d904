"""Deprecations of Kubernetes 1.37: kinds and versions that end, and labels and annotations that have ended.

The tables are facts about Kubernetes. Clients of a deprecated kind get a warning with every response; who
uses a deprecated label or annotation gets one when the object is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from dray.api.kinds import Kind


class Deprecation(NamedTuple):
    """The releases in which a kind is deprecated and gone, and what replaces it."""

    deprecated_in: str
    removed_in: str = ""
    replacement: str = ""


_V1BETA1: Final = Deprecation("1.35", "1.38")
_V1BETA2: Final = Deprecation("1.36", "1.39")

DEPRECATED_KINDS: Mapping[tuple[str, str], Deprecation] = MappingProxyType(
    {
        ("v1", "ComponentStatus"): Deprecation("1.19"),
        ("v1", "Endpoints"): Deprecation("1.33", replacement="discovery.k8s.io/v1 EndpointSlice"),
        ("coordination.k8s.io/v1beta1", "LeaseCandidate"): Deprecation("1.36", "1.39"),
        ("resource.k8s.io/v1beta1", "DeviceClass"): _V1BETA1,
        ("resource.k8s.io/v1beta1", "ResourceClaim"): _V1BETA1,
        ("resource.k8s.io/v1beta1", "ResourceClaimTemplate"): _V1BETA1,
        ("resource.k8s.io/v1beta1", "ResourceSlice"): _V1BETA1,
        ("resource.k8s.io/v1beta2", "DeviceClass"): _V1BETA2,
        ("resource.k8s.io/v1beta2", "ResourceClaim"): _V1BETA2,
        ("resource.k8s.io/v1beta2", "ResourceClaimTemplate"): _V1BETA2,
        ("resource.k8s.io/v1beta2", "ResourceSlice"): _V1BETA2,
    }
)
"""Deprecated kinds, by `apiVersion` and kind."""


@lru_cache(maxsize=512)
def find_deprecation_warning(kind: Kind, version: str) -> str | None:
    """Return the warning for clients of a kind in a version, if it is deprecated."""
    api_version = kind.format_api_version(version)
    found = DEPRECATED_KINDS.get((api_version, kind.name))
    if found is None:
        return None
    text = f"{api_version} {kind.name} is deprecated in v{found.deprecated_in}+"
    if found.removed_in:
        text += f", unavailable in v{found.removed_in}+"
    return f"{text}; use {found.replacement}" if found.replacement else text


NODE_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "app.kubernetes.io/created-by": "deprecated since v1.9",
        "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
        "beta.kubernetes.io/instance-type": (
            'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
        ),
        "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
        "failure-domain.beta.kubernetes.io/region": (
            'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
        ),
        "failure-domain.beta.kubernetes.io/zone": (
            'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
        ),
        "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
        "scheduler.alpha.kubernetes.io/preferAvoidPods": (
            "deprecated since v1.22; use Taints and Tolerations instead"
        ),
    }
)
"""Labels of nodes that selectors should not name."""

POD_ANNOTATIONS: Mapping[str, str] = MappingProxyType(
    {
        "scheduler.alpha.kubernetes.io/critical-pod": (
            'non-functional in v1.16+; use the "priorityClassName" field instead'
        ),
        "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
        "security.alpha.kubernetes.io/unsafe-sysctls": (
            'non-functional in v1.11+; use the "sysctls" field instead'
        ),
    }
)
"""Annotations of pods that no longer do anything."""

VOLUME_SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "cephfs": "deprecated in v1.28, non-functional in v1.31+",
        "flocker": "deprecated in v1.22, non-functional in v1.25+",
        "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
        "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
        "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
        "quobyte": "deprecated in v1.22, non-functional in v1.25+",
        "rbd": "deprecated in v1.28, non-functional in v1.31+",
        "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
        "storageos": "deprecated in v1.22, non-functional in v1.25+",
    }
)
"""Sources of volumes that no longer work, by their field."""
