"""The exceptions of a call, as one tree.

    ClientError                     a call failed
    ├── ServerUnreachableError      no response; `sent` says whether the call may have happened
    ├── BrokenWatchError            a watch sent something that is no event; list again
    ├── KindNotServedError          the server serves no version of the kind that we support
    ├── NotLeaderError              a write was not sent: the process does not lead any more
    └── ApiError                    the server responded with a `Status` that says no
        ├── BadRequestError         400
        ├── UnauthorizedError       401
        ├── ForbiddenError          403
        ├── NotFoundError           404
        ├── AlreadyExistsError      409, the name is taken
        ├── ConflictError           409, the object changed, or a rule of the server objects
        ├── ResourceExpiredError    410, the requested version is too old; list again
        ├── InvalidObjectError      422, with one cause per field
        ├── TooManyRequestsError    429, with `retry_after`
        ├── InternalServerError     500
        ├── ServiceUnavailableError 503, with `retry_after`
        └── ServerTimeoutError      504

A `Status` with another code is a plain `ApiError`. Servers and proxies in between also respond without a
`Status`; the message then quotes their text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dray.api.json_text import read_json
from dray.client.transport import TransportResponse
from dray.errors import DecodeError, DrayError

MAX_SHOWN_CHARS = 300
"""How many characters of a response that is no `Status` are shown."""


class ClientError(DrayError):
    """A call failed."""


class ServerUnreachableError(ClientError):
    """No response. `sent` is False when the server cannot have seen the request."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class BrokenWatchError(ClientError):
    """A watch sent something that is no event of its kind."""


class KindNotServedError(ClientError):
    """The server serves no version of the kind that we support."""


class NotLeaderError(ClientError):
    """A write was not sent: the process does not lead any more."""


class StatusCause(NamedTuple):
    """One cause of a failure: a reason for programs, a message for people, and the field."""

    reason: str
    message: str
    field: str


class ApiError(ClientError):
    """The server responded with a `Status` that says no."""

    def __init__(self, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.code = code
        self.message = str(status.get("message") or f"the server answered {code}")
        self.reason = str(status.get("reason") or "")
        details = status.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, dict) else {}
        self.causes = tuple(_parse_cause(cause) for cause in self.details.get("causes") or ())
        seconds = self.details.get("retryAfterSeconds")
        self.retry_after = retry_after if retry_after is not None else float(seconds) if seconds else None
        super().__init__(self.message)


class BadRequestError(ApiError):
    """The server does not understand the request."""


class UnauthorizedError(ApiError):
    """The server does not accept the credentials."""


class ForbiddenError(ApiError):
    """The user may not do this."""


class NotFoundError(ApiError):
    """There is no such object, or no such resource."""

    @property
    def is_unknown_resource(self) -> bool:
        """Whether the server does not serve the kind at all."""
        return not self.details.get("name") and not self.details.get("kind")


class AlreadyExistsError(ApiError):
    """The name is taken."""


class ConflictError(ApiError):
    """The object is not what the request was made for, or a rule of the server objects."""


class ResourceExpiredError(ApiError):
    """The requested version is too old; list again."""


class InvalidObjectError(ApiError):
    """The object violates rules of its kind."""

    @property
    def names_opaque_parameters(self) -> bool:
        """Whether it is about a part of a claim that holds opaque parameters."""
        fields = [cause.field for cause in self.causes]
        return any(field == "spec" or field.startswith("status.allocation") for field in fields)


class TooManyRequestsError(ApiError):
    """The server is busy or a disruption budget is exhausted; try again later."""


class InternalServerError(ApiError):
    """An internal error of the server."""


class ServiceUnavailableError(ApiError):
    """The server cannot respond just now."""


class ServerTimeoutError(ApiError):
    """The server did not finish in time."""


_BY_CODE: Mapping[int, type[ApiError]] = MappingProxyType(
    {
        400: BadRequestError,
        401: UnauthorizedError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        410: ResourceExpiredError,
        422: InvalidObjectError,
        429: TooManyRequestsError,
        500: InternalServerError,
        503: ServiceUnavailableError,
        504: ServerTimeoutError,
    }
)
_BY_REASON: Mapping[str, type[ApiError]] = MappingProxyType({"AlreadyExists": AlreadyExistsError})


def build_api_error(status: Mapping[str, Any], code: int = 0, retry_after: float | None = None) -> ApiError:
    """Build the error for a `Status`."""
    status_code = status.get("code")
    code = code or (status_code if isinstance(status_code, int) else 0)
    error_type = _BY_REASON.get(str(status.get("reason"))) or _BY_CODE.get(code, ApiError)
    return error_type(code, status, retry_after)


def parse_api_error(response: TransportResponse) -> ApiError:
    """Build the error for a response, with or without a `Status`."""
    try:
        status = read_json(response.body)
    except DecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = response.body[:MAX_SHOWN_CHARS].decode("utf-8", "replace").strip()
        status = {"message": f"the server answered {response.code}" + (f": {text}" if text else "")}
    return build_api_error(status, response.code, _parse_seconds(response.headers.get("retry-after", "")))


def _parse_seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None


def _parse_cause(cause: Any) -> StatusCause:
    given = cause if isinstance(cause, dict) else {}
    return StatusCause(*(str(given.get(name) or "") for name in ("reason", "message", "field")))
