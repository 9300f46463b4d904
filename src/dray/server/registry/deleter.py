"""Deletes: at once, after a time of grace, or when the last finalizer lets go.

Theory of operation: what nothing holds back is gone in one transaction. What has finalizers is marked as
being deleted and goes with the last of them. A pod on a node gets its time of grace: the node ends it and
deletes it again, without grace. What is to happen to dependents is written down as a finalizer, for the
collector to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.clock import format_timestamp
from dray.server.http.errors import ApiStatusError, new_bad_request, new_invalid_options, new_not_found
from dray.server.http.request_body import decode_options
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import (
    DeleteObject,
    LeaveUnchanged,
    SaveObject,
    WriteDecision,
    WriteResult,
)
from dray.server.registry.selectors import ListSelector
from dray.server.registry.writer import ObjectWriter

ORPHAN, BACKGROUND, FOREGROUND = "Orphan", "Background", "Foreground"
PROPAGATION_FINALIZERS: Final[Mapping[str, str]] = {ORPHAN: "orphan", FOREGROUND: "foregroundDeletion"}
"""The finalizer that remembers what becomes of dependents."""

_GRACEFUL_KINDS: Final = (("", "Pod"), ("", "Namespace"))
"""Kinds that may stay a while after their deletion for other reasons than finalizers."""
_TERMINAL_PHASES: Final = ("Succeeded", "Failed")
_MAX_GRACE_SECONDS: Final = 2**31
"""Seconds, some 68 years: who asks for more means for ever, and calendars end."""


class ObjectDeleter:
    """Carries out deletes."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer

    @property
    def revision(self) -> int:
        """How far the server has seen the store come."""
        return self._writer.registry.cache.revision

    async def delete(self, request: ApiRequest, kind: Kind) -> WriteResult:
        """Delete one object, or mark it as being deleted."""
        wish = _read_delete_options(request)
        call = request.call
        return await self.delete_object(apply_dry_run(request, wish), kind, call.namespace, call.name, wish)

    async def delete_object(
        self, request: ApiRequest, kind: Kind, namespace: str, name: str, delete_options: Mapping[str, Any]
    ) -> WriteResult:
        """The same, for whoever deletes on behalf of others."""

        def decide(old: StoredObject | None) -> WriteDecision:
            if old is None:
                raise new_not_found(kind, name)
            object_metadata.check_delete_preconditions(kind, old, delete_options.get("preconditions") or {})
            return self._decide(old, delete_options)

        return await self._writer.registry.write(request, kind, namespace, name, decide)

    async def delete_collection(
        self, request: ApiRequest, kind: Kind, selector: ListSelector
    ) -> list[StoredObject]:
        """Delete everything that is chosen; what others delete meanwhile is gone too."""
        wish = _read_delete_options(request)
        request = apply_dry_run(request, wish)
        cache = self._writer.registry.cache
        await cache.wait_until_fresh()
        chosen = [held for held in cache.list_objects(kind, request.call.namespace) if selector.matches(held)]
        for held in chosen:
            try:
                await self.delete_object(
                    _build_single_request(request, held), kind, held.namespace, held.name, wish
                )
            except ApiStatusError as failure:
                if failure.code != 404:
                    raise
        return chosen

    def _decide(self, old: StoredObject, delete_options: Mapping[str, Any]) -> WriteDecision:
        known = old.metadata
        finalizers = _compute_finalizers(known.finalizers, delete_options)
        ends_at_once = (old.kind.group, old.kind.name) not in _GRACEFUL_KINDS
        if ends_at_once and not finalizers:
            return DeleteObject()
        document = old.document
        metadata = document["metadata"]
        grace = 0 if ends_at_once else _compute_grace_seconds(document, delete_options)
        held_back = bool(finalizers) or _has_spec_finalizers(document)
        if not held_back and not grace:
            return DeleteObject()
        marked = metadata.get("deletionTimestamp") is not None
        shorter = marked and grace < int(metadata.get("deletionGracePeriodSeconds") or 0)
        if marked and not shorter and finalizers == (metadata.get("finalizers") or []):
            return LeaveUnchanged()
        when = self._writer.environment.clock.now() + timedelta(seconds=grace)
        changed = {**metadata, "finalizers": finalizers}
        if not marked or shorter:
            changed |= {"deletionTimestamp": format_timestamp(when), "deletionGracePeriodSeconds": grace}
            if not marked and metadata.get("generation"):
                changed["generation"] = int(metadata["generation"]) + 1
        # A zero is told, unlike other empty values: it says that nobody waits any longer.
        return SaveObject(_mark_deleted(PendingObject.from_stored(old), changed))


