"""Projections of nodes, namespaces, events, quotas and leases."""

from __future__ import annotations

from dray.api.meta import Int64, ObjectMeta, Projection, Timestamp, always_encode
from dray.values.quantity import Quantity


class Taint(Projection, frozen=True):
    """Keeps away pods that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Timestamp | None = None


class NodeSpec(Projection, frozen=True):
    """Whether new pods may be placed on the node, and which."""

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
    """Capacity of the node, the part that pods can get, and conditions."""

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
    """Finalizers of the namespace."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Projection, frozen=True):
    """Whether the namespace is being deleted."""

    phase: str = ""


class Namespace(Projection, frozen=True):
    """A scope for names; its labels grant rights such as admin access."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("Namespace")
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class Event(Projection, frozen=True):
    """A report of something that happened to an object."""

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
    """Limits on what a namespace may request."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("ResourceQuota")
    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class LeaseSpec(Projection, frozen=True):
    """The holder of the lease and its duration."""

    holder_identity: str | None = None
    lease_duration_seconds: Int64 | None = None
    acquire_time: Timestamp | None = None
    renew_time: Timestamp | None = None
    lease_transitions: Int64 | None = None


class Lease(Projection, frozen=True):
    """A lock that expires: used for leader election and heartbeats."""

    api_version: str = always_encode("coordination.k8s.io/v1")
    kind: str = always_encode("Lease")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
