"""API errors: every way a request can fail, as the `Status` documents that Kubernetes clients understand.

An error is raised where it is found, and the application renders it once. Its message is for people: it
keeps the words of Kubernetes where programs read them, and says what would help everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dray.api.fields import FieldError
from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.errors import DrayError


class ApiStatusError(DrayError):
    """Why a request was not carried out."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = tuple(headers)

    def to_status(self) -> dict[str, Any]:
        """The error as a `Status`."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            status["details"] = dict(self.details)
        return status | {"code": self.code}

    def encode(self) -> bytes:
        """The `Status` as JSON."""
        return write_json(self.to_status())


def _format_resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _build_details(kind: Kind, name: str) -> dict[str, Any]:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in details.items() if value}


def new_not_found(kind: Kind, name: str) -> ApiStatusError:
    return ApiStatusError(
        404, "NotFound", f'{_format_resource(kind)} "{name}" not found', _build_details(kind, name)
    )


def new_path_not_found() -> ApiStatusError:
    return ApiStatusError(404, "NotFound", "the server could not find the requested resource", {})


def new_already_exists(kind: Kind, name: str) -> ApiStatusError:
    message = f'{_format_resource(kind)} "{name}" already exists'
    return ApiStatusError(409, "AlreadyExists", message, _build_details(kind, name))


OBJECT_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def new_conflict(
    kind: Kind, name: str, why: str = OBJECT_MODIFIED, causes: Sequence[Mapping[str, str]] = ()
) -> ApiStatusError:
    message = f'Operation cannot be fulfilled on {_format_resource(kind)} "{name}": {why}'
    return ApiStatusError(409, "Conflict", message, _add_causes(_build_details(kind, name), causes))


def _add_causes(details: dict[str, Any], causes: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return details | {"causes": [dict(cause) for cause in causes]} if causes else details


def new_invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> ApiStatusError:
    """The error for an object that is not valid for its kind."""
    texts = [str(error) for error in errors]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "name": name,
        "group": kind.group,
        "kind": kind.name,
        "causes": [
            {"reason": error.type.value, "message": error.body, "field": error.path} for error in errors
        ],
    }
    message = f'{kind.qualified_name} "{name}" is invalid: {text}'
    return ApiStatusError(422, "Invalid", message, {key: value for key, value in details.items() if value})


def new_invalid_options(
    options: str, field: str, what: str, cause: str = "FieldValueForbidden"
) -> ApiStatusError:
    """The error for query parameters or a body of options that are not valid."""
    return ApiStatusError(
        422,
        "Invalid",
        f'{options}.meta.k8s.io "" is invalid: {field}: {what}',
        {
            "group": "meta.k8s.io",
            "kind": options,
            "causes": [{"reason": cause, "message": what, "field": field}],
        },
    )


def new_bad_request(message: str) -> ApiStatusError:
    return ApiStatusError(400, "BadRequest", message)


def new_unauthorized() -> ApiStatusError:
    return ApiStatusError(401, "Unauthorized", "Unauthorized")


def new_forbidden(
    kind: Kind, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()
) -> ApiStatusError:
    subject = f'{_format_resource(kind)} "{name}"' if name else _format_resource(kind)
    details = _add_causes(_build_details(kind, name), causes)
    return ApiStatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def new_method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> ApiStatusError:
    return ApiStatusError(405, "MethodNotAllowed", message, {})


def new_not_acceptable(available: Sequence[str]) -> ApiStatusError:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(available)}"
    return ApiStatusError(406, "NotAcceptable", message, {})


def new_expired(message: str) -> ApiStatusError:
    return ApiStatusError(410, "Expired", message)


def new_too_large(message: str) -> ApiStatusError:
    return ApiStatusError(413, "RequestEntityTooLarge", message)


def new_unsupported_media_type(accepted: Sequence[str], hint: str = "") -> ApiStatusError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(accepted)}{hint}"
    )
    return ApiStatusError(415, "UnsupportedMediaType", message)


def new_too_many_requests(message: str, seconds: int = 1) -> ApiStatusError:
    return ApiStatusError(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": seconds},
        headers=[("retry-after", str(seconds))],
    )


def new_internal_error(message: str) -> ApiStatusError:
    return ApiStatusError(500, "InternalError", f"Internal error occurred: {message}")


def new_service_unavailable(message: str, seconds: int = 1) -> ApiStatusError:
    return ApiStatusError(
        503,
        "ServiceUnavailable",
        message,
        {"retryAfterSeconds": seconds},
        headers=[("retry-after", str(seconds))],
    )


def new_timeout(message: str, *, cause: tuple[str, str] | None = None, seconds: int = 1) -> ApiStatusError:
    details: dict[str, Any] = {}
    if cause is not None:
        details["causes"] = [{"reason": cause[0], "message": cause[1]}]
    return ApiStatusError(504, "Timeout", message, details | {"retryAfterSeconds": seconds})


def new_version_too_large(requested: int, current: int) -> ApiStatusError:
    """The error for a revision that this server has not seen; the client may have it from another server."""
    return new_timeout(
        f"Timeout: Too large resource version: {requested}, current: {current}",
        cause=("ResourceVersionTooLarge", "Too large resource version"),
    )