def _mark_deleted(pending: PendingObject, metadata: Mapping[str, Any]) -> PendingObject:
    marked = pending.replace_metadata(metadata)
    if pending.kind.name != "Namespace" or pending.kind.group:
        return marked
    status = {**(pending.document.get("status") or {}), "phase": "Terminating"}
    return marked.replace_field("status", status)


def apply_dry_run(request: ApiRequest, delete_options: Mapping[str, Any]) -> ApiRequest:
    """The request as a dry run, when the wish in its body says so."""
    wanted = delete_options.get("dryRun")
    if not wanted or request.call.dry_run:
        return request
    if wanted != ["All"]:
        raise new_invalid_options(
            "DeleteOptions",
            "dryRun",
            f'Unsupported value: {write_json(wanted).decode()}: supported values: "All"',
            "FieldValueNotSupported",
        )
    call = replace(request.call, query={**request.call.query, "dryRun": "All"})
    return replace(request, call=call)


def _read_delete_options(request: ApiRequest) -> dict[str, Any]:
    """What a delete asks for: in its body, or in the query."""
    wish = decode_options(request)
    query = request.call.query
    for name in ("propagationPolicy", "orphanDependents", "gracePeriodSeconds"):
        if name in query:
            wish.setdefault(name, query[name])
    return validate_delete_options(wish)


def validate_delete_options(delete_options: Mapping[str, Any]) -> dict[str, Any]:
    """A wish that makes sense; raises a `ApiStatusError` that names what does not."""
    seconds, policy = delete_options.get("gracePeriodSeconds"), delete_options.get("propagationPolicy")
    found = {**delete_options}
    if seconds is not None:
        try:
            found["gracePeriodSeconds"] = max(int(seconds), 0)
        except (TypeError, ValueError, OverflowError):
            raise new_bad_request(f"gracePeriodSeconds must be a whole number, not `{seconds}`") from None
    if policy not in (None, "", ORPHAN, BACKGROUND, FOREGROUND):
        raise new_bad_request(
            f"propagationPolicy must be {ORPHAN}, {BACKGROUND} or {FOREGROUND}, not `{policy}`"
        )
    if delete_options.get("orphanDependents") not in (None, True, False, "", "true", "false"):
        raise new_bad_request(
            f"orphanDependents must be true or false, not `{delete_options['orphanDependents']}`"
        )
    if not isinstance(delete_options.get("preconditions") or {}, dict):
        raise new_bad_request("preconditions must be an object with `uid` and `resourceVersion`")
    return found


def _compute_grace_seconds(document: Mapping[str, Any], delete_options: Mapping[str, Any]) -> int:
    """How many seconds an object has left to end by itself; only pods on a node have any."""
    if document["kind"] != "Pod" or document["apiVersion"] != "v1":
        return 0
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _TERMINAL_PHASES:
        return 0
    asked = delete_options.get("gracePeriodSeconds")
    seconds = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return min(max(int(seconds or 0), 0), _MAX_GRACE_SECONDS)


def _compute_finalizers(present: Sequence[str], delete_options: Mapping[str, Any]) -> list[str]:
    policy = delete_options.get("propagationPolicy")
    if policy is None and delete_options.get("orphanDependents") in (True, "true"):
        policy = ORPHAN
    if not policy:
        return list(present)
    kept = [name for name in present if name not in PROPAGATION_FINALIZERS.values()]
    return [*kept, PROPAGATION_FINALIZERS[policy]] if policy in PROPAGATION_FINALIZERS else kept


def _has_spec_finalizers(document: Mapping[str, Any]) -> bool:
    return document["kind"] == "Namespace" and bool((document.get("spec") or {}).get("finalizers"))


def _build_single_request(request: ApiRequest, stored: StoredObject) -> ApiRequest:
    """The request for one object of a collection, so that rules and records name it."""
    single = replace(
        request.call, verb="delete", namespace=stored.namespace, name=stored.name, subresource=""
    )
    return replace(request, call=single, body=b"")
