"""Reviews: what is read of them, and bodies that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.claims.ledger.denials import Denial, DenialReason
from dray.claims.ledger.rows import Holder
from dray.guard.reviews import (
    InvalidReviewError,
    build_allowed,
    build_denied,
    build_unavailable,
    parse_review,
)


def review(**request: Any) -> bytes:
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}]
    selector = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    }
    allocation = {"devices": {"results": results}, "nodeSelector": selector, "allocationTimestamp": "x"}
    metadata = {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "7"}
    defaults = {
        "uid": "r1",
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "subResource": "status",
        "operation": "UPDATE",
        "object": {"metadata": metadata, "status": {"allocation": allocation, "unknown": {}}},
        "oldObject": {"metadata": metadata},
        "dryRun": False,
    }
    document = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": defaults | request,
    }
    return json.dumps(document).encode()


def test_a_review_says_what_is_allocated_and_which_revision_it_replaces():
    parsed = parse_review(review())
    assert (parsed.uid, parsed.revision, parsed.node) == ("r1", 7, "n1")
    assert parsed.holder == Holder(namespace="default", name="a", uid="u")
    assert [each.device for each in parsed.allocated or ()] == ["gpu-0"]
    assert (parsed.before, parsed.dry_run) == ((), False)
    assert parse_review(review(dryRun=True)).dry_run
    assert parse_review(review(object={"metadata": {"uid": "u"}})).allocated is None
    assert parse_review(review(oldObject=None)).revision == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is no AdmissionReview"),
        (b"[]", "the body is no AdmissionReview"),
        (b'{"kind": "Pod"}', "expected an object of kind `AdmissionReview` in version `admission.k8s.io/v1`"),
        (review(uid=""), "expected `request` with a `uid`"),
        (review(resource={"group": "", "resource": "pods"}), "expected a review of `resourceclaims"),
        (review(oldObject={"metadata": {"resourceVersion": "x"}}), "expected a number as `metadata.res"),
        (review(object={"status": {"allocation": {"devices": {"results": 1}}}}), "no AdmissionReview"),
    ],
)
def test_a_body_that_is_no_review_is_explained(body: bytes, message: str):
    with pytest.raises(InvalidReviewError) as caught:
        parse_review(body)
    assert message in str(caught.value)


def test_responses_repeat_the_uid_and_denials_have_causes():
    assert build_allowed("r1")["response"] == {"uid": "r1", "allowed": True}
    denied = build_denied("r1", [Denial(DenialReason.HELD, None, "device d is held", 2)])["response"]
    assert (denied["allowed"], denied["status"]["code"], denied["status"]["reason"]) == (
        False,
        409,
        "Conflict",
    )
    assert denied["status"]["details"]["causes"] == [
        {
            "reason": "DeviceHeld",
            "message": "device d is held",
            "field": "status.allocation.devices.results[2]",
        }
    ]
    waiting = build_unavailable("r1", "no guard leads")["response"]["status"]
    assert (waiting["code"], waiting["message"]) == (503, "no guard leads; try again")
