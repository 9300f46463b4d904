"""What a line of the audit log says.

A write leaves two lines: a short one before it is carried out (`received`) and a whole one before it is
answered (`complete`). A refusal leaves the whole one. Reads that are allowed leave none. What the server
does by itself leaves one before it is done (`inside`). What an admission webhook wants to have on record has
one of its own, with the id of the request (`annotated`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from dray.clock import precise_timestamp
from dray.server.admission.change import Change
from dray.server.audit.redaction import holds_secrets, shown_query
from dray.server.http.requests import WRITES, Call, Request
from dray.telemetry.redaction import plain

DENIALS = frozenset({401, 403, 429})
NO_HASH = "withheld"
_OTHER_WRITES = frozenset({"post", "put", "patch", "delete"})
REVIEWS = frozenset(
    {"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
)
"""Resources that are only asked with `create`; nothing is written by it."""


class Outcome(msgspec.Struct, frozen=True):
    """How a request ended: the code, the reason of its `Status`, and why it was allowed or denied."""

    code: int
    seconds: float = 0.0
    reason: str = ""
    decision: str = ""
    name: str = ""
    """The name of the object, when the request did not say it."""
    body: bytes = b""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line, as it is written behind its number and the hash of the line before."""

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


def is_write(call: Call) -> bool:
    """Whether a call may change something; reviews are only questions."""
    if call.is_resource:
        return call.verb in WRITES and call.plural not in REVIEWS
    return call.verb in _OTHER_WRITES


def when(moment: datetime) -> str:
    """A time in UTC to the microsecond."""
    return precise_timestamp(moment)


def received(request: Request, now: datetime) -> Line:
    """The line that is written before a change is carried out."""
    return Line(
        event="received",
        time=when(now),
        id=plain(request.audit_id),
        user=plain(request.user.name),
        source=request.source,
        verb=request.call.verb,
        path=plain(request.call.path),
    )


def complete(request: Request, outcome: Outcome, now: datetime) -> Line:
    """The line that is written before an answer is given."""
    call = request.call
    secret = holds_secrets(call)
    return Line(
        event="complete",
        time=when(now),
        id=plain(request.audit_id),
        user=plain(request.user.name),
        groups=tuple(map(plain, request.user.groups)),
        source=request.source,
        agent=plain(request.headers.get("user-agent", "")),
        verb=call.verb,
        path=plain(call.path),
        group=plain(call.group),
        version=plain(call.version),
        resource=plain(call.plural),
        subresource=plain(call.subresource),
        namespace=plain(call.namespace),
        name=plain(call.name or outcome.name),
        query=shown_query(call.query),
        code=outcome.code,
        reason=plain(outcome.reason),
        decision=plain(outcome.decision),
        milliseconds=round(outcome.seconds * 1000, 3),
        request=NO_HASH if secret else hash_of(request.body),
        response=NO_HASH if secret else hash_of(outcome.body),
    )


def by_itself(change: Change, now: datetime) -> Line:
    """The line of a change that no client asked for."""
    return Line(
        event="inside",
        time=when(now),
        user=change.request.user.name,
        agent=change.request.headers.get("user-agent", ""),
        verb=change.operation,
        group=change.kind.group,
        version=change.kind.version,
        resource=change.kind.plural,
        namespace=plain(change.namespace),
        name=plain(change.name),
    )


def annotated(audit_id: str, annotations: Mapping[str, str], now: datetime) -> Line:
    """The line of what webhooks want to have on record about a request."""
    told = {plain(name): plain(value) for name, value in annotations.items()}
    return Line(event="annotated", time=when(now), id=plain(audit_id), annotations=told)


def hash_of(body: bytes) -> str:
    """The hash of a body, or nothing when there is none."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}" if body else ""
