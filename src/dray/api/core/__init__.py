"""Open projections of core objects: pods, nodes, namespaces, events, quotas, leases.

A projection holds only the fields that dray reads; the object itself stays a document with every field it
came with, and is changed by patch. No projection is ever written back. Everything above `dray.api` may import
this package.
"""

from dray.api.core.cluster import (
    Event,
    Lease,
    LeaseSpec,
    Namespace,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ResourceQuota,
    Taint,
)
from dray.api.core.opaque import (
    OpaqueClusterObject,
    OpaqueObject,
    PathNamedClusterObject,
    RbacClusterObject,
    RbacObject,
)
from dray.api.core.pod import (
    Affinity,
    Container,
    ContainerClaim,
    ContainerResources,
    InlineTemplate,
    NodeAffinity,
    Pod,
    PodCondition,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodResources,
    PodSpec,
    PodStatus,
    PreferredNode,
    SchedulingGate,
    Toleration,
)

__all__ = [
    "Affinity",
    "Container",
    "ContainerClaim",
    "ContainerResources",
    "Event",
    "InlineTemplate",
    "Lease",
    "LeaseSpec",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "OpaqueClusterObject",
    "OpaqueObject",
    "PathNamedClusterObject",
    "Pod",
    "PodCondition",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodResources",
    "PodSpec",
    "PodStatus",
    "PreferredNode",
    "RbacClusterObject",
    "RbacObject",
    "ResourceQuota",
    "SchedulingGate",
    "Taint",
    "Toleration",
]
