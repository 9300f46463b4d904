"""Every `Status` becomes the failure its reader looks for."""

from __future__ import annotations

import json

import pytest

from dray.client import errors
from dray.client.errors import ApiError, Cause, NotFound, failure_in, failure_of
from dray.client.transport import Reply

STATUSES = [
    (400, "BadRequest", errors.BadRequest),
    (401, "Unauthorized", errors.Unauthorized),
    (403, "Forbidden", errors.Forbidden),
    (404, "NotFound", errors.NotFound),
    (409, "AlreadyExists", errors.AlreadyExists),
    (409, "Conflict", errors.Conflict),
    (410, "Expired", errors.Expired),
    (410, "Gone", errors.Expired),
    (422, "Invalid", errors.Invalid),
    (429, "TooManyRequests", errors.TooManyRequests),
    (500, "InternalError", errors.ServerFault),
    (503, "ServiceUnavailable", errors.Unavailable),
    (504, "Timeout", errors.ServerTimeout),
    (418, "Teapot", ApiError),
]


@pytest.mark.parametrize(("code", "reason", "shape"), STATUSES)
def test_a_status_becomes_its_failure(code, reason, shape):
    body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": "no"}).encode()
    failure = failure_in(Reply(code, {}, body))
    assert type(failure) is shape
    assert (failure.code, failure.reason, failure.message, str(failure)) == (code, reason, "no", "no")


def test_causes_and_times_to_wait_are_kept():
    status = {
        "reason": "Invalid",
        "code": 422,
        "details": {"causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}, None]},
    }
    failure = failure_of(status)
    assert failure.causes == (Cause("FieldValueInvalid", "m", "spec.x"), Cause("", "", ""))
    assert failure.retry_after is None
    assert failure_of({"code": 504, "details": {"retryAfterSeconds": 3}}).retry_after == 3
    reply = Reply(429, {"retry-after": "7"}, b"{}")
    assert failure_in(reply).retry_after == 7
    assert failure_in(Reply(429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"{}")).retry_after is None


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[]", b'{"kind":"Other"}', b"\xff\xfe"])
def test_answers_that_are_no_status_are_told_as_they_are(body):
    failure = failure_in(Reply(502, {}, body))
    assert type(failure) is ApiError
    assert failure.message.startswith("the server answered 502")
    assert len(failure_in(Reply(502, {}, b"x" * 10_000)).message) < 400


def test_a_missing_object_is_not_a_missing_resource():
    assert NotFound(404, {"details": {}}).of_resource
    assert not NotFound(404, {"details": {"name": "a", "kind": "pods"}}).of_resource
