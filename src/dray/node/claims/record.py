"""What the agent remembers of claims: who uses them here, and what drivers were asked and have answered.

Theory of operation: a claim is held from the moment its first pod is admitted until every driver has let go
of it and nothing in the API says any more that this node has it. For each driver there is a part. A part that
was never asked for (`WANTED`) can be forgotten; any other may have devices in its hands and is unprepared
before it is forgotten, however the asking ended. A claim without users is on its way out and takes no new
ones: whoever comes then waits until it is gone and begins anew.

Rules for this file: values only. What may happen to them is in `plan`, where they are kept in `checkpoint`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from dray.node.plugins.driver_interface import ClaimRef, PreparedDevice


class NodeClaimStage(StrEnum):
    """How far a driver's part of a claim, or the claim as a whole, has come."""

    WANTED = "wanted"
    """Not asked for yet: the driver knows nothing of it."""
    PREPARING = "preparing"
    """Asked for; the driver may have done all, some or nothing of it."""
    PREPARED = "prepared"
    """The driver said so, in this boot of the machine."""
    UNPREPARING = "unpreparing"
    """Nobody uses it any more; the driver is asked to let go until it says that it has."""
    LETTING_GO = "letting go"
    """All drivers have let go; the API still says that this node has it."""


class _CheckpointStruct(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Base of what stands in a checkpoint."""


class RecordedDevice(_CheckpointStruct, frozen=True):
    """A device, or a share of one, that an allocation gives to a request."""

    pool: str = ""
    device: str = ""
    request: str = ""
    share_id: str | None = None
    admin: bool = False


class DriverPart(_CheckpointStruct, frozen=True):
    """What one driver has of a claim."""

    driver: str = ""
    state: NodeClaimStage = NodeClaimStage.WANTED
    wanted: tuple[RecordedDevice, ...] = ()
    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""
    """What the driver said the last time, when that was not yes."""


class ClaimUser(_CheckpointStruct, frozen=True):
    """A pod of this node, and by which of its entries it uses a claim."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    entries: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RecordedClaim(_CheckpointStruct, frozen=True):
    """A claim that drivers of this node have, may have, or shall have in their hands."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    classic: bool = False
    users: tuple[ClaimUser, ...] = ()
    leaving: tuple[ClaimUser, ...] = ()
    """Pods that were the last to use it and must not be gone before it is given back."""
    parts: tuple[DriverPart, ...] = ()
    """One for each driver that has not let go."""
    announced: bool = False
    """Whether a `Preparation` of it may stand in the API."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def pod_uids(self) -> tuple[str, ...]:
        """The uids of the pods that use it."""
        return tuple(user.uid for user in self.users)

    @property
    def state(self) -> NodeClaimStage:
        """How far the claim has come as a whole."""
        if not self.users:
            return NodeClaimStage.UNPREPARING if self.parts else NodeClaimStage.LETTING_GO
        states = {part.state for part in self.parts}
        return NodeClaimStage.PREPARED if states <= {NodeClaimStage.PREPARED} else NodeClaimStage.PREPARING

    @property
    def ref(self) -> ClaimRef:
        """The claim as drivers are told of it."""
        return ClaimRef(self.namespace, self.name, self.uid)

    def find_part(self, driver: str) -> DriverPart | None:
        """What a driver has of it."""
        return next((part for part in self.parts if part.driver == driver), None)


class ClaimsRecord(_CheckpointStruct, frozen=True):
    """All claims of a node, and the boot of the machine in which they were prepared."""

    boot_id: str = ""
    claims: tuple[RecordedClaim, ...] = ()

    def find_claim(self, uid: str) -> RecordedClaim | None:
        return next((held for held in self.claims if held.uid == uid), None)

    def find_used_by(self, pod_uid: str) -> Iterator[RecordedClaim]:
        """The claims a pod uses."""
        return (held for held in self.claims if pod_uid in held.pod_uids)

    def find_released_by(self, pod_uid: str) -> Iterator[RecordedClaim]:
        """The claims that are given back because a pod was the last to use them."""
        return (held for held in self.claims if any(user.uid == pod_uid for user in held.leaving))

    def collect_users(self) -> dict[str, ClaimUser]:
        """All pods that use claims or wait for one to be given back, by uid."""
        return {user.uid: user for held in self.claims for user in (*held.users, *held.leaving)}

    def count_by_stage(self) -> Counter[NodeClaimStage]:
        """How many claims are how far."""
        return Counter(held.state for held in self.claims)

    def count_by_driver(self) -> Counter[str]:
        """How many claims pods use, by driver."""
        return Counter(part.driver for held in self.claims if held.users for part in held.parts)

    def put_claim(self, held: RecordedClaim) -> ClaimsRecord:
        """The record with a claim as it is now; the order of claims does not change."""
        if self.find_claim(held.uid) is None:
            return msgspec.structs.replace(self, claims=(*self.claims, held))
        claims = tuple(held if each.uid == held.uid else each for each in self.claims)
        return msgspec.structs.replace(self, claims=claims)

    def remove_claim(self, uid: str) -> ClaimsRecord:
        """The record without a claim."""
        return msgspec.structs.replace(self, claims=tuple(each for each in self.claims if each.uid != uid))


EMPTY_RECORD: Final = ClaimsRecord()
