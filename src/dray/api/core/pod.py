"""A pod, as far as its claims and its place are concerned."""

from __future__ import annotations

from dray.api.classic.resourceclaim import ClassicClaimSpec
from dray.api.meta import Int64, ObjectMeta, View, always
from dray.values.quantity import Quantity


class ContainerClaim(View, frozen=True):
    """A claim of the pod that a container uses, or one request of it."""

    name: str = ""
    request: str = ""


class ContainerResources(View, frozen=True):
    """What a container needs."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class Container(View, frozen=True):
    """One container of a pod."""

    name: str = ""
    restart_policy: str | None = None
    resources: ContainerResources = ContainerResources()


class InlineTemplate(View, frozen=True):
    """The classic template inside a pod: labels, annotations and spec of the claim to make."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClassicClaimSpec = ClassicClaimSpec()


class PodResourceClaim(View, frozen=True):
    """One claim of a pod: by name, from a template object, or from an inline template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    template: InlineTemplate | None = None


class PodSpec(View, frozen=True):
    """What runs, what it needs, where it may run."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int64 | None = None
    termination_grace_period_seconds: Int64 | None = None


class PodResourceClaimStatus(View, frozen=True):
    """Which claim was made for an entry of the pod; no name means none was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(View, frozen=True):
    """How far the pod has come."""

    phase: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class Pod(View, frozen=True):
    """A workload that may hold claims."""

    api_version: str = always("v1")
    kind: str = always("Pod")
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
