"""The base class of classic controllers (KEP-3063), and the decision what comes next for a claim.

    class Units(ClassicController):
        name = "acme.example.com"

        def allocate(self, need, node, held):
            return ClassicAllocation(nodes=node, attributes={"unit": "7"})

Theory of operation: the driver allocates claims of `cdi.k8s.io`. The author's controller allocates,
deallocates and names unsuitable nodes; the kit handles phases, finalizers, retries and crashes (see
`reconciler`). Allocations are stored in the claims, so that a controller that was killed continues from
there. `decide_action` decides what comes next for one claim.

A call may be repeated: after a crash it is unknown whether `allocate` had succeeded. The kit then calls
`deallocate` first, which must succeed for a claim that has no allocation.

Rules for this file: pure, except for the author's own methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from dray.api.classic import ClassicClaimStatus, ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED, IMMEDIATE, PENDING, REALLOCATE
from dray.api.limits import NODES_PER_CLASSIC_LIST
from dray.driver.base import Parameters
from dray.driver.classic.inventory import ClassicInventory
from dray.driver.devices import Nodes, to_node_selector
from dray.values.node_selectors import NodeSelector, build_node_name_selector

NODE_ATTRIBUTE: Final = "node"
"""The attribute with the node of an allocation that is on one node."""


@dataclass(frozen=True, slots=True)
class ClassicClaimRequest:
    """What a claim requests of its driver; parameters are decoded by the schemas, None without any."""

    namespace: str
    name: str
    uid: str
    class_name: str
    class_parameters: Any = None
    """The parameters that the administrator wrote into the class."""
    parameters: Any = None
    """The parameters that the user wrote into the claim."""
    immediate: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that has, or may have, an allocation of this driver."""

    namespace: str
    name: str
    uid: str
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The attributes of the allocation; empty when it is unknown whether `allocate` succeeded."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def node(self) -> str:
        """The node of an allocation that is on one node, else empty."""
        return self.attributes.get(NODE_ATTRIBUTE, "")


@dataclass(frozen=True, slots=True)
class ClassicAllocation:
    """An allocation: the nodes that reach it (None: all), and attributes for the driver on the node.

    When `nodes` is the name of a node it is also stored as the attribute `node`.
    """

    nodes: Nodes | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    user_limit: int = 1
    """How many pods may use it at the same time; -1 for any number."""

    def to_attributes(self) -> dict[str, str]:
        """Return the attributes for the claim's status."""
        if isinstance(self.nodes, str):
            return {NODE_ATTRIBUTE: self.nodes, **self.attributes}
        return dict(self.attributes)

    def to_node_selector(self) -> NodeSelector | None:
        """Return the node selector for the claim's status."""
        if isinstance(self.nodes, str):
            return build_node_name_selector(self.nodes)
        return to_node_selector(self.nodes)


@dataclass(frozen=True, slots=True)
class NoAllocationAvailable:
    """No allocation is possible now, with the reason; the kit retries after a deallocation, and later."""

    why: str


class ClassicController:
    """Base of controllers. Methods may be plain, which run in a thread one at a time, or `async`."""

    name: str = ""
    """The driver's name, a DNS subdomain: `acme.example.com`."""
    parameters: ClassVar[Parameters] = None
    """The schema of `spec.parameters` of claims; without one they arrive as plain documents."""
    class_parameters: ClassVar[Parameters] = None
    """The schema of `parameters` of classes."""
    inventory: ClassicInventory | None = None
    """What drivers published about their nodes, when the controller runs with `--inventory`."""

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable | Awaitable[ClassicAllocation | NoAllocationAvailable]:
        """Allocate for a claim on the selected node, or anywhere when there is none.

        `held` are all claims that have, or may have, an allocation of this driver.
        """
        return NoAllocationAvailable("this driver has nothing to give")

    def deallocate(self, held: HeldClaim) -> Awaitable[None] | None:
        """Deallocate what a claim has, or may have. A second call must do no harm."""
        return None

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> Collection[str] | Awaitable[Collection[str]]:
        """Return the nodes on which the claim cannot be allocated now."""
        return ()

    def begin(self, held: Sequence[HeldClaim]) -> Awaitable[None] | None:
        """Start with all claims that hold an allocation: any other allocation can be freed. Called first."""
        return None


# --- next action ---


class ClassicClaimAction(Enum):
    """What comes next for a claim."""

    NOTHING = "nothing"
    HOLD = "add the finalizer to an allocated claim"
    ALLOCATE = "allocate"
    ANSWER = "write the unsuitable nodes"
    RELEASE = "deallocate, and remove the finalizer"


def decide_action(claim: ClassicResourceClaim, finalizer: str) -> ClassicClaimAction:
    """Decide what comes next for a claim of this driver."""
    held, phase = finalizer in claim.metadata.finalizers, claim.status.phase or PENDING
    if claim.metadata.deletion_timestamp is not None:
        must_wait = claim.status.reserved_for or (not held and phase == PENDING)
        return ClassicClaimAction.NOTHING if must_wait else ClassicClaimAction.RELEASE
    if phase == REALLOCATE:
        return ClassicClaimAction.RELEASE
    if phase == ALLOCATED:
        return ClassicClaimAction.NOTHING if held else ClassicClaimAction.HOLD
    if claim.spec.allocation_mode == IMMEDIATE or get_selected_node(claim):
        return ClassicClaimAction.ALLOCATE
    if held:
        return ClassicClaimAction.RELEASE  # begun by a process that was killed, and no longer wanted
    return ClassicClaimAction.ANSWER if list_potential_nodes(claim) else ClassicClaimAction.NOTHING


def get_selected_node(claim: ClassicResourceClaim) -> str:
    """Return the node that the scheduler selected; empty when it has not selected one."""
    scheduling = claim.status.scheduling
    return "" if scheduling is None else scheduling.scheduler.selected_node


def list_potential_nodes(claim: ClassicResourceClaim) -> tuple[str, ...]:
    """Return the nodes that the scheduler considers."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return ()
    named = {*scheduling.scheduler.potential_nodes, scheduling.scheduler.selected_node} - {""}
    return tuple(sorted(named))


def to_held_claim(claim: ClassicResourceClaim) -> HeldClaim:
    """Convert a claim to what its controller sees of it."""
    metadata = claim.metadata
    return HeldClaim(metadata.namespace, metadata.name, metadata.uid, claim.status.attributes)


# --- status ---


def build_allocated_status(
    claim: ClassicResourceClaim, driver: str, allocation: ClassicAllocation
) -> ClassicClaimStatus:
    """Build the status of an allocated claim, without the finished negotiation."""
    return replace(
        claim.status,
        phase=ALLOCATED,
        driver_name=driver,
        scheduling=None,
        attributes=allocation.to_attributes(),
        available_on_nodes=allocation.to_node_selector(),
        user_limit=allocation.user_limit,
    )


def build_deallocated_status(driver: str) -> ClassicClaimStatus:
    """Build the status of a deallocated claim."""
    return ClassicClaimStatus(phase=PENDING, driver_name=driver, user_limit=1)


def build_unsuitable_nodes_status(
    claim: ClassicResourceClaim, unsuitable: Collection[str]
) -> ClassicClaimStatus:
    """Build the status with those potential nodes that are unsuitable."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return claim.status
    nodes = tuple(name for name in list_potential_nodes(claim) if name in unsuitable)[:NODES_PER_CLASSIC_LIST]
    return replace(
        claim.status,
        scheduling=replace(scheduling, driver=replace(scheduling.driver, unsuitable_nodes=nodes)),
    )
