"""What surrounds pods: nodes, namespaces, events, quotas, leases."""

from __future__ import annotations

from dray.api.meta import Int64, ObjectMeta, Projection, Timestamp, always_encode
from dray.values.quantity import Quantity


class Taint(Projection, frozen=True):
    """What keeps pods away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Timestamp | None = None


class NodeSpec(Projection, frozen=True):
    """Whether new pods may come, and which."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Projection, frozen=True):
    """One observed aspect of a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Timestamp | None = None


class NodeStatus(Projection, frozen=True):
    """What the node has, what of it pods can get, and how it is."""

    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[NodeCondition, ...] = ()


class Node(Projection, frozen=True):
    """A machine that runs pods."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("Node")
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceSpec(Projection, frozen=True):
    """Who must agree before the namespace goes."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Projection, frozen=True):
    """Whether it is there to stay."""

    phase: str = ""


class Namespace(Projection, frozen=True):
    """A room for names; its labels grant rights such as admin access."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("Namespace")
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class Event(Projection, frozen=True):
    """Something worth telling about an object."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("Event")
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""


class QuotaSpec(Projection, frozen=True):
    """The limits."""

    hard: dict[str, Quantity] = {}


class QuotaStatus(Projection, frozen=True):
    """The limits in force and what is used."""

    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ResourceQuota(Projection, frozen=True):
    """How much a namespace may ask for."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("ResourceQuota")
    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class LeaseSpec(Projection, frozen=True):
    """Who holds it and until when."""

    holder_identity: str | None = None
    lease_duration_seconds: Int64 | None = None
    acquire_time: Timestamp | None = None
    renew_time: Timestamp | None = None
    lease_transitions: Int64 | None = None


class Lease(Projection, frozen=True):
    """A lock with an end: leader election and heartbeats."""

    api_version: str = always_encode("coordination.k8s.io/v1")
    kind: str = always_encode("Lease")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
