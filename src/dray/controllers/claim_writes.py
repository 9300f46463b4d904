"""The writes of claim actions: what is sent to the server for each of them, alone or in a transaction.

Theory of operation: a write names uid and version of the object it was decided on, so that it fails when the
object has changed since. In a transaction the first write of an object guards those after it, which name the
uid only: nobody knows the version that the first one makes.

Rules for this file: nothing is decided here, and responses are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.claims.actions import (
    ClaimWrite,
    CreateClaim,
    DeleteClaim,
    RecordClaims,
    ReleaseClaim,
    RemoveFinalizer,
    ReserveClaim,
)
from dray.client.client import DeleteOptions
from dray.client.patches import MergePatch, ObjectPatch, StrategicMergePatch
from dray.client.transactions.object_transaction import ObjectTransaction


class WriteTarget(Protocol):
    """Takes writes: a client sends each of them, a transaction collects them."""

    def create(self, obj: Any) -> Any: ...

    def patch(
        self, kind: Any, name: str, patch: ObjectPatch, namespace: str = "", *, subresource: str = ""
    ) -> Any: ...

    def delete(self, kind: Any, name: str, namespace: str = "", options: DeleteOptions = ...) -> Any: ...


def build_transaction(actions: Iterable[ClaimWrite]) -> ObjectTransaction:
    """Build the transaction of several writes, in their order."""
    transaction, written = ObjectTransaction(), set[str]()
    for action in actions:
        uid = "" if isinstance(action, CreateClaim) else get_written_object(action).metadata.uid
        write_action(transaction, action, is_first=uid not in written)
        if uid:
            written.add(uid)
    return transaction


def get_written_object(action: ClaimWrite) -> Any:
    """Return the pod or claim that an action writes, in the version it was decided on."""
    return action.pod if isinstance(action, RecordClaims) else action.claim


def write_action(target: WriteTarget, action: ClaimWrite, *, is_first: bool = True) -> Any:
    """Hand over the write of an action; `is_first` says whether nothing before it writes the same object."""
    written = get_written_object(action)
    metadata: ObjectMeta = written.metadata
    name, namespace = metadata.name, metadata.namespace
    match action:
        case CreateClaim():
            return target.create(action.claim)
        case RecordClaims():
            patch = _build_record_patch(action)
            return target.patch(Pod, name, patch, namespace, subresource="status")
        case ReserveClaim() | ReleaseClaim():
            pins = _build_pins(metadata, is_first=is_first)
            status = MergePatch({"metadata": pins, "status": _build_status(action)})
            return target.patch(type(written), name, status, namespace, subresource="status")
        case RemoveFinalizer():
            pins = _build_pins(metadata, is_first=is_first)
            left = list_left_finalizers(action) or None
            change = MergePatch({"metadata": {**pins, "finalizers": left}})
            return target.patch(ResourceClaim, name, change, namespace)
        case DeleteClaim():
            version = metadata.resource_version if is_first else ""
            options = DeleteOptions(uid=metadata.uid, resource_version=version)
            return target.delete(type(written), name, namespace, options)


def list_left_finalizers(action: RemoveFinalizer) -> list[str]:
    """List the finalizers that others have on a claim."""
    return [each for each in action.claim.metadata.finalizers if each != claim_names.FINALIZER]


def _build_pins(metadata: ObjectMeta, *, is_first: bool) -> dict[str, str]:
    pins = {"uid": metadata.uid}
    return pins | {"resourceVersion": metadata.resource_version} if is_first else pins


def _build_record_patch(action: RecordClaims) -> StrategicMergePatch:
    """Record the claims in the pod's status: all in one write, and no entry is ever removed.

    Entries that another writer recorded meanwhile stay: the pod may be on its node already, with that claim.
    """
    statuses = [
        {"name": entry, "resourceClaimName": name} if name is not None else {"name": entry}
        for entry, name in action.names
    ]
    pins = _build_pins(action.pod.metadata, is_first=True)
    return StrategicMergePatch({"metadata": pins, "status": {"resourceClaimStatuses": statuses}})


def _build_status(action: ReserveClaim | ReleaseClaim) -> dict[str, Any]:
    """Build the change of a status; with the last consumer the allocation is removed in the same write."""
    status = action.claim.status
    if isinstance(action, ReserveClaim):
        return {"reservedFor": _to_documents((*action.claim.status.reserved_for, action.consumer))}
    left = [each for each in status.reserved_for if each.uid not in action.uids]
    change: dict[str, Any] = {}
    if len(left) < len(status.reserved_for):
        change["reservedFor"] = _to_documents(left) or None
    if action.deallocate and isinstance(action.claim, ResourceClaim):
        change["allocation"] = None
        if action.claim.status.devices:
            change["devices"] = None
    return change


def _to_documents(consumers: Sequence[Any]) -> list[Any]:
    return [msgspec.to_builtins(consumer) for consumer in consumers]
