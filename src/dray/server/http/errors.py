"""Every way a request can fail, as the `Status` documents that Kubernetes clients understand.

A failure is raised where it is noticed and rendered once, at the door. Its message is for people: where
Kubernetes' own words are read by programs they are kept, and everywhere else the message says what would
help.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dray.api.fields import FieldError
from dray.api.kinds import Kind
from dray.errors import DrayError


class Failure(DrayError):  # noqa: N818 - the word of the protocol
    """A request that was not carried out."""

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

    def document(self) -> dict[str, Any]:
        """The `Status` that tells it."""
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


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _about(kind: Kind, name: str) -> dict[str, Any]:
    about = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in about.items() if value}


def not_found(kind: Kind, name: str) -> Failure:
    return Failure(404, "NotFound", f'{_resource(kind)} "{name}" not found', _about(kind, name))


def no_such_path() -> Failure:
    return Failure(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(kind: Kind, name: str) -> Failure:
    message = f'{_resource(kind)} "{name}" already exists'
    return Failure(409, "AlreadyExists", message, _about(kind, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(kind: Kind, name: str, why: str = MODIFIED, causes: Sequence[Mapping[str, str]] = ()) -> Failure:
    message = f'Operation cannot be fulfilled on {_resource(kind)} "{name}": {why}'
    details = _about(kind, name) | ({"causes": [dict(cause) for cause in causes]} if causes else {})
    return Failure(409, "Conflict", message, details)


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> Failure:
    """An object that breaks rules of its kind."""
    texts = [str(error) for error in errors]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "name": name,
        "group": kind.group,
        "kind": kind.name,
        "causes": [
            {"reason": error.fault.value, "message": error.body, "field": error.path} for error in errors
        ],
    }
    message = f'{kind.qualified_name} "{name}" is invalid: {text}'
    return Failure(422, "Invalid", message, {key: value for key, value in details.items() if value})


def invalid_options(options: str, field: str, what: str, cause: str = "FieldValueForbidden") -> Failure:
    """Query parameters or a body of options that contradict themselves."""
    return Failure(
        422,
        "Invalid",
        f'{options}.meta.k8s.io "" is invalid: {field}: {what}',
        {
            "group": "meta.k8s.io",
            "kind": options,
            "causes": [{"reason": cause, "message": what, "field": field}],
        },
    )


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def unauthorized() -> Failure:
    return Failure(401, "Unauthorized", "Unauthorized")


def forbidden(kind: Kind, name: str, why: str) -> Failure:
    subject = f'{_resource(kind)} "{name}"' if name else _resource(kind)
    return Failure(403, "Forbidden", f"{subject} is forbidden: {why}", _about(kind, name))


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> Failure:
    return Failure(405, "MethodNotAllowed", message, {})


def not_acceptable(available: Sequence[str]) -> Failure:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(available)}"
    return Failure(406, "NotAcceptable", message, {})


def expired(message: str) -> Failure:
    return Failure(410, "Expired", message)


def too_large(message: str) -> Failure:
    return Failure(413, "RequestEntityTooLarge", message)


def unsupported_media(accepted: Sequence[str], hint: str = "") -> Failure:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(accepted)}{hint}"
    )
    return Failure(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, seconds: int = 1) -> Failure:
    return Failure(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": seconds},
        headers=[("retry-after", str(seconds))],
    )


def internal(message: str) -> Failure:
    return Failure(500, "InternalError", f"Internal error occurred: {message}")


def unavailable(message: str, seconds: int = 1) -> Failure:
    return Failure(
        503,
        "ServiceUnavailable",
        message,
        {"retryAfterSeconds": seconds},
        headers=[("retry-after", str(seconds))],
    )


def timed_out(message: str, *, cause: tuple[str, str] | None = None, seconds: int = 1) -> Failure:
    details: dict[str, Any] = {}
    if cause is not None:
        details["causes"] = [{"reason": cause[0], "message": cause[1]}]
    return Failure(504, "Timeout", message, details | {"retryAfterSeconds": seconds})


def version_too_large(asked: int, current: int) -> Failure:
    """A client asks for a future that has not come, maybe because it spoke to another server before."""
    return timed_out(
        f"Timeout: Too large resource version: {asked}, current: {current}",
        cause=("ResourceVersionTooLarge", "Too large resource version"),
    )
