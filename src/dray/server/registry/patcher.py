"""The object patcher: JSON patch, merge patch, strategic merge patch and server-side apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.fields import FieldError, FieldErrorType
from dray.api.json_text import is_certainly_json
from dray.api.kinds import Kind
from dray.clock import Clock, format_timestamp
from dray.server.http.errors import (
    ApiStatusError,
    new_bad_request,
    new_conflict,
    new_invalid,
    new_invalid_options,
    new_not_found,
    new_unsupported_media_type,
)
from dray.server.http.request_body import (
    STRICT,
    UndecodableBodyError,
    convert_document,
    convert_parts,
    decode_body,
    find_duplicates,
    parse_json_or_yaml,
    read_field_validation,
)
from dray.server.http.requests import ApiRequest
from dray.server.objects.conversion import convert_from_storage, convert_to_storage, is_storage_version
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.patch import json_patch, merge_patch, strategic_merge_patch
from dray.server.patch.errors import ApplyConflictError, PatchError
from dray.server.patch.managed_fields import field_ownership
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import ProposedWrite, WriteRegistry, WriteResult
from dray.server.registry.strategies import has_status
from dray.server.registry.writer import ObjectWriter

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_MERGE_TYPES: Final = (MERGE_PATCH, STRATEGIC_PATCH)
_TYPE_FIELDS: Final = ("apiVersion", "kind")
_METADATA: Final = "metadata"
_STATUS: Final = "status"
ACCEPTED_PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class ObjectPatcher:
    """Carries out patches."""

    def __init__(self, registry: WriteRegistry, writer: ObjectWriter, clock: Clock) -> None:
        self._registry = registry
        self._writer = writer
        self._clock = clock

    async def patch(self, request: ApiRequest, kind: Kind, version: str) -> WriteResult:
        """Patch a stored object; an apply creates it when it is absent."""
        call, patch = request.call, parse_patch(request)
        warnings: list[str] = []
        mode, content_type = read_field_validation(request), request.content_type
        if content_type == APPLY_PATCH:
            _check_apply(request)
        else:
            _check_force(request)
        may_have_duplicates = content_type in _MERGE_TYPES and not request.has_unique_fields
        duplicates = find_duplicates(request.body, mode) if may_have_duplicates else ()
        part = _find_patched_part(request, kind, patch)

        def decide(old: StoredObject | None) -> ProposedWrite:
            warnings.clear()
            if content_type == APPLY_PATCH:
                return self._apply(request, (kind, version), patch, old, warnings)
            if old is None:
                raise new_not_found(kind, call.name)
            stored = PendingObject.from_stored(old)
            document = _select_document((kind, version), part, stored)
            # JSON patch operations may nest what they move; a merge is no deeper than its inputs.
            prechecked = content_type != JSON_PATCH and is_certainly_json(request.body)
            patched = _apply_patch(kind, content_type, document, patch, prechecked)
            try:
                if part:
                    body = convert_parts(kind, patched, mode, duplicates, prechecked)
                else:
                    body = convert_document(kind, version, patched, mode, duplicates, prechecked)
            except UndecodableBodyError as error:
                raise _to_invalid_patch(kind, call.name, error) from None
            warnings[:] = body.warnings
            object_metadata.check_name(body.pending.metadata, call.name, required=True)
            object_metadata.resolve_namespace(kind, body.pending.metadata, call.namespace)
            object_metadata.check_resource_version(kind, old, body.pending.metadata)
            pending = stored.take_metadata(body.pending) if part == _METADATA else body.pending
            return self._writer.propose_update(request, version, pending, stored, warnings)

        result = await self._registry.write(request, kind, call.namespace, call.name, decide)
        return WriteResult(result.stored, result.created, result.deleted, (*warnings, *result.warnings))

    def _apply(
        self,
        request: ApiRequest,
        kind_version: tuple[Kind, str],
        patch: Any,
        old: StoredObject | None,
        warnings: list[str],
    ) -> ProposedWrite:
        (kind, version), call = kind_version, request.call
        _check_applied_kind(patch)
        # The fields of an applied configuration get an owner, so there is no way to ignore unknown ones.
        body = convert_document(kind, version, patch, STRICT)
        warnings += body.warnings
        given, sent = body.pending, convert_to_storage(kind, version, patch)
        object_metadata.check_name(given.metadata, call.name)
        try:
            outcome = field_ownership.apply_configuration(
                given.kind,
                None if old is None else old.document,
                _select_writable_fields(given, sent, call.subresource),
                manager=call.query["fieldManager"],
                force=call.query.get("force") in ("true", "1", "True"),
                now=format_timestamp(self._clock.now()),
                subresource=call.subresource,
            )
        except ApplyConflictError as error:
            raise _to_conflict(kind, call.name, error) from None
        except PatchError as error:
            raise _to_api_error(error) from None
        applied = convert_document(given.kind, given.kind.version, outcome.document).pending
        fields = list(outcome.managed_fields)
        if old is None:
            if call.subresource:
                raise new_not_found(kind, call.name)
            object_metadata.check_absent_uid(kind, call.name, applied.metadata)
            place = object_metadata.resolve_namespace(kind, applied.metadata, call.namespace), call.name
            return self._writer.propose_create(request, version, applied, place, warnings, fields)
        object_metadata.check_preconditions(kind, old, given.metadata)
        stored = PendingObject.from_stored(old)
        return self._writer.propose_update(request, version, applied, stored, warnings, fields)


def parse_patch(request: ApiRequest) -> Any:
    """The body of a patch; raises an `ApiStatusError` when its media type is not supported."""
    if request.content_type == APPLY_PATCH:
        return parse_json_or_yaml(request.body)
    if request.content_type not in ACCEPTED_PATCH_TYPES:
        raise new_unsupported_media_type(ACCEPTED_PATCH_TYPES)
    return decode_body(ApiRequest(request.call, request.user, {}, request.body))


def _find_patched_part(request: ApiRequest, kind: Kind, patch: Any) -> str:
    """The only part of an object that a patch names and writes: then nothing else is looked at.

    It is the status, or the metadata of a closed kind; empty when the patch may write more.
    """
    if request.content_type not in _MERGE_TYPES or not is_storage_version(kind, request.call.version):
        return ""
    if not isinstance(patch, dict):
        return ""
    part = request.call.subresource or _METADATA
    is_known = part == _STATUS or (part == _METADATA and not kind.open)
    return part if is_known and patch.keys() <= {*_TYPE_FIELDS, _METADATA, part} else ""


def _select_document(kind_version: tuple[Kind, str], part: str, stored: PendingObject) -> dict[str, Any]:
    """What a patch may name: the object in the client's version, or what belongs to the patched part.

    With a status, managed fields cannot be written.
    """
    kind, version = kind_version
    if not part:
        return convert_from_storage(kind, version, stored.document)
    document: dict[str, Any] = {"apiVersion": kind.internal_api_version, "kind": kind.name}
    if part == _METADATA:
        return {**document, _METADATA: stored.metadata}
    known = stored.document
    metadata = {name: value for name, value in known[_METADATA].items() if name != "managedFields"}
    document[_METADATA] = metadata
    return {**document, _STATUS: known[_STATUS]} if _STATUS in known else document


def _check_force(request: ApiRequest) -> None:
    """Refuse `force` for any other patch than an apply."""
    if request.call.query.get("force"):
        raise new_invalid_options("PatchOptions", "force", "Forbidden: may not be specified for this patch")


def _check_applied_kind(configuration: Any) -> None:
    """Refuse a configuration that does not say what it is, or brings managed fields."""
    if not isinstance(configuration, dict):
        return
    for field in ("apiVersion", "kind"):
        if not configuration.get(field):
            raise new_bad_request(f"an applied configuration needs `{field}`")
    metadata = configuration.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise new_bad_request("metadata.managedFields must be nil")


def _check_apply(request: ApiRequest) -> None:
    if not request.call.query.get("fieldManager"):
        raise new_invalid_options(
            "PatchOptions",
            "fieldManager",
            "Required value: is required for apply patch",
            "FieldValueRequired",
        )


def _apply_patch(
    kind: Kind, content_type: str, document: Mapping[str, Any], patch: Any, shallow: bool
) -> Any:
    try:
        if content_type == JSON_PATCH:
            return json_patch.apply(document, [] if patch is None else patch)
        if content_type == STRATEGIC_PATCH and (patch is None or isinstance(patch, dict)):
            return _merge_strategically(kind, document, patch or {}, shallow)
        if not isinstance(patch, dict):
            raise new_bad_request("a merge patch must be an object, for example `{}`")
        return merge_patch.apply(document, patch, shallow=shallow)
    except PatchError as error:
        raise _to_api_error(error) from None


def _merge_strategically(
    kind: Kind, document: Mapping[str, Any], patch: dict[str, Any], shallow: bool
) -> dict[str, Any]:
    """The result of a strategic merge patch, which does not change what an object is."""
    merged = strategic_merge_patch.apply(kind, document, patch, shallow=shallow)
    return {**merged, "apiVersion": document["apiVersion"], "kind": document["kind"]}


def _select_writable_fields(
    pending: PendingObject, given: Mapping[str, Any], subresource: str
) -> dict[str, Any]:
    """The part of an applied configuration that the request may write: the status, or the rest."""
    kind = pending.kind
    parts: Mapping[str, Any] = given if kind.open else pending.document
    kept = {name: value for name, value in parts.items() if name in given}
    if subresource == "status":
        kept = {name: kept[name] for name in ("apiVersion", "kind", "metadata", "status") if name in kept}
    elif has_status(kind):
        kept.pop("status", None)
    return kept


def _to_api_error(error: PatchError) -> ApiStatusError:
    reason = {413: "RequestEntityTooLarge", 422: "Invalid"}.get(error.code, "BadRequest")
    return ApiStatusError(error.code, reason, error.message)


def _to_invalid_patch(kind: Kind, name: str, error: UndecodableBodyError) -> ApiStatusError:
    """The error for a patch whose result cannot be decoded; the object may be secret and is not repeated."""
    invalid = FieldError(FieldErrorType.INVALID, "patch", "<omitted>", error.problem)
    return new_invalid(kind, name, [invalid])


def _to_conflict(kind: Kind, name: str, error: ApplyConflictError) -> ApiStatusError:
    conflict = new_conflict(kind, name, causes=error.build_causes)
    return ApiStatusError(409, "Conflict", str(error), conflict.details)
