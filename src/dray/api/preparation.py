"""A preparation: a node's word that it has the devices of a claim in its hands.

A node agent writes one before it asks drivers to prepare a claim and deletes it when all drivers have let go.
While it stands, devices of that claim are not given to anybody else, even when the claim itself is gone: the
ledger keeps them in quarantine. Kubernetes has nothing like it, so clusters without our agents have none.

When a server goes on from an earlier copy of its store, nodes may have devices in their hands of which it
knows nothing. Then they say so by themselves, device by device, and note on their Node that they have.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.meta import ApiStruct, CompositeApiStruct, ObjectMeta, always_encode

ACCOUNTED_ANNOTATION: Final = "dray.dev/accounted"
"""On a Node with an agent of ours: the restore after which it has said what it has in its hands."""
NO_RESTORE: Final = "none"
"""What stands there as long as there was no restore."""
RESTORED_PATH: Final = "/dray/restored"
"""Where a server says from which restore it goes on, if from any."""


class PreparedClaim(ApiStruct, frozen=True):
    """The claim that was prepared; the uid counts, the names are for people."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PreparationDevice(ApiStruct, frozen=True):
    """A device, or a share of one, that a node has in its hands."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PreparationSpec(CompositeApiStruct, frozen=True):
    """Which node holds the devices of which claim; node and claim never change."""

    node_name: str = ""
    claim: PreparedClaim = PreparedClaim()
    devices: tuple[PreparationDevice, ...] = ()
    """What the node has, whatever the claim says now; given after a restore only."""


class Preparation(CompositeApiStruct, frozen=True):
    """A node's word that it has the devices of a claim in its hands."""

    api_version: str = always_encode("dray.dev/v1alpha1")
    kind: str = always_encode("Preparation")
    metadata: ObjectMeta = ObjectMeta()
    spec: PreparationSpec = PreparationSpec()
