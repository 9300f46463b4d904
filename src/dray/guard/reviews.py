"""Admission reviews of allocations: parsed from the request of an API server, and answered.

Rules for this file: pure. Only the few fields that count are decoded; they are the same in all versions of
claims. A body that is no review raises `InvalidReviewError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dray.claims.ledger.denials import Denial, build_allocation_causes
from dray.claims.ledger.rows import Holder
from dray.claims.ledger.stored_claims import StoredResult
from dray.errors import InputError
from dray.values.node_selectors import NodeSelector
from dray.values.quantity import Quantity

_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_GROUP: Final = "resource.k8s.io"
_RESOURCE: Final = "resourceclaims"


class InvalidReviewError(InputError):
    """The body of a request is no review that the guard can answer."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs read from reviews; other fields are ignored."""


class _Metadata(_Part, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Devices(_Part, frozen=True):
    results: tuple[StoredResult, ...] = ()


class _Allocation(_Part, frozen=True):
    devices: _Devices = _Devices()
    node_selector: NodeSelector | None = None


class _Status(_Part, frozen=True):
    allocation: _Allocation | None = None


class _ReviewedClaim(_Part, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status | None = None

    @property
    def allocation(self) -> _Allocation | None:
        return None if self.status is None else self.status.allocation


class _ReviewedResource(_Part, frozen=True):
    group: str = ""
    resource: str = ""


class _Request(_Part, frozen=True):
    uid: str
    resource: _ReviewedResource = _ReviewedResource()
    operation: str = ""
    namespace: str = ""
    name: str = ""
    object: _ReviewedClaim | None = None
    old_object: _ReviewedClaim | None = None
    dry_run: bool | None = None


class _Review(_Part, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


@dataclass(frozen=True, slots=True)
class AllocationReview:
    """A write to a claim: what it allocates, and which state of the claim it replaces."""

    uid: str
    """The uid of the review, which the response repeats."""
    holder: Holder
    revision: int
    """The revision of the claim that the write replaces; 0 for a new claim."""
    allocated: tuple[StoredResult, ...] | None
    """What the claim has after the write; None when it has no allocation then."""
    before: tuple[StoredResult, ...] = ()
    """What the claim has in the revision that the write replaces."""
    node: str = ""
    """The one node that the allocation is for, if there is one."""
    dry_run: bool = False


def _read_quantity(wanted: type, value: Any) -> Any:
    return Quantity.from_json_value(value)


_DECODER = msgspec.json.Decoder(_Review, dec_hook=_read_quantity)


def parse_review(body: bytes) -> AllocationReview:
    """Parse the review of a write to a claim."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError) as broken:
        raise InvalidReviewError(f"the body is no AdmissionReview: {broken}") from None
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        raise InvalidReviewError(f"expected an object of kind `{_KIND}` in version `{_API_VERSION}`")
    request = review.request
    if request is None or not request.uid:
        raise InvalidReviewError("expected `request` with a `uid`")
    if (request.resource.group, request.resource.resource) != (_GROUP, _RESOURCE):
        raise InvalidReviewError(f"expected a review of `{_RESOURCE}.{_GROUP}`; correct the webhook's rules")
    return _build_allocation_review(request)


def _build_allocation_review(request: _Request) -> AllocationReview:
    new, old = request.object or _ReviewedClaim(), request.old_object or _ReviewedClaim()
    metadata = new.metadata if new.metadata.uid else old.metadata
    holder = Holder(
        namespace=metadata.namespace or request.namespace,
        name=metadata.name or request.name,
        uid=metadata.uid,
    )
    allocation = new.allocation
    selector = None if allocation is None else allocation.node_selector
    return AllocationReview(
        request.uid,
        holder,
        _parse_revision(old.metadata.resource_version, request),
        None if allocation is None else allocation.devices.results,
        () if old.allocation is None else old.allocation.devices.results,
        "" if selector is None else selector.only_node,
        bool(request.dry_run),
    )


def _parse_revision(text: str, request: _Request) -> int:
    if request.old_object is None:
        return 0
    if not text.isdecimal():
        raise InvalidReviewError(
            f"expected a number as `metadata.resourceVersion` of the old object, got `{text}`"
        )
    return int(text)


def build_allowed(uid: str) -> dict[str, Any]:
    """Build the response that admits a write."""
    return _build_response({"uid": uid, "allowed": True})


def build_denied(uid: str, denials: Sequence[Denial]) -> dict[str, Any]:
    """Build the response for a write that breaks rules of the ledger: 409 with a cause for each."""
    status = {
        "code": 409,
        "reason": "Conflict",
        "message": "; ".join(denial.message for denial in denials),
        "details": {"group": _GROUP, "kind": _RESOURCE, "causes": build_allocation_causes(denials)},
    }
    return _build_response({"uid": uid, "allowed": False, "status": status})


def build_unavailable(uid: str, why: str) -> dict[str, Any]:
    """Build the response of a guard that cannot decide now: 503, to be tried again."""
    status = {
        "code": 503,
        "reason": "ServiceUnavailable",
        "message": f"{why}; try again",
        "details": {"retryAfterSeconds": 1},
    }
    return _build_response({"uid": uid, "allowed": False, "status": status})


def _build_response(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}
