"""A preparation: a node's word that it has the devices of a claim in its hands.

A node agent writes one before it asks drivers to prepare a claim and deletes it when all drivers have let go.
While it stands, devices of that claim are not given to anybody else, even when the claim itself is gone: the
ledger keeps them in quarantine. Kubernetes has nothing like it, so clusters without our agents have none.
"""

from __future__ import annotations

from dray.api.meta import ObjectMeta, Value, Whole, always


class PreparedClaim(Value, frozen=True):
    """The claim that was prepared; the uid counts, the names are for people."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PreparationSpec(Whole, frozen=True):
    """Which node holds the devices of which claim; it never changes."""

    node_name: str = ""
    claim: PreparedClaim = PreparedClaim()


class Preparation(Whole, frozen=True):
    """A node's word that it has the devices of a claim in its hands."""

    api_version: str = always("dray.dev/v1alpha1")
    kind: str = always("Preparation")
    metadata: ObjectMeta = ObjectMeta()
    spec: PreparationSpec = PreparationSpec()
