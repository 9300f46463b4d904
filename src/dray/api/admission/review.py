"""Admission reviews: the request sent to a webhook, and the parser of its response.

Theory of operation: a review is a document with everything a webhook may need. Responses are not trusted:
each becomes an `AdmissionResponse`, or an `InvalidAdmissionResponse` with a sentence that says what was
expected. Texts of webhooks reach clients and logs, so they are truncated.

Rules for this file: pure functions; uids are arguments.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.admission.matching import AdmissionTarget
from dray.api.json_text import read_json
from dray.errors import DecodeError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
JSON_PATCH: Final = "JSONPatch"

MAX_MESSAGE_LENGTH: Final = 16 * 1024
MAX_WARNING_LENGTH: Final = 256
MAX_WARNINGS: Final = 32
MAX_ANNOTATIONS: Final = 32
MAX_ANNOTATION_LENGTH: Final = 1024
_MIN_CODE, _MAX_CODE = 400, 599


class AdmissionResponse(msgspec.Struct, frozen=True):
    """The decision of a webhook: allowed, perhaps with changes, or denied with a reason."""

    allowed: bool
    code: int = _MIN_CODE
    reason: str = ""
    message: str = ""
    patch: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}


class InvalidAdmissionResponse(msgspec.Struct, frozen=True):
    """A response that cannot be used, and why."""

    reason: str


class AdmissionRequest(msgspec.Struct, frozen=True):
    """The request that a webhook reviews."""

    target: AdmissionTarget
    """The version of the request."""
    version: str
    """The version in which the webhook is called."""
    gvk: tuple[str, str, str]
    """Group, version and kind of the object in the request."""
    name: str
    namespace: str
    user: Mapping[str, Any]
    options: Mapping[str, Any]
    dry_run: bool = False


def build_review(admission_request: AdmissionRequest, uid: str, new: Any, old: Any) -> dict[str, Any]:
    """Build the review of a request; `new` and `old` are documents in the version of the webhook, or None."""
    target = admission_request.target
    group, version, kind = admission_request.gvk
    # Objects of another group, such as a binding, have one version whatever version the resource has.
    shown_version = (
        admission_request.version if (group, version) == (target.group, target.version) else version
    )
    request: dict[str, Any] = {
        "uid": uid,
        "kind": {"group": group, "version": shown_version, "kind": kind},
        "resource": {
            "group": target.group,
            "version": admission_request.version,
            "resource": target.resource,
        },
        "subResource": target.subresource,
        "requestKind": {"group": group, "version": version, "kind": kind},
        "requestResource": {"group": target.group, "version": target.version, "resource": target.resource},
        "requestSubResource": target.subresource,
        "name": admission_request.name,
        "namespace": admission_request.namespace,
        "operation": target.operation,
        "userInfo": dict(admission_request.user),
        "object": new,
        "oldObject": old,
        "dryRun": admission_request.dry_run,
        "options": dict(admission_request.options),
    }
    absent = ("subResource", "requestSubResource", "name", "namespace")
    fields = {name: value for name, value in request.items() if value != "" or name not in absent}
    return {"kind": KIND, "apiVersion": API_VERSION, "request": fields}


def parse_review_response(
    body: bytes, uid: str, *, mutating: bool
) -> AdmissionResponse | InvalidAdmissionResponse:
    """Parse the response to the review with this uid."""
    try:
        review = read_json(body)
    except DecodeError as broken:
        return InvalidAdmissionResponse(f"its answer is not JSON: {broken}")
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        return InvalidAdmissionResponse(f"expected webhook response of {API_VERSION}, Kind={KIND}")
    response = review.get("response")
    if not isinstance(response, dict):
        return InvalidAdmissionResponse("webhook response was absent")
    if response.get("uid") != uid:
        return InvalidAdmissionResponse(
            f'expected response.uid="{uid}", got {_describe_value(response.get("uid"))}'
        )
    if not isinstance(response.get("allowed"), bool):
        return InvalidAdmissionResponse("response.allowed must be true or false")
    status = response.get("status")
    status = status if isinstance(status, dict) else {}
    patch = _parse_patch(response) if mutating else ()
    if isinstance(patch, InvalidAdmissionResponse):
        return patch
    return AdmissionResponse(
        response["allowed"],
        _parse_code(status.get("code")),
        _truncate_text(status.get("reason"), MAX_WARNING_LENGTH),
        _truncate_text(status.get("message"), MAX_MESSAGE_LENGTH),
        patch,
        _parse_warnings(response.get("warnings")),
        _parse_annotations(response.get("auditAnnotations")),
    )


def format_denial(webhook: str, response: AdmissionResponse) -> str:
    """Format the message for a client whose request was denied, in the words of Kubernetes."""
    denied = f'admission webhook "{webhook}" denied the request'
    why = response.message or response.reason
    return f"{denied}: {why}" if why else f"{denied} without explanation"


def _parse_patch(response: Mapping[str, Any]) -> tuple[Any, ...] | InvalidAdmissionResponse:
    patch, sort = response.get("patch"), response.get("patchType")
    if not patch and not sort:
        return ()
    if not patch:
        return InvalidAdmissionResponse("webhook returned response.patchType but not response.patch")
    if not sort:
        return InvalidAdmissionResponse("webhook returned response.patch but not response.patchType")
    if sort != JSON_PATCH:
        return InvalidAdmissionResponse(
            f"response.patchType must be {JSON_PATCH}, got {_describe_value(sort)}"
        )
    try:
        operations = read_json(base64.b64decode(patch, validate=True))
    except (binascii.Error, ValueError, TypeError, DecodeError) as broken:
        return InvalidAdmissionResponse(f"response.patch must be a JSON patch in base64: {broken}")
    if not isinstance(operations, list):
        return InvalidAdmissionResponse("response.patch must be a list of operations")
    return tuple(operations)


def _parse_code(code: Any) -> int:
    """Return the status code of a denial; a code that means success becomes the default."""
    return code if isinstance(code, int) and _MIN_CODE <= code <= _MAX_CODE else _MIN_CODE


def _truncate_text(value: Any, max_length: int) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def _parse_warnings(found: Any) -> tuple[str, ...]:
    listed = found if isinstance(found, list) else []
    texts = (_truncate_text(each, MAX_WARNING_LENGTH) for each in listed[:MAX_WARNINGS])
    return tuple(text for text in texts if text)


def _parse_annotations(found: Any) -> dict[str, str]:
    given = found if isinstance(found, dict) else {}
    texts = {str(name): value for name, value in given.items() if isinstance(value, str)}
    return {
        _truncate_text(name, MAX_WARNING_LENGTH): _truncate_text(texts[name], MAX_ANNOTATION_LENGTH)
        for name in sorted(texts)[:MAX_ANNOTATIONS]
    }


def _describe_value(value: Any) -> str:
    return (
        f'"{_truncate_text(value, MAX_WARNING_LENGTH)}"'
        if isinstance(value, str)
        else f"{type(value).__name__}"
    )
