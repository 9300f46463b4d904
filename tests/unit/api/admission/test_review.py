"""Admission reviews: the request to a webhook, and the parsed response."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dray.api.admission import review
from dray.api.admission.matching import AdmissionTarget
from dray.api.admission.reinvocation import ReinvocationTracker
from dray.api.admission.review import (
    AdmissionRequest,
    AdmissionResponse,
    InvalidAdmissionResponse,
    build_review,
    format_denial,
    parse_review_response,
)

CLAIMS = AdmissionTarget(
    "UPDATE", "resource.k8s.io", "v1beta1", "resourceclaims", "status", versions=("v1", "v1beta1")
)
QUESTION = AdmissionRequest(
    CLAIMS,
    "v1",
    ("resource.k8s.io", "v1beta1", "ResourceClaim"),
    "c",
    "default",
    {"username": "ann", "groups": ["g"]},
    {"kind": "UpdateOptions"},
    dry_run=True,
)


def test_a_review_has_every_field_in_the_version_of_the_webhook():
    assert build_review(QUESTION, "u-1", {"new": 1}, {"old": 1}) == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
            "subResource": "status",
            "requestKind": {"group": "resource.k8s.io", "version": "v1beta1", "kind": "ResourceClaim"},
            "requestResource": {
                "group": "resource.k8s.io",
                "version": "v1beta1",
                "resource": "resourceclaims",
            },
            "requestSubResource": "status",
            "name": "c",
            "namespace": "default",
            "operation": "UPDATE",
            "userInfo": {"username": "ann", "groups": ["g"]},
            "object": {"new": 1},
            "oldObject": {"old": 1},
            "dryRun": True,
            "options": {"kind": "UpdateOptions"},
        },
    }


def test_empty_fields_are_left_out_and_an_absent_object_is_null():
    target = AdmissionTarget("DELETE", "", "v1", "nodes", namespaced=False)
    question = AdmissionRequest(target, "v1", ("", "v1", "Node"), "n", "", {}, {})
    request = build_review(question, "u", None, {"old": 1})["request"]
    assert {"subResource", "requestSubResource", "namespace"}.isdisjoint(request)
    assert (request["object"], request["dryRun"]) == (None, False)


def test_an_object_of_another_group_keeps_its_version():
    target = AdmissionTarget("CREATE", "", "v1", "pods", "eviction")
    question = AdmissionRequest(target, "v1", ("policy", "v1", "Eviction"), "p", "default", {}, {})
    request = build_review(question, "u", {}, None)["request"]
    assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}


def answer(**response: Any) -> bytes:
    said = {"uid": "u", "allowed": True, **response}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said}
    ).encode()


def patch(operations: Any) -> str:
    return base64.b64encode(json.dumps(operations).encode()).decode()


ADD = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]


@pytest.mark.parametrize(
    ("body", "mutating", "ruling"),
    [
        (answer(), False, AdmissionResponse(True)),
        (
            answer(allowed=False, status={"code": 422, "reason": "Invalid", "message": "bad"}),
            False,
            AdmissionResponse(False, 422, "Invalid", "bad"),
        ),
        (answer(allowed=False), False, AdmissionResponse(False, 400)),
        (answer(allowed=False, status={"code": 200}), False, AdmissionResponse(False, 400)),
        (answer(allowed=False, status={"code": 9999, "message": 7}), False, AdmissionResponse(False, 400)),
        (answer(allowed=False, status="no"), False, AdmissionResponse(False, 400)),
        (answer(warnings=["a", "", 3, "b"]), False, AdmissionResponse(True, warnings=("a", "b"))),
        (answer(warnings="a"), False, AdmissionResponse(True)),
        (answer(auditAnnotations={"k": "v", "n": 1}), False, AdmissionResponse(True, annotations={"k": "v"})),
        (answer(patch=patch(ADD), patchType="JSONPatch"), True, AdmissionResponse(True, patch=tuple(ADD))),
        # who only validates changes nothing
        (answer(patch=patch(ADD), patchType="JSONPatch"), False, AdmissionResponse(True)),
    ],
)
def test_a_valid_response_is_parsed(body, mutating, ruling):
    assert parse_review_response(body, "u", mutating=mutating) == ruling


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"[1]", "expected webhook response of admission.k8s.io/v1"),
        (
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}',
            "expected webhook response of",
        ),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "webhook response was absent"),
        (answer(uid="other"), 'expected response.uid="u", got "other"'),
        (answer(uid=None), 'expected response.uid="u", got NoneType'),
        (answer(allowed="yes"), "response.allowed must be true or false"),
        (answer(patch=patch(ADD)), "response.patch but not response.patchType"),
        (answer(patchType="JSONPatch"), "response.patchType but not response.patch"),
        (answer(patch=patch(ADD), patchType="Merge"), 'must be JSONPatch, got "Merge"'),
        (answer(patch="!", patchType="JSONPatch"), "must be a JSON patch in base64"),
        (answer(patch=7, patchType="JSONPatch"), "must be a JSON patch in base64"),
        (answer(patch=patch({"op": "add"}), patchType="JSONPatch"), "must be a list of operations"),
    ],
)
def test_any_other_response_is_refused_with_what_was_expected(body, why):
    found = parse_review_response(body, "u", mutating=True)
    assert isinstance(found, InvalidAdmissionResponse)
    assert why in found.reason


def test_texts_of_webhooks_are_truncated():
    endless = "x" * (1 << 20)
    found = parse_review_response(
        answer(
            allowed=False,
            status={"message": endless, "reason": endless},
            warnings=[endless] * 100,
            auditAnnotations={f"{n}{endless}": endless for n in range(3)},
        ),
        "u",
        mutating=False,
    )
    assert isinstance(found, AdmissionResponse)
    assert len(found.message) <= review.MAX_MESSAGE_LENGTH + 3
    assert len(found.warnings) == review.MAX_WARNINGS
    assert max(map(len, found.warnings)) <= review.MAX_WARNING_LENGTH + 3
    assert max(map(len, found.annotations.values())) <= review.MAX_ANNOTATION_LENGTH + 3


@pytest.mark.parametrize(
    ("ruling", "text"),
    [
        (AdmissionResponse(False, message="m", reason="R"), 'admission webhook "w" denied the request: m'),
        (AdmissionResponse(False, reason="R"), 'admission webhook "w" denied the request: R'),
        (AdmissionResponse(False), 'admission webhook "w" denied the request without explanation'),
    ],
)
def test_a_denial_has_the_text_of_kubernetes(ruling, text):
    assert format_denial("w", ruling) == text


@pytest.mark.parametrize(
    ("asked", "due"),
    [
        ("", []),
        ("curious curious", []),
        ("curious changes", [0]),
        ("changes curious", []),
        ("plain changes", []),
        ("curious curious+changes", [0]),
        ("curious+changes curious+changes curious", [0]),
        ("curious changes curious changes", [0, 2]),
    ],
)
def test_a_webhook_with_reinvocation_is_due_after_a_change(asked, due):
    turns = ReinvocationTracker()
    for position, how in enumerate(asked.split()):
        turns.record_call(position, wants_reinvocation="curious" in how, changed="changes" in how)
    assert turns.list_due() == due
