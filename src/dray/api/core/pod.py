"""Projection of pods: claims, placement and status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dray.api.classic.resource_claim import ClassicClaimSpec
from dray.api.meta import Int64, ObjectMeta, Projection, Timestamp, always_encode
from dray.values.node_selectors import NodeSelector, NodeSelectorTerm
from dray.values.quantity import Quantity


class ContainerClaim(Projection, frozen=True, forbid_unknown_fields=True):
    """A claim of the pod that a container uses, or one request of it."""

    name: str = ""
    request: str = ""


class ContainerResources(Projection, frozen=True):
    """What a container needs."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class PodResources(Projection, frozen=True):
    """What all containers of a pod need together; replaces their sum, resource by resource."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Container(Projection, frozen=True):
    """One container of a pod."""

    name: str = ""
    restart_policy: str | None = None
    resources: ContainerResources = ContainerResources()


class InlineTemplate(Projection, frozen=True):
    """The classic template inside a pod: labels, annotations and spec of the claim to make."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClassicClaimSpec = ClassicClaimSpec()


class PodResourceClaim(Projection, frozen=True, forbid_unknown_fields=True):
    """One claim of a pod: by name, from a template object, or from an inline template.

    Unlike the rest of a pod it is closed: another way to name a claim must not be taken for none.
    """

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    template: InlineTemplate | None = None


class Toleration(Projection, frozen=True):
    """A taint of a node that the pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class PreferredNode(Projection, frozen=True):
    """Nodes a pod prefers, and how much."""

    weight: Int64 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Projection, frozen=True):
    """Nodes a pod requires, and nodes it prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNode, ...] = ()


class Affinity(Projection, frozen=True):
    """Placement requirements and preferences of a pod."""

    node_affinity: NodeAffinity | None = None


class SchedulingGate(Projection, frozen=True):
    """A reason why a pod may not be scheduled yet."""

    name: str = ""


CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
"""The fields of a pod's spec that hold containers, in the order in which they are checked and listed."""


class PodSpec(Projection, frozen=True):
    """What runs, what it needs, and where it may run."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: PodResources | None = None
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int64 | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    overhead: dict[str, Quantity] = {}
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: dict[str, Any] | None = None
    workload_ref: dict[str, Any] | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: Int64 | None = None

    def iterate_containers(self) -> Iterator[tuple[str, int, Container]]:
        """Yield every container with the field it stands in and its position there."""
        lists = (self.init_containers, self.containers, self.ephemeral_containers)
        for field, containers in zip(CONTAINER_LISTS, lists, strict=True):
            for position, container in enumerate(containers):
                yield field, position, container


class PodResourceClaimStatus(Projection, frozen=True):
    """The claim created for an entry of the pod; no name means that none was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodCondition(Projection, frozen=True):
    """One observed aspect of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Timestamp | None = None


class PodStatus(Projection, frozen=True):
    """Phase, conditions and generated claims of the pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class Pod(Projection, frozen=True):
    """A workload that may use claims."""

    api_version: str = always_encode("v1")
    kind: str = always_encode("Pod")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
