"""The controller of a classic driver (KEP-3063) as its author sees it, and what is due for a claim.

    class Units(ClassicController):
        name = "acme.example.com"

        def allocate(self, need, node, held):
            return Allocated(nodes=node, attributes={"unit": "7"})

Theory of operation: claims of `cdi.k8s.io` are allocated by their driver. The author says what an allocation
is, how it is undone, and which nodes will not do; phases, finalizers, retries and crashes are the kit's (see
`negotiating`). What is allocated stands in the claims, so that a controller that was killed goes on where the
claims are. `due` says for one claim, as it is, what comes next.

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

from dray.api.classic import ClassicClaim, ClassicClaimStatus
from dray.api.classic.resource_claim import ALLOCATED, IMMEDIATE, PENDING, REALLOCATE
from dray.api.validation.limits import NODES_PER_CLASSIC_LIST
from dray.driver.base import Parameters
from dray.driver.classic.inventory import Inventory
from dray.driver.devices import Nodes, selector_of
from dray.values.node_selectors import NodeSelector, for_node

NODE: Final = "node"
"""The attribute of an allocation that says where it is, when it is on one node."""


@dataclass(frozen=True, slots=True)
class Need:
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
class Held:
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
        return self.attributes.get(NODE, "")


@dataclass(frozen=True, slots=True)
class Allocated:
    """An allocation: the nodes that reach it (None: all), and what the node part should know of it.

    When `nodes` is the name of a node it is also kept as the attribute `node`.
    """

    nodes: Nodes | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    user_limit: int = 1
    """How many pods may use it at the same time; -1 for any number."""

    def kept(self) -> dict[str, str]:
        """The attributes as they are written."""
        return {NODE: self.nodes, **self.attributes} if isinstance(self.nodes, str) else dict(self.attributes)

    def reachable(self) -> NodeSelector | None:
        """The nodes as the claim says them."""
        return for_node(self.nodes) if isinstance(self.nodes, str) else selector_of(self.nodes)


@dataclass(frozen=True, slots=True)
class Unavailable:
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
    inventory: Inventory | None = None
    """What the node parts told of their nodes, where that was asked for."""

    def allocate(
        self, need: Need, node: str | None, held: Sequence[Held]
    ) -> Allocated | Unavailable | Awaitable[Allocated | Unavailable]:
        """Allocate for a claim on the node that was selected, or anywhere when there is none.

        `held` is everything this driver has given to claims, whatever is on its way included.
        """
        return Unavailable("this driver has nothing to give")

    def deallocate(self, held: Held) -> Awaitable[None] | None:
        """Take back what a claim has, or may have. Doing it twice must do no harm."""
        return None

    def unsuitable_nodes(
        self, need: Need, nodes: Sequence[str], held: Sequence[Held]
    ) -> Collection[str] | Awaitable[Collection[str]]:
        """Those of the nodes that will not do for a claim now."""
        return ()

    def begin(self, held: Sequence[Held]) -> Awaitable[None] | None:
        """Called before anything else, with all that claims hold: what else is there can be taken back."""
        return None


# --- what is due ---


class Due(Enum):
    """What comes next for a claim."""

    NOTHING = "nothing"
    HOLD = "it is allocated and must not vanish unseen"
    ALLOCATE = "allocate"
    ANSWER = "say which nodes will not do"
    RELEASE = "take back, and let go"


def due(claim: ClassicClaim, finalizer: str) -> Due:
    """What comes next for a claim of this driver."""
    held, phase = finalizer in claim.metadata.finalizers, claim.status.phase or PENDING
    if claim.metadata.deletion_timestamp is not None:
        gone = claim.status.reserved_for or (not held and phase == PENDING)
        return Due.NOTHING if gone else Due.RELEASE
    if phase == REALLOCATE:
        return Due.RELEASE
    if phase == ALLOCATED:
        return Due.NOTHING if held else Due.HOLD
    if claim.spec.allocation_mode == IMMEDIATE or selected_node(claim):
        return Due.ALLOCATE
    if held:
        return Due.RELEASE  # begun by somebody who was killed, and not wanted any more
    return Due.ANSWER if asked_nodes(claim) else Due.NOTHING


def selected_node(claim: ClassicClaim) -> str:
    """The node the scheduler would like; empty when it has not chosen."""
    scheduling = claim.status.scheduling
    return "" if scheduling is None else scheduling.scheduler.selected_node


def asked_nodes(claim: ClassicClaim) -> tuple[str, ...]:
    """The nodes the scheduler asks about."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return ()
    named = {*scheduling.scheduler.potential_nodes, scheduling.scheduler.selected_node} - {""}
    return tuple(sorted(named))


def held_by(claim: ClassicClaim) -> Held:
    """What a claim holds."""
    metadata = claim.metadata
    return Held(metadata.namespace, metadata.name, metadata.uid, claim.status.attributes)


# --- the status that says it ---


def allocated(claim: ClassicClaim, driver: str, made: Allocated) -> ClassicClaimStatus:
    """The status of a claim that was allocated; the negotiation is over."""
    return replace(
        claim.status,
        phase=ALLOCATED,
        driver_name=driver,
        scheduling=None,
        attributes=made.kept(),
        available_on_nodes=made.reachable(),
        user_limit=made.user_limit,
    )


def freed(driver: str) -> ClassicClaimStatus:
    """The status of a claim whose resource was taken back."""
    return ClassicClaimStatus(phase=PENDING, driver_name=driver, user_limit=1)


def answered(claim: ClassicClaim, unsuitable: Collection[str]) -> ClassicClaimStatus:
    """The status with the nodes that will not do, of those that were asked about."""
    scheduling = claim.status.scheduling
    if scheduling is None:
        return claim.status
    told = tuple(name for name in asked_nodes(claim) if name in unsuitable)[:NODES_PER_CLASSIC_LIST]
    return replace(
        claim.status,
        scheduling=replace(scheduling, driver=replace(scheduling.driver, unsuitable_nodes=told)),
    )
