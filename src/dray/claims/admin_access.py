"""Admin access to devices: which fields ask for it, and in which namespaces it is allowed.

A claim with admin access gets devices that others use. Only an administrator can allow that, with a label on
the namespace. The API server checks this on every write, commands that read files check manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dray.api.core import Namespace
from dray.api.fields import ROOT, FieldError, FieldPath, forbidden
from dray.api.resource import DeviceRequest, ResourceClaim, ResourceClaimTemplate

ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
_WITHOUT_LABEL: Final = (
    f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
)


def allows_admin_access(namespace: Namespace) -> bool:
    """Whether claims of a namespace may have admin access."""
    return namespace.metadata.labels.get(ADMIN_ACCESS_LABEL) == "true"


def build_unlabelled_error(place: FieldPath) -> FieldError:
    """The error for a field that asks for admin access in a namespace without the label."""
    return forbidden(place, _WITHOUT_LABEL)


def find_admin_requests(obj: ResourceClaim | ResourceClaimTemplate) -> Iterator[FieldPath]:
    """The requests of a claim or template that ask for admin access."""
    if isinstance(obj, ResourceClaimTemplate):
        return _find_in_requests(obj.spec.spec.devices.requests, ROOT.child("spec", "spec"))
    return _find_in_requests(obj.spec.devices.requests, ROOT.child("spec"))


def _find_in_requests(requests: Sequence[DeviceRequest], path: FieldPath) -> Iterator[FieldPath]:
    for position, request in enumerate(requests):
        if request.exactly is not None and request.exactly.admin_access:
            yield path.child("devices", "requests").index(position).child("exactly", "adminAccess")


def find_admin_results(claim: ResourceClaim) -> Iterator[FieldPath]:
    """The results of a claim that have admin access."""
    allocation = claim.status.allocation
    for position, result in enumerate(() if allocation is None else allocation.devices.results):
        if result.admin_access:
            yield (
                ROOT.child("status", "allocation", "devices", "results").index(position).child("adminAccess")
            )


def check_admin_results(claim: ResourceClaim) -> Iterator[FieldError]:
    """Results with admin access whose request has none: no claim would be charged for their devices."""
    asking = {one.name for one in claim.spec.devices.requests if one.exactly and one.exactly.admin_access}
    results = () if claim.status.allocation is None else claim.status.allocation.devices.results
    for result, place in zip(
        (one for one in results if one.admin_access), find_admin_results(claim), strict=True
    ):
        if result.request not in asking:
            yield forbidden(place, f"request `{result.request}` does not ask for admin access")
