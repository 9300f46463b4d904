"""Open projections of core objects: pods, nodes, namespaces, events, quotas, leases.

A projection holds only what dray reads; the object itself stays a document with every field it came
with, and is changed by patch. Nothing here is ever written back.
"""

from dray.api.core.bystander import Bystander, ClusterBystander, ClusterGrant, Grant
from dray.api.core.cluster import (
    Event,
    Lease,
    LeaseSpec,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    ResourceQuota,
)
from dray.api.core.pod import (
    Container,
    ContainerClaim,
    ContainerResources,
    InlineTemplate,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
)

__all__ = [
    "Bystander",
    "ClusterBystander",
    "ClusterGrant",
    "Container",
    "ContainerClaim",
    "ContainerResources",
    "Event",
    "Grant",
    "InlineTemplate",
    "Lease",
    "LeaseSpec",
    "Namespace",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "Pod",
    "PodResourceClaim",
    "PodResourceClaimStatus",
    "PodSpec",
    "PodStatus",
    "ResourceQuota",
]
