"""Everything that can go wrong with a call, as one tree of exceptions.

    ClientError                nothing came of a call
    ├── Unreachable            no answer: refused, reset, timed out; `sent` says whether it may have happened
    ├── WatchBroken            a watch said something that is no event; list again
    ├── NotServed              the server has no version of the kind that we speak
    ├── OutOfOffice            a write was not sent: whoever asked for it does not lead any more
    └── ApiError               the server answered with a `Status` that says no
        ├── BadRequest         400
        ├── Unauthorized       401
        ├── Forbidden          403
        ├── NotFound           404
        ├── AlreadyExists      409, the name is taken
        ├── Conflict           409, the object changed, or a rule of the server objects
        ├── Expired            410, the past asked for is gone; read the present
        ├── Invalid            422, with one cause per field
        ├── TooManyRequests    429, with `retry_after`
        ├── ServerFault        500
        ├── Unavailable        503, with `retry_after`
        └── ServerTimeout      504

A `Status` nobody knows is a plain `ApiError`. Servers and proxies in between also answer without a `Status`;
what they said then stands in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dray.api.json_text import read_json
from dray.client.transport import TransportResponse
from dray.errors import DecodeError, DrayError

MAX_SHOWN_CHARS = 300
"""How many characters of an answer that is no `Status` are worth showing."""


class ClientError(DrayError):
    """Nothing came of a call."""


class ServerUnreachableError(ClientError):
    """No answer. `sent` is False when the server cannot have seen the request."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class BrokenWatchError(ClientError):
    """A watch said something that is no event of its kind."""


class KindNotServedError(ClientError):
    """The server has no version of the kind that we speak."""


class NotLeaderError(ClientError):
    """A write was not sent: whoever asked for it does not lead any more."""


class StatusCause(NamedTuple):
    """One reason for a failure: a word for programs, a text for people, the field it is about."""

    reason: str
    message: str
    field: str


class ApiError(ClientError):
    """The server answered with a `Status` that says no."""

    def __init__(self, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.code = code
        self.message = str(status.get("message") or f"the server answered {code}")
        self.reason = str(status.get("reason") or "")
        details = status.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, dict) else {}
        self.causes = tuple(_parse_cause(cause) for cause in self.details.get("causes") or ())
        told = self.details.get("retryAfterSeconds")
        self.retry_after = retry_after if retry_after is not None else float(told) if told else None
        super().__init__(self.message)


class BadRequestError(ApiError):
    """The server does not understand the request."""


class UnauthorizedError(ApiError):
    """The server does not know who asks."""


class ForbiddenError(ApiError):
    """Who asks may not do this."""


class NotFoundError(ApiError):
    """There is no such object, or no such resource."""

    @property
    def is_unknown_resource(self) -> bool:
        """Whether the whole kind is unknown to the server, and not only this name."""
        return not self.details.get("name") and not self.details.get("kind")


class AlreadyExistsError(ApiError):
    """The name is taken."""


class ConflictError(ApiError):
    """The object is not what the request was made for, or a rule of the server objects."""


class ResourceExpiredError(ApiError):
    """The past asked for is gone; read the present."""


class InvalidObjectError(ApiError):
    """The object breaks rules of its kind."""


class TooManyRequestsError(ApiError):
    """The server is busy or a budget is used up; ask again later."""


class InternalServerError(ApiError):
    """Something is broken in the server."""


class ServiceUnavailableError(ApiError):
    """The server cannot answer just now."""


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
    """The failure a `Status` tells."""
    told = status.get("code")
    code = code or (told if isinstance(told, int) else 0)
    shape = _BY_REASON.get(str(status.get("reason"))) or _BY_CODE.get(code, ApiError)
    return shape(code, status, retry_after)


def parse_api_error(response: TransportResponse) -> ApiError:
    """The failure an answer tells, whoever wrote it."""
    try:
        status = read_json(response.body)
    except DecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        said = response.body[:MAX_SHOWN_CHARS].decode("utf-8", "replace").strip()
        status = {"message": f"the server answered {response.code}" + (f": {said}" if said else "")}
    return build_api_error(status, response.code, _parse_seconds(response.headers.get("retry-after", "")))


def _parse_seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None


def _parse_cause(cause: Any) -> StatusCause:
    given = cause if isinstance(cause, dict) else {}
    return StatusCause(*(str(given.get(name) or "") for name in ("reason", "message", "field")))
