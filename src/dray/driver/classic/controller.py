"""The controller of a classic driver (KEP-3063) as its author sees it, and what is due for a claim.

    class Units(ClassicController):
        name = "acme.example.com"

        def allocate(self, need, node, held):
            return Allocated(nodes=node, attributes={"unit": "7"})

Theory of operation: claims of `cdi.k8s.io` are allocated by their driver. The author says what an allocation
is, how it is undone, and which nodes will not do; phases, finalizers, retries and crashes are the kit's (see
`negotiating`). What is allocated stands in the claims, so that a controller that was killed goes on where the
claims are. `decide_action` says for one claim, as it is, what comes next.

A call may be repeated: after a crash nobody knows whether `allocate` had happened. The kit then calls
`deallocate` first; it must do nothing for a claim that has nothing, and must not fail because of it.

Rules for this file: pure, but for the author's own methods.
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
"""The attribute of an allocation that says where it is, when it is on one node."""


@dataclass(frozen=True, slots=True)
class ClassicClaimRequest:
    """What a claim asks of its driver; parameters as the schemas decoded them, None when there are none."""

    namespace: str
    name: str
    uid: str
    class_name: str
    class_parameters: Any = None
    """What the administrator wrote into the class."""
    parameters: Any = None
    """What the user wrote into the claim."""
    immediate: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that has, or may have, something of this driver."""

    namespace: str
    name: str
    uid: str
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What `Allocated.attributes` was; empty when the outcome of `allocate` is unknown."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def node(self) -> str:
        """Where it is, when it is on one node."""
        return self.attributes.get(NODE_ATTRIBUTE, "")


@dataclass(frozen=True, slots=True)
class ClassicAllocation:
    """An allocation: the nodes that reach it (None: all), and what the node part should know of it.

    When `nodes` is the name of a node it is also kept as the attribute `node`.
    """

    nodes: Nodes | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    user_limit: int = 1
    """How many pods may use it at the same time; -1 for any number."""

    def to_attributes(self) -> dict[str, str]:
        """The attributes as they are written."""
        return (
            {NODE_ATTRIBUTE: self.nodes, **self.attributes}
            if isinstance(self.nodes, str)
            else dict(self.attributes)
        )

    def to_node_selector(self) -> NodeSelector | None:
        """The nodes as the claim says them."""
        return (
            build_node_name_selector(self.nodes)
            if isinstance(self.nodes, str)
            else to_node_selector(self.nodes)
        )


@dataclass(frozen=True, slots=True)
class NoAllocationAvailable:
    """There is nothing for the claim now, and why; asked again when something is given back, and later."""

    why: str


class ClassicController:
    """Base of controllers. Methods may be plain, and run in a thread one at a time, or `async`."""

    name: str = ""
    """The driver's name, a DNS subdomain: `acme.example.com`."""
    parameters: ClassVar[Parameters] = None
    """What `spec.parameters` of claims must look like; without a schema they arrive as plain documents."""
    class_parameters: ClassVar[Parameters] = None
    """The same for `parameters` of classes."""
    inventory: ClassicInventory | None = None
    """What the node parts told of their nodes, where that was asked for."""

    def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable | Awaitable[ClassicAllocation | NoAllocationAvailable]:
        """Allocate for a claim on the node that was selected, or anywhere when there is none.

        `held` is everything this driver has given to claims, whatever is on its way included.
        """
        return NoAllocationAvailable("this driver has nothing to give")

    def deallocate(self, held: HeldClaim) -> Awaitable[None] | None:
        """Take back what a claim has, or may have. Doing it twice must do no harm."""
        return None

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> Collection[str] | Awaitable[Collection[str]]:
        """Those of the nodes that will not do for a claim now."""
        return ()

    def begin(self, held: Sequence[HeldClaim]) -> Awaitable[None] | None:
        """Called before anything else, with all that claims hold: what else is there can be taken back."""
        return None


# --- what is due ---


class ClassicClaimAction(Enum):
    """What comes next for a claim."""

    NOTHING = "nothing"
    HOLD = "it is allocated and must not vanish unseen"
    ALLOCATE = "allocate"
    ANSWER = "say which nodes will not do"
    RELEASE = "take back, and let go"


def decide_action(claim: ClassicResourceClaim, finalizer: str) -> ClassicClaimAction:
    """What comes next for a claim of this driver."""
    held, phase = finalizer in claim.metadata.finalizers, claim.status.phase or PENDING
    if claim.metadata.deletion_timestamp is not None:
        gone = claim.status.reserved_for or (not held and phase == PENDING)
        return ClassicClaimAction.NOTHING if gone else ClassicClaimAction.RELEASE
    if phase == REALLOCATE:
        return ClassicClaimAction.RELEASE
    if phase == ALLOCATED:
        return ClassicClaimAction.NOTHING if held else ClassicClaimAction.HOLD
    if claim.spec.allocation_mode == IMMEDIATE or get_selected_node(claim):
        return ClassicClaimAction.ALLOCATE
    if held:
        return ClassicClaimAction.RELEASE  # begun by somebody who was killed, and not wanted any more
    return ClassicClaimAction.ANSWER if list_potential_nodes(claim) else ClassicClaimAction.NOTHING


def get_selected_node(claim: ClassicResourceClaim) -> str:
    """The node the scheduler would like; empty when it has not chosen."""
    scheduling = claim.status.scheduling
    return "" if scheduling is None else scheduling.scheduler.selected_node


def list_potential_nodes(claim: ClassicResourceClaim) -> tuple[str, ...]:
    """The nodes the scheduler asks about."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return ()
    named = {*scheduling.scheduler.potential_nodes, scheduling.scheduler.selected_node} - {""}
    return tuple(sorted(named))


def to_held_claim(claim: ClassicResourceClaim) -> HeldClaim:
    """What a claim holds."""
    metadata = claim.metadata
    return HeldClaim(metadata.namespace, metadata.name, metadata.uid, claim.status.attributes)


# --- the status that says it ---


def build_allocated_status(
    claim: ClassicResourceClaim, driver: str, allocation: ClassicAllocation
) -> ClassicClaimStatus:
    """The status of a claim that was allocated; the negotiation is over."""
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
    """The status of a claim whose resource was taken back."""
    return ClassicClaimStatus(phase=PENDING, driver_name=driver, user_limit=1)


def build_unsuitable_nodes_status(
    claim: ClassicResourceClaim, unsuitable: Collection[str]
) -> ClassicClaimStatus:
    """The status with the nodes that will not do, of those that were asked about."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return claim.status
    told = tuple(name for name in list_potential_nodes(claim) if name in unsuitable)[:NODES_PER_CLASSIC_LIST]
    return replace(
        claim.status,
        scheduling=replace(scheduling, driver=replace(scheduling.driver, unsuitable_nodes=told)),
    )
