"""Preparation: a node's record that it holds the devices of a claim.

A node agent writes one before it asks drivers to prepare a claim, and deletes it when all drivers have
released the devices. As long as it exists, the devices of that claim are not allocated to another claim, even
when the claim itself is gone: the ledger keeps them in quarantine. Kubernetes has no such kind, so clusters
without dray's agents have none.

When a server resumes from an earlier copy of its store, nodes may hold devices that the store does not
record. Then the agents report every device they hold, and note on their Node that they have done so.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.meta import ApiStruct, CompositeApiStruct, ObjectMeta, always_encode

ACCOUNTED_ANNOTATION: Final = "dray.dev/accounted"
"""Annotation of a Node with a dray agent: the restore after which the agent has reported the devices it
holds.
"""
NO_RESTORE: Final = "none"
"""Value of the annotation as long as there was no restore."""
RESTORED_PATH: Final = "/dray/restored"
"""Path under which a server reports from which restore it resumed, if from any."""


class PreparedClaim(ApiStruct, frozen=True):
    """The claim that was prepared; the uid identifies it, the names are for people."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PreparationDevice(ApiStruct, frozen=True):
    """A device, or a share of one, that a node holds."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PreparationSpec(CompositeApiStruct, frozen=True):
    """The node that holds the devices of a claim; node and claim never change."""

    node_name: str = ""
    claim: PreparedClaim = PreparedClaim()
    devices: tuple[PreparationDevice, ...] = ()
    """The devices the node holds, independent of the claim's current state; set only after a restore."""


class Preparation(CompositeApiStruct, frozen=True):
    """A node's record that it holds the devices of a claim."""

    api_version: str = always_encode("dray.dev/v1alpha1")
    kind: str = always_encode("Preparation")
    metadata: ObjectMeta = ObjectMeta()
    spec: PreparationSpec = PreparationSpec()
