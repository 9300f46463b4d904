"""Decoding of request bodies: JSON, YAML or protobuf, in any served version, to pending objects.

Errors list everything that is wrong with a body, in the words of Kubernetes, because programs read those.
Unknown and duplicate fields become warnings, or errors in strict mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from dray.api import whole_objects
from dray.api.codec import DecodedObject, decode, decode_document
from dray.api.conversion import translate_path
from dray.api.decode_report import UnknownField
from dray.api.fields import FieldError
from dray.api.json_text import find_duplicate_fields, is_certainly_json, read_json
from dray.api.kinds import Kind
from dray.api.messages.field_tables import META_KINDS
from dray.errors import DecodeError, InputError, InputProblem
from dray.manifests.documents import read_documents
from dray.manifests.source import ManifestSource
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_invalid_options,
    new_unsupported_media_type,
)
from dray.server.http.requests import JSON, PROTOBUF, YAML, ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import get_storage_kind

YAML_TYPES: Final = (YAML, "application/x-yaml", "text/yaml")
ACCEPTED_BODY_TYPES: Final = (JSON, YAML, PROTOBUF)

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
_MAP_KEY: Final = re.compile(r"\[([^\]]*[^\]\d][^\]]*)\]")
_MAX_PROBLEMS: Final = 20
"""Nobody reads more wrong types in one message."""
_DUPLICATE_CHECK_BYTES: Final = 16_384
"""Bodies up to this size are searched for duplicate fields even when the client does not ask for it."""


class UndecodableBodyError(ApiStatusError):
    """A body that is not an object of its kind, or has fields that strict mode refuses."""

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(400, "BadRequest", message)
        self.problem = problem

    @classmethod
    def from_problem(cls, kind: str, version: str, problem: str) -> UndecodableBodyError:
        """The error for an object of the right kind with a problem inside."""
        return cls(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}', problem)


class DecodedBody(msgspec.Struct, frozen=True):
    """The object of a body, and warnings for its sender."""

    pending: PendingObject
    warnings: tuple[str, ...] = ()


def read_field_validation(request: ApiRequest) -> str:
    """The `fieldValidation` of a request: what to do about unknown and duplicate fields."""
    given = request.call.query.get("fieldValidation") or WARN
    if given not in (STRICT, WARN, IGNORE):
        what = f'Unsupported value: "{given}": supported values: "{IGNORE}", "{STRICT}", "{WARN}"'
        options = f"{request.call.verb.capitalize()}Options"
        raise new_invalid_options(options, "fieldValidation", what, "FieldValueNotSupported")
    return given


def decode_body(request: ApiRequest, default_names: tuple[str, str] = ("", "")) -> Any:
    """Decode the body to plain values, whatever its format.

    Protobuf is decoded by the kind it names; `default_names` are version and kind of a body that names none.
    """
    if request.content_type == JSON:
        return _parse_json(request.body)
    if request.content_type in YAML_TYPES:
        return _parse_yaml(request.body)
    if request.content_type == PROTOBUF:
        # Few clients send protobuf, and its runtime is slow to import.
        from dray.server.http.protobuf import decode

        return decode(request.body, default_names)
    raise new_unsupported_media_type(ACCEPTED_BODY_TYPES)


def decode_options(request: ApiRequest) -> dict[str, Any]:
    """Decode a body of options, such as those of a delete; empty when there is none."""
    if not request.body.strip():
        return {}
    document = decode_body(request)
    if not isinstance(document, dict):
        raise new_bad_request("the body of options must be an object, for example `{}`")
    return document


def decode_message(request: ApiRequest, api_version: str, name: str) -> dict[str, Any]:
    """Decode a body of a kind that is not stored, such as a binding or a review.

    It may leave out what it is, but not say that it is something else.
    """
    document = decode_options(request)
    # Options are the same in all groups, and clients name that of the object.
    named = document.get("apiVersion") or api_version
    _check_type_fields(document, {"apiVersion": named if name in META_KINDS else api_version, "kind": name})
    kept, found = whole_objects.check_message(api_version, name, document)
    if found.type_errors:
        raise UndecodableBodyError.from_problem(name, api_version, _explain_problems(found.type_errors))
    if found.unknown_fields and read_field_validation(request) == STRICT:
        reports = map(_describe_unknown_field, found.unknown_fields)
        raise UndecodableBodyError.from_problem(name, api_version, _explain_strictly(reports))
    return dict(kept)


def decode_object(request: ApiRequest, kind: Kind, version: str) -> DecodedBody:
    """Decode the object in a body and convert it to its storage version."""
    mode = read_field_validation(request)
    if request.content_type != JSON:
        names = kind.format_api_version(version), kind.name
        return convert_document(kind, version, decode_body(request, names), mode)
    _check_body(request.body)
    duplicates = () if request.has_unique_fields else find_duplicates(request.body, mode)
    decoded = _decode_fast(request.body, kind, version)
    if decoded is None:
        return convert_document(
            kind,
            version,
            _parse_json(request.body),
            mode,
            duplicates,
            prechecked=is_certainly_json(request.body),
        )
    return _build_decoded_body(decoded, mode, duplicates)


def _decode_fast(body: bytes, kind: Kind, version: str) -> DecodedObject | None:
    """Decode a well-formed body of the expected kind in one pass; None when the slow path must look at it."""
    try:
        if whole_objects.has_object_type(kind, version):
            return whole_objects.decode_text(kind, version, body)
        decoded = decode(body)
    except DecodeError:
        return None
    return decoded if decoded.kind is kind and decoded.version == version else None


def convert_document(
    kind: Kind,
    version: str,
    document: Any,
    mode: str = IGNORE,
    duplicates: Sequence[str] = (),
    prechecked: bool = False,
) -> DecodedBody:
    """Convert a client's document to a pending object; missing `kind` and `apiVersion` follow from the path.

    A `prechecked` document is known to contain nothing but JSON values.
    """
    given = _complete_type_fields(kind, version, document)
    try:
        if whole_objects.has_object_type(kind, version):
            decoded = whole_objects.decode_whole_document(kind, version, given, trusted=prechecked)
        else:
            decoded = decode_document(given, trusted=prechecked)
    except DecodeError as error:
        raise new_undecodable(kind, version, error) from None
    return _build_decoded_body(decoded, mode, duplicates)


def convert_parts(
    kind: Kind, document: Any, mode: str = IGNORE, duplicates: Sequence[str] = (), prechecked: bool = False
) -> DecodedBody:
    """Convert some of the top-level fields of a document, in the storage version; the others are empty."""
    if not whole_objects.has_object_type(kind, kind.version):
        return convert_document(kind, kind.version, document, mode, duplicates, prechecked)
    given = _complete_type_fields(kind, kind.version, document)
    try:
        decoded = whole_objects.decode_parts(kind, given, trusted=prechecked)
    except DecodeError as error:
        raise new_undecodable(kind, kind.version, error) from None
    return _build_decoded_body(decoded, mode, duplicates)


def _complete_type_fields(kind: Kind, version: str, document: Any) -> dict[str, Any]:
    """The document with `kind` and `apiVersion`; raises an `ApiStatusError` when it has others."""
    if not isinstance(document, dict):
        raise new_bad_request(f"the body must be an object of kind {kind.name}, for example a JSON object")
    expected = {"apiVersion": kind.format_api_version(version), "kind": kind.name}
    _check_type_fields(document, expected)
    return {**document, **expected}


def _check_type_fields(document: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    """Refuse a document that says it is of another kind or version."""
    for field, what in (("kind", "kind"), ("apiVersion", "API version")):
        given = document.get(field) or expected[field]
        if given != expected[field]:
            problem = (
                f"the {what} in the data ({given}) does not match the expected {what} ({expected[field]})"
            )
            raise UndecodableBodyError(problem, problem)


def _build_decoded_body(decoded: DecodedObject, mode: str, duplicates: Sequence[str]) -> DecodedBody:
    warnings = _collect_warnings(decoded, mode, duplicates)
    if decoded.document is None:
        return DecodedBody(PendingObject.from_view(decoded.kind, decoded.object), warnings)
    return DecodedBody(
        PendingObject(get_storage_kind(decoded.kind), _ensure_metadata(decoded.document), decoded.object),
        warnings,
    )


def _ensure_metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata")
    return {**document, "metadata": {} if metadata is None else metadata}


def new_undecodable(kind: Kind, version: str, error: DecodeError) -> ApiStatusError:
    """The error for a document that cannot be decoded as an object of its kind."""
    return UndecodableBodyError.from_problem(
        kind.name, version, _explain_problems(error.problems) or str(error)
    )


def _explain_problems(problems: Sequence[InputProblem]) -> str:
    """Name fields and what was expected there; values are not repeated, because they may be secret."""
    shown = [
        f"{problem.path}: {problem.detail}" if isinstance(problem, FieldError) else str(problem)
        for problem in problems[:_MAX_PROBLEMS]
    ]
    more = len(problems) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def convert_error_paths(kind: Kind, version: str, errors: Sequence[FieldError]) -> list[FieldError]:
    """Convert the field paths of errors to the version that the client sent."""
    if version == kind.version:
        return list(errors)
    return [replace(error, path=translate_path(kind, version, error.path)) for error in errors]


def _collect_warnings(decoded: DecodedObject, mode: str, duplicates: Sequence[str]) -> tuple[str, ...]:
    """Warnings about unknown and duplicate fields; raises an `ApiStatusError` in strict mode."""
    if mode == IGNORE:
        return ()
    warnings = list(map(_describe_unknown_field, decoded.unknown_fields))
    warnings += (f'duplicate field "{path}"' for path in duplicates)
    if warnings and mode == STRICT:
        raise UndecodableBodyError.from_problem(
            decoded.kind.name, decoded.version, _explain_strictly(warnings)
        )
    return tuple(warnings)


def _describe_unknown_field(unknown: UnknownField) -> str:
    """Name an unknown field as Go's decoder does, with dots before the keys of maps, too."""
    return str(replace(unknown, path=_MAP_KEY.sub(r".\1", unknown.path)))


