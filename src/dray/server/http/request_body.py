"""Request bodies become drafts: JSON, YAML or protobuf, any version served, unknown fields told or refused.

What is wrong with a body is told completely, in the words Kubernetes uses for it, because programs read
those; what was dropped or not understood comes back as warnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api.codec import Decoded, decode, decode_document
from dray.api.conversion import place_in
from dray.api.fields import FieldError
from dray.api.json_text import duplicate_fields, read_json, surely_json
from dray.api.kinds import Kind
from dray.errors import DecodeError, InputError
from dray.manifests.documents import read as read_documents
from dray.manifests.source import Source
from dray.server.http import protobuf
from dray.server.http.errors import Failure, bad_request, invalid, unsupported_media
from dray.server.http.requests import JSON, Request
from dray.server.objects.conversion import inward
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import keeper

YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
ACCEPTED: Final = (JSON, YAML[0], PROTOBUF)

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
_SMALL: Final = 16_384
"""Bodies up to this size are searched for duplicate fields even when nobody asked to be strict."""


class Taken(msgspec.Struct, frozen=True):
    """A body that was understood, and what its sender should know."""

    draft: Draft
    warnings: tuple[str, ...] = ()


def strictness(request: Request) -> str:
    """What to do about unknown and duplicate fields."""
    given = request.call.query.get("fieldValidation") or WARN
    if given not in (STRICT, WARN, IGNORE):
        raise bad_request(f'invalid fieldValidation "{given}": expected one of Ignore, Warn, Strict')
    return given


def body_document(request: Request) -> Any:
    """The body as plain values, whatever its format."""
    if request.content_type == JSON:
        return _json(request.body)
    if request.content_type in YAML:
        return _yaml(request.body)
    if request.content_type == PROTOBUF:
        return protobuf.decode(request.body)
    raise unsupported_media(ACCEPTED)


def options(request: Request) -> dict[str, Any]:
    """A body of options, such as those of a delete; empty when there is none."""
    if not request.body.strip():
        return {}
    document = body_document(request)
    if not isinstance(document, dict):
        raise bad_request("the body of options must be an object, for example `{}`")
    return document


def taken(request: Request, kind: Kind, version: str) -> Taken:
    """The object in a body, brought to the form it is kept in."""
    mode = strictness(request)
    if request.content_type != JSON:
        return understood(kind, version, body_document(request), mode)
    _check_body(request.body)
    repeated = () if request.tidy else _repeated(request.body, mode)
    decoded = None
    if kind.kept_as is None:
        decoded = _straight(request.body, kind, version)
    if decoded is None:
        return understood(kind, version, _json(request.body), mode, repeated, sound=surely_json(request.body))
    return _taken(decoded, mode, repeated)


def _straight(body: bytes, kind: Kind, version: str) -> Decoded | None:
    """A sound body of the right kind, decoded the fast way; None when it needs a closer look."""
    try:
        decoded = decode(body)
    except DecodeError:
        return None
    return decoded if decoded.kind is kind and decoded.version == version else None


def understood(
    kind: Kind,
    version: str,
    document: Any,
    mode: str = IGNORE,
    repeated: Sequence[str] = (),
    sound: bool = False,
) -> Taken:
    """A document of a client as a draft; what it does not say of its kind is known from the path.

    What is `sound` was looked through for things that are not JSON before.
    """
    if not isinstance(document, dict):
        raise bad_request(f"the body must be an object of kind {kind.name}, for example a JSON object")
    wanted = {"apiVersion": kind.api_version(version), "kind": kind.name}
    given = {**document, **{field: document.get(field) or wanted[field] for field in wanted}}
    for field, what in (("kind", "kind"), ("apiVersion", "API version")):
        if given[field] != wanted[field]:
            raise bad_request(
                f"the {what} in the data ({given[field]}) does not match "
                f"the expected {what} ({wanted[field]})"
            )
    try:
        decoded = decode_document(
            given if kind.kept_as is None else inward(kind, version, given), sound=sound
        )
    except DecodeError as broken:
        raise unreadable(kind, version, broken, _name(given)) from None
    return _taken(decoded, mode, repeated)


def _taken(decoded: Decoded, mode: str, repeated: Sequence[str]) -> Taken:
    warnings = _told(decoded, mode, repeated)
    if decoded.document is None:
        return Taken(Draft.of_view(decoded.kind, decoded.object), warnings)
    return Taken(Draft(keeper(decoded.kind), _with_metadata(decoded.document), decoded.object), warnings)


def _with_metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata")
    return {**document, "metadata": {} if metadata is None else metadata}


def _name(document: Mapping[str, Any]) -> str:
    """The name in a document that may be anything."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def unreadable(kind: Kind, version: str, broken: DecodeError, name: str = "") -> Failure:
    """A document that cannot become an object of its kind."""
    errors = [problem for problem in broken.problems if isinstance(problem, FieldError)]
    if errors:
        return (
            invalid(kind, name, errors) if len(errors) == len(broken.problems) else bad_request(str(broken))
        )
    return bad_request(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {broken}')


def placed(kind: Kind, version: str, errors: Sequence[FieldError]) -> list[FieldError]:
    """Errors with the paths of the version the client wrote."""
    if version == kind.version:
        return list(errors)
    return [
        FieldError(error.fault, place_in(kind, version, error.path), error.value, error.detail)
        for error in errors
    ]


def _told(decoded: Decoded, mode: str, repeated: Sequence[str]) -> tuple[str, ...]:
    """Warnings about fields that were not understood; a failure when the client wants to be strict."""
    if mode == IGNORE:
        return ()
    told = [str(unknown) for unknown in decoded.unknown]
    told += (f'duplicate field "{path}"' for path in repeated)
    if told and mode == STRICT:
        kind = decoded.kind.name
        raise bad_request(
            f'{kind} in version "{decoded.version}" cannot be handled as a {kind}: '
            f"strict decoding error: {', '.join(told)}"
        )
    return tuple(told)


def _repeated(body: bytes, mode: str) -> tuple[str, ...]:
    if mode == STRICT or (mode == WARN and len(body) <= _SMALL):
        try:
            return duplicate_fields(body)
        except DecodeError as broken:
            raise bad_request(str(broken)) from None
    return ()


def parsed(body: bytes) -> Any:
    """A body that may be YAML or JSON, as plain values."""
    return _json(body) if body.lstrip()[:1] == b"{" else _yaml(body)


def _check_body(body: bytes) -> None:
    if not body.strip():
        raise bad_request("the request has no body; expected an object")


def _json(body: bytes) -> Any:
    _check_body(body)
    try:
        return read_json(body)
    except DecodeError as broken:
        raise bad_request(f"the object provided is unrecognized: {broken}") from None


def _yaml(body: bytes) -> Any:
    try:
        found = list(read_documents(Source.decode("body", body)))
    except InputError as broken:
        raise bad_request(f"error decoding YAML: {broken}") from None
    if len(found) != 1:
        raise bad_request(f"expected one YAML document, got {len(found)}")
    return found[0].value
