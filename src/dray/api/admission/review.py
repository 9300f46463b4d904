"""Admission reviews: the question that a webhook is asked, and what its answer says.

Theory of operation: a question is a document with everything a webhook may want to know. An answer is read
with suspicion: whatever it is, it becomes a `Ruling` or an `Unclear` with a sentence that says what was
expected. Texts of webhooks go to clients and logs, so they are cut to a length.

Rules for this file: pure; identities come from outside.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dray.api.admission.matching import Target
from dray.api.json_text import read_json
from dray.errors import DecodeError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
JSON_PATCH: Final = "JSONPatch"

LONGEST_MESSAGE: Final = 16 * 1024
LONGEST_WARNING: Final = 256
MOST_WARNINGS: Final = 32
MOST_ANNOTATIONS: Final = 32
LONGEST_ANNOTATION: Final = 1024
_LEAST_CODE, _LARGEST_CODE = 400, 599


class Ruling(msgspec.Struct, frozen=True):
    """What a webhook says: yes, maybe with changes, or no and why."""

    allowed: bool
    code: int = _LEAST_CODE
    reason: str = ""
    message: str = ""
    patch: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}


class Unclear(msgspec.Struct, frozen=True):
    """An answer that is none, and why."""

    why: str


class Question(msgspec.Struct, frozen=True):
    """What a webhook is asked about."""

    target: Target
    """As the request was made."""
    version: str
    """In which the webhook is asked."""
    about: tuple[str, str, str]
    """Group, version and kind of the object in the request."""
    name: str
    namespace: str
    user: Mapping[str, Any]
    options: Mapping[str, Any]
    dry_run: bool = False


def asked(question: Question, uid: str, new: Any, old: Any) -> dict[str, Any]:
    """The review of a question; `new` and `old` are documents in the version of the question, or None."""
    target = question.target
    group, version, kind = question.about
    # Objects of another group, such as a binding, have one version whatever the resource has.
    told = question.version if (group, version) == (target.group, target.version) else version
    request: dict[str, Any] = {
        "uid": uid,
        "kind": {"group": group, "version": told, "kind": kind},
        "resource": {"group": target.group, "version": question.version, "resource": target.resource},
        "subResource": target.subresource,
        "requestKind": {"group": group, "version": version, "kind": kind},
        "requestResource": {"group": target.group, "version": target.version, "resource": target.resource},
        "requestSubResource": target.subresource,
        "name": question.name,
        "namespace": question.namespace,
        "operation": target.operation,
        "userInfo": dict(question.user),
        "object": new,
        "oldObject": old,
        "dryRun": question.dry_run,
        "options": dict(question.options),
    }
    absent = ("subResource", "requestSubResource", "name", "namespace")
    kept = {name: value for name, value in request.items() if value != "" or name not in absent}
    return {"kind": KIND, "apiVersion": API_VERSION, "request": kept}


def ruled(body: bytes, uid: str, *, mutating: bool) -> Ruling | Unclear:
    """What an answer to the review of this uid says."""
    try:
        review = read_json(body)
    except DecodeError as broken:
        return Unclear(f"its answer is not JSON: {broken}")
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        return Unclear(f"expected webhook response of {API_VERSION}, Kind={KIND}")
    response = review.get("response")
    if not isinstance(response, dict):
        return Unclear("webhook response was absent")
    if response.get("uid") != uid:
        return Unclear(f'expected response.uid="{uid}", got {_shown(response.get("uid"))}')
    if not isinstance(response.get("allowed"), bool):
        return Unclear("response.allowed must be true or false")
    status = response.get("status")
    status = status if isinstance(status, dict) else {}
    patch = _patch(response) if mutating else ()
    if isinstance(patch, Unclear):
        return patch
    return Ruling(
        response["allowed"],
        _code(status.get("code")),
        _text(status.get("reason"), LONGEST_WARNING),
        _text(status.get("message"), LONGEST_MESSAGE),
        patch,
        _warnings(response.get("warnings")),
        _annotations(response.get("auditAnnotations")),
    )


def denial(webhook: str, ruling: Ruling) -> str:
    """What the client is told whose request was denied, in the words of Kubernetes."""
    denied = f'admission webhook "{webhook}" denied the request'
    why = ruling.message or ruling.reason
    return f"{denied}: {why}" if why else f"{denied} without explanation"


def _patch(response: Mapping[str, Any]) -> tuple[Any, ...] | Unclear:
    patch, sort = response.get("patch"), response.get("patchType")
    if not patch and not sort:
        return ()
    if not patch:
        return Unclear("webhook returned response.patchType but not response.patch")
    if not sort:
        return Unclear("webhook returned response.patch but not response.patchType")
    if sort != JSON_PATCH:
        return Unclear(f"response.patchType must be {JSON_PATCH}, got {_shown(sort)}")
    try:
        operations = read_json(base64.b64decode(patch, validate=True))
    except (binascii.Error, ValueError, TypeError, DecodeError) as broken:
        return Unclear(f"response.patch must be a JSON patch in base64: {broken}")
    if not isinstance(operations, list):
        return Unclear("response.patch must be a list of operations")
    return tuple(operations)


def _code(code: Any) -> int:
    """A refusal is told with a code that means one."""
    return code if isinstance(code, int) and _LEAST_CODE <= code <= _LARGEST_CODE else _LEAST_CODE


def _text(value: Any, longest: int) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= longest else f"{text[:longest]}..."


def _warnings(found: Any) -> tuple[str, ...]:
    listed = found if isinstance(found, list) else []
    texts = (_text(each, LONGEST_WARNING) for each in listed[:MOST_WARNINGS])
    return tuple(text for text in texts if text)


def _annotations(found: Any) -> dict[str, str]:
    given = found if isinstance(found, dict) else {}
    texts = {str(name): value for name, value in given.items() if isinstance(value, str)}
    return {
        _text(name, LONGEST_WARNING): _text(texts[name], LONGEST_ANNOTATION)
        for name in sorted(texts)[:MOST_ANNOTATIONS]
    }


def _shown(value: Any) -> str:
    return f'"{_text(value, LONGEST_WARNING)}"' if isinstance(value, str) else f"{type(value).__name__}"
