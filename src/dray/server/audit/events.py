"""Audit events: the lines of the audit log.

A write leaves two lines: a short one before it is carried out (`build_received_event`) and a full one before
it is answered (`build_complete_event`). A refusal leaves the full one. Reads that are allowed leave none. A
change by the server itself leaves one before it happens (`build_internal_event`). Annotations of admission
webhooks have a line of their own, with the id of the request (`build_annotation_event`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from dray.clock import format_micro_timestamp
from dray.server.admission.change import ObjectChange
from dray.server.audit.redaction import has_secret_body, redact_query
from dray.server.http.requests import WRITE_VERBS, ApiCall, ApiRequest
from dray.telemetry.redaction import redact

DENIAL_CODES = frozenset({401, 403, 429})
WITHHELD_HASH = "withheld"
_NON_RESOURCE_WRITES = frozenset({"post", "put", "patch", "delete"})
REVIEW_RESOURCES = frozenset(
    {"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
)
"""Resources that are only posted to ask a question; nothing is stored."""


class AuditOutcome(msgspec.Struct, frozen=True):
    """How a request ended: the code, the reason of its `Status`, and why it was allowed or denied."""

    code: int
    seconds: float = 0.0
    reason: str = ""
    decision: str = ""
    name: str = ""
    """The name of the object, when the request did not have it."""
    body: bytes = b""


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line, as it is written after its number and the hash of the previous line."""

    event: str
    time: str
    id: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    source: str = ""
    agent: str = ""
    verb: str = ""
    path: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    query: dict[str, str] = {}
    code: int = 0
    reason: str = ""
    decision: str = ""
    milliseconds: float = 0.0
    request: str = ""
    response: str = ""
    count: int = 0
    note: str = ""
    annotations: dict[str, str] = {}


def is_write(call: ApiCall) -> bool:
    """Return whether a call may change something; reviews do not."""
    if call.is_resource:
        return call.verb in WRITE_VERBS and call.plural not in REVIEW_RESOURCES
    return call.verb in _NON_RESOURCE_WRITES


def build_received_event(request: ApiRequest, now: datetime) -> AuditEvent:
    """Build the line that is written before a change is carried out."""
    return AuditEvent(
        event="received",
        time=format_micro_timestamp(now),
        id=redact(request.audit_id),
        user=redact(request.user.name),
        source=request.source,
        verb=request.call.verb,
        path=redact(request.call.path),
    )


def build_complete_event(request: ApiRequest, outcome: AuditOutcome, now: datetime) -> AuditEvent:
    """Build the line that is written before a response is sent."""
    call = request.call
    secret = has_secret_body(call)
    return AuditEvent(
        event="complete",
        time=format_micro_timestamp(now),
        id=redact(request.audit_id),
        user=redact(request.user.name),
        groups=tuple(map(redact, request.user.groups)),
        source=request.source,
        agent=redact(request.headers.get("user-agent", "")),
        verb=call.verb,
        path=redact(call.path),
        group=redact(call.group),
        version=redact(call.version),
        resource=redact(call.plural),
        subresource=redact(call.subresource),
        namespace=redact(call.namespace),
        name=redact(call.name or outcome.name),
        query=redact_query(call.query),
        code=outcome.code,
        reason=redact(outcome.reason),
        decision=redact(outcome.decision),
        milliseconds=round(outcome.seconds * 1000, 3),
        request=WITHHELD_HASH if secret else hash_body(request.body),
        response=WITHHELD_HASH if secret else hash_body(outcome.body),
    )


def build_internal_event(change: ObjectChange, now: datetime) -> AuditEvent:
    """Build the line of a change that the server makes by itself."""
    return AuditEvent(
        event="inside",
        time=format_micro_timestamp(now),
        user=change.request.user.name,
        agent=change.request.headers.get("user-agent", ""),
        verb=change.operation,
        group=change.kind.group,
        version=change.kind.version,
        resource=change.kind.plural,
        namespace=redact(change.namespace),
        name=redact(change.name),
    )


def build_annotation_event(audit_id: str, annotations: Mapping[str, str], now: datetime) -> AuditEvent:
    """Build the line of the audit annotations of webhooks for a request."""
    redacted = {redact(name): redact(value) for name, value in annotations.items()}
    return AuditEvent(
        event="annotated", time=format_micro_timestamp(now), id=redact(audit_id), annotations=redacted
    )


def hash_body(body: bytes) -> str:
    """Return the hash of a body; empty when there is none."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}" if body else ""
