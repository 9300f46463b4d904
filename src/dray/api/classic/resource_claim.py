"""A classic claim and the negotiation in its status."""

from __future__ import annotations

import msgspec

from dray.api.meta import NO_OPAQUE, Int64, ObjectMeta, OwnerRef, Value, Whole, always, settle
from dray.values.node_selectors import NodeSelector

IMMEDIATE = "Immediate"
DELAYED = "Delayed"

PENDING = "Pending"
ALLOCATED = "Allocated"
REALLOCATE = "Reallocate"


class ClassicClaimSpec(Value, frozen=True):
    """Which class, with which parameters, allocated when; it never changes."""

    resource_class_name: str = ""
    parameters: msgspec.Raw = NO_OPAQUE
    allocation_mode: str = ""

    def __post_init__(self) -> None:
        settle(self, "parameters")


class SchedulerSchedulingStatus(Value, frozen=True):
    """What the scheduler offers: the node it chose, the nodes it considers."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()


class DriverSchedulingStatus(Value, frozen=True):
    """What the driver answers: where the resource cannot be, and where it can."""

    unsuitable_nodes: tuple[str, ...] = ()
    available_on_nodes: NodeSelector | None = None


class SchedulingStatus(Whole, frozen=True):
    """The negotiation, while it lasts."""

    scheduler: SchedulerSchedulingStatus = SchedulerSchedulingStatus()
    driver: DriverSchedulingStatus = DriverSchedulingStatus()


class ClassicClaimStatus(Value, frozen=True):
    """Phase, negotiation, what the driver returned, who uses it."""

    phase: str = ""
    driver_name: str = ""
    scheduling: SchedulingStatus | None = None
    attributes: dict[str, str] = {}
    available_on_nodes: NodeSelector | None = None
    user_limit: Int64 | None = None
    reserved_for: tuple[OwnerRef, ...] = ()

    def reachable(self) -> NodeSelector | None:
        """The nodes where the resource can be used; None is everywhere.

        The specification keeps this inside `scheduling`, which the driver clears once it has allocated;
        we write `status.availableOnNodes` and read both places.
        """
        if self.available_on_nodes is not None or self.scheduling is None:
            return self.available_on_nodes
        return self.scheduling.driver.available_on_nodes


class ClassicClaim(Whole, frozen=True):
    """A claim that its driver's controller allocates."""

    api_version: str = always("cdi.k8s.io/v1alpha1")
    kind: str = always("ResourceClaim")
    metadata: ObjectMeta = ObjectMeta()
    spec: ClassicClaimSpec = ClassicClaimSpec()
    status: ClassicClaimStatus = ClassicClaimStatus()
