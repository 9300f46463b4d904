"""Audit events: the lines of the audit log.

A write leaves two lines: a short one before it is carried out (`build_received_event`) and a full one before
it is answered (`build_complete_event`). So does a read of Secrets or of a backup. A refusal leaves the full
one. Other reads that are allowed leave none. A change by the server itself leaves one before it happens
(`build_internal_event`). Annotations of admission webhooks have a line of their own, with the id of the
request (`build_annotation_event`).

Both lines of a transaction list the requests in it (`requests`); the full one has the code of each that was
carried out or refused.

`user` is who sent the request, by its credentials. `impersonatedUser` is the user as whom it was carried out,
when that is another one; the names are those of Kubernetes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from dray.clock import format_micro_timestamp
from dray.server.admission.change import ObjectChange
from dray.server.audit.redaction import has_secret_body, redact_query
from dray.server.http.requests import ApiCall, ApiRequest, PartResult
from dray.telemetry.redaction import redact

DENIAL_CODES = frozenset({401, 403, 429})
WITHHELD_HASH = "withheld"
RECORDED_READS = frozenset({("", "secrets")})
RECORDED_PATHS = frozenset({"/dray/backup"})
"""Resources (group and plural) and paths whose reads are recorded like writes: what they answer lets the
reader act as somebody else.
"""


class AuditOutcome(msgspec.Struct, frozen=True):
    """How a request ended: the code, the reason of its `Status`, and why it was allowed or denied."""

    code: int
    seconds: float = 0.0
    reason: str = ""
    decision: str = ""
    name: str = ""
    """The name of the object, when the request did not have it."""
    body: bytes = b""
    parts: tuple[PartResult, ...] = ()
    """What became of the requests inside a transaction."""


class AuditedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request inside a transaction; without a code it was not carried out, or not yet."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 0


class ImpersonatedUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user as whom a request was carried out for another one."""

    username: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class AuditEvent(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"impersonated_user": "impersonatedUser"}
):
    """One line, as it is written after its number and the hash of the previous line."""

    event: str
    time: str
    id: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    impersonated_user: ImpersonatedUser | None = None
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
    requests: tuple[AuditedRequest, ...] = ()


def is_recorded(call: ApiCall) -> bool:
    """Return whether a call is recorded even when it is allowed: a write, or a read of secrets."""
    if call.is_resource:
        return call.is_write or (call.group, call.plural) in RECORDED_READS
    return call.is_write or (call.path.rstrip("/") or "/") in RECORDED_PATHS


def build_received_event(request: ApiRequest, now: datetime) -> AuditEvent:
    """Build the line that is written before a change is carried out."""
    return AuditEvent(
        event="received",
        time=format_micro_timestamp(now),
        id=redact(request.audit_id),
        user=redact(request.caller.name),
        impersonated_user=_build_impersonated_user(request),
        source=request.source,
        verb=request.call.verb,
        path=redact(request.call.path),
        requests=_list_requests(request),
    )


def build_complete_event(request: ApiRequest, outcome: AuditOutcome, now: datetime) -> AuditEvent:
    """Build the line that is written before a response is sent."""
    call = request.call
    secret = has_secret_body(call) or any(has_secret_body(part.call) for part in request.parts)
    return AuditEvent(
        event="complete",
        time=format_micro_timestamp(now),
        id=redact(request.audit_id),
        user=redact(request.caller.name),
        groups=tuple(map(redact, request.caller.groups)),
        impersonated_user=_build_impersonated_user(request),
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
        requests=_list_requests(request, outcome.parts),
    )


def _list_requests(request: ApiRequest, results: Sequence[PartResult] = ()) -> tuple[AuditedRequest, ...]:
    """The requests inside a transaction."""
    if not request.parts:
        return ()
    done = results or (PartResult(),) * len(request.parts)
    return tuple(
        AuditedRequest(
            part.call.verb,
            redact(part.call.group),
            redact(part.call.version),
            redact(part.call.plural),
            redact(part.call.subresource),
            redact(part.call.namespace),
            redact(part.call.name or result.name),
            result.code,
        )
        for part, result in zip(request.parts, done, strict=True)
    )


def _build_impersonated_user(request: ApiRequest) -> ImpersonatedUser | None:
    if request.impersonator is None:
        return None
    user = request.user
    return ImpersonatedUser(redact(user.name), tuple(map(redact, user.groups)), redact(user.uid))


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
