"""Every `Status` becomes the error its caller catches."""

from __future__ import annotations

import json

import pytest

from dray.client import errors
from dray.client.errors import ApiError, NotFoundError, StatusCause, build_api_error, parse_api_error
from dray.client.transport import TransportResponse

STATUSES = [
    (400, "BadRequest", errors.BadRequestError),
    (401, "Unauthorized", errors.UnauthorizedError),
    (403, "Forbidden", errors.ForbiddenError),
    (404, "NotFound", errors.NotFoundError),
    (409, "AlreadyExists", errors.AlreadyExistsError),
    (409, "Conflict", errors.ConflictError),
    (410, "Expired", errors.ResourceExpiredError),
    (410, "Gone", errors.ResourceExpiredError),
    (422, "Invalid", errors.InvalidObjectError),
    (429, "TooManyRequests", errors.TooManyRequestsError),
    (500, "InternalError", errors.InternalServerError),
    (503, "ServiceUnavailable", errors.ServiceUnavailableError),
    (504, "Timeout", errors.ServerTimeoutError),
    (418, "Teapot", ApiError),
]


@pytest.mark.parametrize(("code", "reason", "shape"), STATUSES)
def test_a_status_becomes_its_failure(code, reason, shape):
    body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": "no"}).encode()
    failure = parse_api_error(TransportResponse(code, {}, body))
    assert type(failure) is shape
    assert (failure.code, failure.reason, failure.message, str(failure)) == (code, reason, "no", "no")


def test_causes_and_times_to_wait_are_kept():
    status = {
        "reason": "Invalid",
        "code": 422,
        "details": {"causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}, None]},
    }
    failure = build_api_error(status)
    assert failure.causes == (StatusCause("FieldValueInvalid", "m", "spec.x"), StatusCause("", "", ""))
    assert failure.retry_after is None
    assert build_api_error({"code": 504, "details": {"retryAfterSeconds": 3}}).retry_after == 3
    reply = TransportResponse(429, {"retry-after": "7"}, b"{}")
    assert parse_api_error(reply).retry_after == 7
    assert (
        parse_api_error(
            TransportResponse(429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"{}")
        ).retry_after
        is None
    )


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[]", b'{"kind":"Other"}', b"\xff\xfe"])
def test_responses_that_are_no_status_are_quoted(body):
    failure = parse_api_error(TransportResponse(502, {}, body))
    assert type(failure) is ApiError
    assert failure.message.startswith("the server answered 502")
    assert len(parse_api_error(TransportResponse(502, {}, b"x" * 10_000)).message) < 400


def test_a_missing_object_is_not_a_missing_resource():
    assert NotFoundError(404, {"details": {}}).is_unknown_resource
    assert not NotFoundError(404, {"details": {"name": "a", "kind": "pods"}}).is_unknown_resource
