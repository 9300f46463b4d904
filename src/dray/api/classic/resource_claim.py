"""Classic claim, with the negotiation in its status."""

from __future__ import annotations

import msgspec

from dray.api.meta import (
    NO_OPAQUE,
    ApiStruct,
    CompositeApiStruct,
    Int64,
    ObjectMeta,
    OwnerRef,
    always_encode,
    normalize_opaque,
)
from dray.values.node_selectors import NodeSelector

IMMEDIATE = "Immediate"
DELAYED = "Delayed"

PENDING = "Pending"
ALLOCATED = "Allocated"
REALLOCATE = "Reallocate"


class ClassicClaimSpec(ApiStruct, frozen=True):
    """The class, the parameters and the time of allocation; it never changes."""

    resource_class_name: str = ""
    parameters: msgspec.Raw = NO_OPAQUE
    allocation_mode: str = ""

    def __post_init__(self) -> None:
        normalize_opaque(self, "parameters")


class SchedulerSchedulingStatus(ApiStruct, frozen=True):
    """The scheduler's part: the node it selected, the nodes it considers."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()


class DriverSchedulingStatus(ApiStruct, frozen=True):
    """The driver's part: nodes where the resource cannot be provided, and nodes where it can."""

    unsuitable_nodes: tuple[str, ...] = ()
    available_on_nodes: NodeSelector | None = None


class SchedulingStatus(CompositeApiStruct, frozen=True):
    """The negotiation between scheduler and driver, while it lasts."""

    scheduler: SchedulerSchedulingStatus = SchedulerSchedulingStatus()
    driver: DriverSchedulingStatus = DriverSchedulingStatus()


class ClassicClaimStatus(ApiStruct, frozen=True):
    """Phase, negotiation, what the driver returned, and the users."""

    phase: str = ""
    driver_name: str = ""
    scheduling: SchedulingStatus | None = None
    attributes: dict[str, str] = {}
    available_on_nodes: NodeSelector | None = None
    user_limit: Int64 | None = None
    reserved_for: tuple[OwnerRef, ...] = ()

    def get_reachable_nodes(self) -> NodeSelector | None:
        """Return the nodes where the resource can be used; None means everywhere.

        The specification keeps this inside `scheduling`, which the driver clears once it has allocated; dray
        writes `status.availableOnNodes` and reads both fields.
        """
        if self.available_on_nodes is not None or self.scheduling is None:
            return self.available_on_nodes
        return self.scheduling.driver.available_on_nodes


class ClassicResourceClaim(CompositeApiStruct, frozen=True):
    """A claim that its driver's controller allocates."""

    api_version: str = always_encode("cdi.k8s.io/v1alpha1")
    kind: str = always_encode("ResourceClaim")
    metadata: ObjectMeta = ObjectMeta()
    spec: ClassicClaimSpec = ClassicClaimSpec()
    status: ClassicClaimStatus = ClassicClaimStatus()
