"""The agent's record of claims: the pods that use them here, and the state of each driver's part.

Theory of operation: the record holds a claim from the admission of its first pod until every driver has
unprepared it and its Preparation is deleted. It has one part per driver. A part whose driver was never called
(`WANTED`) can be forgotten; any other may occupy devices and is unprepared before it is forgotten, however
the call ended. A claim without users is being released and accepts no new ones: a later pod waits until the
claim is gone and starts from the beginning.

Rules for this file: values only. `plan` has their transitions, `checkpoint` their file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import takewhile
from typing import Final

import msgspec

from dray.node.plugins.driver_interface import ClaimRef, PreparedDevice


class NodeClaimStage(StrEnum):
    """The stage of a driver's part of a claim, or of the claim as a whole."""

    WANTED = "wanted"
    """The driver was not called yet."""
    PREPARING = "preparing"
    """The driver was called; it may have done all, some or nothing of the work."""
    PREPARED = "prepared"
    """The driver has prepared it in this boot of the machine."""
    UNPREPARING = "unpreparing"
    """No pod uses it any more; the driver is called until it has unprepared it."""
    LETTING_GO = "letting go"
    """All drivers have unprepared it; its Preparation still exists in the API."""


class _CheckpointStruct(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Base of the structs in a checkpoint."""


class RecordedDevice(_CheckpointStruct, frozen=True):
    """A device, or a share of one, allocated for a request."""

    pool: str = ""
    device: str = ""
    request: str = ""
    share_id: str | None = None
    admin: bool = False


class DriverPart(_CheckpointStruct, frozen=True):
    """The part of one driver in a claim."""

    driver: str = ""
    state: NodeClaimStage = NodeClaimStage.WANTED
    wanted: tuple[RecordedDevice, ...] = ()
    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""
    """The error of the driver's last call; empty after a success."""


class ClaimUser(_CheckpointStruct, frozen=True):
    """A pod of this node that uses a claim, and its entries that refer to it."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    entries: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RecordedClaim(_CheckpointStruct, frozen=True):
    """A claim that drivers of this node have prepared, may have prepared, or are to prepare."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    classic: bool = False
    users: tuple[ClaimUser, ...] = ()
    leaving: tuple[ClaimUser, ...] = ()
    """Pods that used it last and must not end before it is released."""
    parts: tuple[DriverPart, ...] = ()
    """One for each driver that has not unprepared it."""
    announced: bool = False
    """Whether its `Preparation` may exist in the API."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def pod_uids(self) -> tuple[str, ...]:
        """The uids of the pods that use it."""
        return tuple(user.uid for user in self.users)

    @property
    def state(self) -> NodeClaimStage:
        """The stage of the claim as a whole."""
        if not self.users:
            return NodeClaimStage.UNPREPARING if self.parts else NodeClaimStage.LETTING_GO
        states = {part.state for part in self.parts}
        return NodeClaimStage.PREPARED if states <= {NodeClaimStage.PREPARED} else NodeClaimStage.PREPARING

    @property
    def ref(self) -> ClaimRef:
        """The claim as drivers receive it."""
        return ClaimRef(self.namespace, self.name, self.uid)

    def find_part(self, driver: str) -> DriverPart | None:
        """Return the part of a driver."""
        return next((part for part in self.parts if part.driver == driver), None)

    def list_entries(self, pod_uid: str) -> tuple[str, ...]:
        """List the entries of a pod that refer to the claim."""
        return tuple(entry for user in self.users if user.uid == pod_uid for entry in user.entries)


class ClaimsRecord(_CheckpointStruct, frozen=True):
    """All claims of a node, and the boot of the machine in which they were prepared."""

    boot_id: str = ""
    claims: tuple[RecordedClaim, ...] = ()

    def find_claim(self, uid: str) -> RecordedClaim | None:
        return next((recorded for recorded in self.claims if recorded.uid == uid), None)

    def find_used_by(self, pod_uid: str) -> Iterator[RecordedClaim]:
        """Return the claims that a pod uses."""
        return (recorded for recorded in self.claims if pod_uid in recorded.pod_uids)

    def find_released_by(self, pod_uid: str) -> Iterator[RecordedClaim]:
        """Return the claims being released because a pod was the last to use them."""
        return (recorded for recorded in self.claims if any(user.uid == pod_uid for user in recorded.leaving))

    def collect_users(self) -> dict[str, ClaimUser]:
        """Return all pods that use claims or wait for the release of one, by uid."""
        return {user.uid: user for recorded in self.claims for user in (*recorded.users, *recorded.leaving)}

    def count_by_stage(self) -> Counter[NodeClaimStage]:
        """Count the claims in each stage."""
        return Counter(recorded.state for recorded in self.claims)

    def count_by_driver(self) -> Counter[str]:
        """Count the claims in use of each driver."""
        return Counter(part.driver for recorded in self.claims if recorded.users for part in recorded.parts)

    def put_claim(self, recorded: RecordedClaim) -> ClaimsRecord:
        """Return the record with a claim added or replaced in place."""
        if self.find_claim(recorded.uid) is None:
            return msgspec.structs.replace(self, claims=(*self.claims, recorded))
        claims = tuple(recorded if each.uid == recorded.uid else each for each in self.claims)
        return msgspec.structs.replace(self, claims=claims)

    def remove_claim(self, uid: str) -> ClaimsRecord:
        """Return the record without a claim."""
        return msgspec.structs.replace(self, claims=tuple(each for each in self.claims if each.uid != uid))


class ClaimsChange(_CheckpointStruct, frozen=True):
    """The difference between two records."""

    boot_id: str | None = None
    """None when it is the same."""
    removed: tuple[str, ...] = ()
    """Uids, also of those that `put` has again at another position."""
    put: tuple[RecordedClaim, ...] = ()

    def apply(self, record: ClaimsRecord) -> ClaimsRecord:
        """Return the later of the two records, given the earlier."""
        removed, put = frozenset(self.removed), {claim.uid: claim for claim in self.put}
        claims = [put.pop(each.uid, each) for each in record.claims if each.uid not in removed]
        claims += put.values()
        boot_id = record.boot_id if self.boot_id is None else self.boot_id
        return ClaimsRecord(boot_id=boot_id, claims=tuple(claims))


def build_change(before: ClaimsRecord, after: ClaimsRecord) -> ClaimsChange:
    """Build the change that leads from one record to another."""
    known = {claim.uid: claim for claim in before.claims}
    wanted = {claim.uid for claim in after.claims}
    staying = [claim.uid for claim in before.claims if claim.uid in wanted]
    # Claims are put at the end: one at any other new position, and all that follow it, are removed first.
    same = takewhile(
        lambda pair: pair[0] == pair[1], zip(staying, (claim.uid for claim in after.claims), strict=False)
    )
    moved = staying[sum(1 for _ in same) :]
    removed = (*(claim.uid for claim in before.claims if claim.uid not in wanted), *moved)
    put = tuple(claim for claim in after.claims if claim.uid in moved or known.get(claim.uid) != claim)
    return ClaimsChange(
        boot_id=None if after.boot_id == before.boot_id else after.boot_id, removed=removed, put=put
    )


EMPTY_RECORD: Final = ClaimsRecord()
