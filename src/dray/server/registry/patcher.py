"""Patches: JSON, merge, strategic merge and apply, each a way to make the new object from the stored one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.json_text import surely_json
from dray.api.kinds import Kind
from dray.server.http.errors import (
    Failure,
    bad_request,
    conflict,
    invalid_options,
    not_found,
    unsupported_media,
)
from dray.server.http.request_body import body_document, parsed, strictness, understood
from dray.server.http.requests import Request
from dray.server.objects.conversion import inward, outward
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held
from dray.server.patch import json_patch, merge_patch, strategic_merge_patch
from dray.server.patch.errors import ApplyConflict, PatchError
from dray.server.patch.managed_fields import field_ownership
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import Proposal, Written
from dray.server.registry.strategies import has_status
from dray.server.registry.writer import Writing

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
ACCEPTED: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class Patching:
    """Carries out patches."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    async def patch(self, request: Request, kind: Kind, version: str) -> Written:
        """Change a stored object; an apply creates it when it is absent."""
        call, patch = request.call, parsed_patch(request)
        warnings: list[str] = []
        mode, content_type = strictness(request), request.content_type
        if content_type == APPLY_PATCH:
            _check_apply(request)

        def decide(old: Held | None) -> Proposal:
            warnings.clear()
            if content_type == APPLY_PATCH:
                return self._applied(request, (kind, version), patch, old, warnings)
            if old is None:
                raise not_found(kind, call.name)
            document = outward(kind, version, old.document)
            # Operations may nest what they move; a merge is no deeper than what is merged.
            sound = content_type != JSON_PATCH and surely_json(request.body)
            patched = _patched(kind, content_type, document, patch, sound)
            made = understood(kind, version, patched, mode, sound=sound)
            warnings[:] = made.warnings
            object_metadata.check_preconditions(kind, old, made.draft.metadata)
            return self._writing.growth(request, version, made.draft, old, warnings)

        written = await self._writing.registry.write(request, kind, call.namespace, call.name, decide)
        return Written(written.held, written.created, written.gone, (*warnings, *written.warnings))

    def _applied(
        self, request: Request, spoken: tuple[Kind, str], patch: Any, old: Held | None, warnings: list[str]
    ) -> Proposal:
        (kind, version), call = spoken, request.call
        body = understood(kind, version, patch, strictness(request))
        warnings[:] = body.warnings
        object_metadata.check_name(body.draft.metadata, call.name)
        wanted = _writable_part(body.draft, inward(kind, version, patch), call.subresource)
        try:
            outcome = field_ownership.applied(
                body.draft.kind,
                None if old is None else old.document,
                wanted,
                manager=call.query["fieldManager"],
                force=call.query.get("force") in ("true", "1", "True"),
                now=self._writing.world.now,
                subresource=call.subresource,
            )
        except ApplyConflict as lost:
            raise _lost(kind, call.name, lost) from None
        except PatchError as wrong:
            raise _refused(wrong) from None
        made = understood(body.draft.kind, body.draft.kind.version, outcome.document)
        fields = list(outcome.managed_fields)
        if old is None:
            if call.subresource or made.draft.metadata.get("uid"):
                raise not_found(kind, call.name)
            place = (object_metadata.placed(kind, made.draft.metadata, call.namespace), call.name)
            return self._writing.birth(request, version, made.draft, place, warnings, fields)
        object_metadata.check_preconditions(kind, old, body.draft.metadata)
        return self._writing.growth(request, version, made.draft, old, warnings, fields)


def parsed_patch(request: Request) -> Any:
    """The body of a patch; raises a `Failure` when its type is none of ours."""
    if request.content_type == APPLY_PATCH:
        return parsed(request.body)
    if request.content_type not in ACCEPTED:
        raise unsupported_media(ACCEPTED)
    return body_document(Request(request.call, request.user, {}, request.body))


def _check_apply(request: Request) -> None:
    if not request.call.query.get("fieldManager"):
        raise invalid_options(
            "PatchOptions",
            "fieldManager",
            "Required value: is required for apply patch",
            "FieldValueRequired",
        )


def _patched(kind: Kind, content_type: str, document: Mapping[str, Any], patch: Any, shallow: bool) -> Any:
    try:
        if content_type == JSON_PATCH:
            return json_patch.apply(document, patch)
        if not isinstance(patch, dict):
            raise bad_request("a merge patch must be an object, for example `{}`")
        if content_type == MERGE_PATCH:
            return merge_patch.apply(document, patch, shallow=shallow)
        return strategic_merge_patch.apply(kind, document, patch, shallow=shallow)
    except PatchError as wrong:
        raise _refused(wrong) from None


def _writable_part(draft: Draft, given: Mapping[str, Any], subresource: str) -> dict[str, Any]:
    """What of an applied configuration counts here: the status or the rest, never what the server owns."""
    kind = draft.kind
    parts: Mapping[str, Any] = given if kind.open else draft.document
    kept = {name: value for name, value in parts.items() if name in given}
    if subresource == "status":
        kept = {name: kept[name] for name in ("apiVersion", "kind", "metadata", "status") if name in kept}
    elif has_status(kind):
        kept.pop("status", None)
    return kept


def _refused(wrong: PatchError) -> Failure:
    reason = {413: "RequestEntityTooLarge", 422: "Invalid"}.get(wrong.code, "BadRequest")
    return Failure(wrong.code, reason, wrong.message)


def _lost(kind: Kind, name: str, lost: ApplyConflict) -> Failure:
    failure = conflict(kind, name, causes=lost.causes)
    return Failure(409, "Conflict", str(lost), failure.details)