def _explain_strictly(warnings: Iterable[str]) -> str:
    return f"strict decoding error: {', '.join(warnings)}"


def find_duplicates(body: bytes, mode: str) -> tuple[str, ...]:
    """The paths of fields that occur twice in a body, as far as the mode asks for it."""
    if mode == STRICT or (mode == WARN and len(body) <= _DUPLICATE_CHECK_BYTES):
        try:
            return find_duplicate_fields(body)
        except DecodeError as error:
            raise new_bad_request(str(error)) from None
    return ()


def parse_json_or_yaml(body: bytes) -> Any:
    """Parse a body that is YAML or JSON."""
    return _parse_json(body) if body.lstrip()[:1] == b"{" else _parse_yaml(body)


def _check_body(body: bytes) -> None:
    if not body.strip():
        raise new_bad_request("the request has no body; expected an object")


def _parse_json(body: bytes) -> Any:
    _check_body(body)
    try:
        return read_json(body)
    except DecodeError as error:
        raise new_bad_request(f"the object provided is unrecognized: {error}") from None


def _parse_yaml(body: bytes) -> Any:
    try:
        documents = list(read_documents(ManifestSource.decode("body", body)))
    except InputError as error:
        raise new_bad_request(f"error decoding YAML: {error}") from None
    if len(documents) != 1:
        raise new_bad_request(f"expected one YAML document, got {len(documents)}")
    return documents[0].value
