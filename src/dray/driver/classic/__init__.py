"""Classic DRA (KEP-3063): the controller that an author writes, and the service that runs it.

The package holds the base class of controllers, the decision what comes next for a claim, the reconciler,
the leader-elected controller service and the inventory of nodes in config maps. It must not contain the node
part of a driver or anything about structured allocation. `dray.driver` and `dray.driver.service` import it;
authors import the names below from here or from `dray.driver`.

`Allocated`, `Held`, `Need` and `Unavailable` are the older names of `ClassicAllocation`, `HeldClaim`,
`ClassicClaimRequest` and `NoAllocationAvailable`.
"""

from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)

Allocated = ClassicAllocation
Held = HeldClaim
Need = ClassicClaimRequest
Unavailable = NoAllocationAvailable

__all__ = [
    "Allocated",
    "ClassicAllocation",
    "ClassicClaimRequest",
    "ClassicController",
    "Held",
    "HeldClaim",
    "Need",
    "NoAllocationAvailable",
    "Unavailable",
]
