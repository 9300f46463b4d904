"""The object deleter: deletes objects at once, after a grace period, or when the last finalizer is removed.

Theory of operation: an object without finalizers is deleted in one transaction. An object with finalizers is
marked as being deleted, and deleted with the last of them. A pod on a node gets its grace period: the node
agent stops the pod and deletes it again without grace. The propagation policy for dependents is stored as a
finalizer, which the garbage collector acts on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dray.api.json_text import write_json
from dray.api.kinds import Kind, get_kind
from dray.clock import Clock, format_timestamp
from dray.server.http.errors import ApiStatusError, new_bad_request, new_invalid_options, new_not_found
from dray.server.http.request_body import decode_message
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import (
    DeleteObject,
    LeaveUnchanged,
    SaveObject,
    WriteDecision,
    WriteRegistry,
    WriteResult,
)
from dray.server.registry.selectors import ListSelector
from dray.server.registry.strategies import get_strategy

ORPHAN, BACKGROUND, FOREGROUND = "Orphan", "Background", "Foreground"
PROPAGATION_FINALIZERS: Final[Mapping[str, str]] = {ORPHAN: "orphan", FOREGROUND: "foregroundDeletion"}
"""The finalizer that stores a propagation policy until the garbage collector has carried it out."""

_OPTIONS: Final = "DeleteOptions"
_POD: Final = get_kind("", "Pod")
_NAMESPACE: Final = get_kind("", "Namespace")
_TERMINAL_PHASES: Final = ("Succeeded", "Failed")
_MAX_GRACE_SECONDS: Final = 2**31
"""About 68 years; a later deletion time could not be represented."""


class ObjectDeleter:
    """Carries out deletes."""

    def __init__(self, registry: WriteRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    @property
    def revision(self) -> int:
        """The revision that the cache has reached."""
        return self._registry.cache.revision

    async def delete(self, request: ApiRequest, kind: Kind) -> WriteResult:
        """Delete one object, or mark it as being deleted."""
        options, call = _read_delete_options(request), request.call
        request = apply_dry_run(request, options)
        return await self.delete_object(request, kind, call.namespace, call.name, options)

    async def delete_object(
        self, request: ApiRequest, kind: Kind, namespace: str, name: str, delete_options: Mapping[str, Any]
    ) -> WriteResult:
        """Delete one object with these options; evictions and the garbage collector use it, too."""

        def decide(old: StoredObject | None) -> WriteDecision:
            if old is None:
                raise new_not_found(kind, name)
            object_metadata.check_delete_preconditions(kind, old, delete_options.get("preconditions") or {})
            return self._decide(old, delete_options)

        return await self._registry.write(request, kind, namespace, name, decide)

    async def delete_collection(
        self, request: ApiRequest, kind: Kind, selector: ListSelector
    ) -> list[StoredObject]:
        """Delete every selected object; one that somebody else deletes meanwhile counts as deleted."""
        options = _read_delete_options(request)
        request = apply_dry_run(request, options)
        cache = self._registry.cache
        await cache.wait_until_fresh()
        selected = [
            stored for stored in cache.list_objects(kind, request.call.namespace) if selector.matches(stored)
        ]
        for stored in selected:
            single = _build_single_request(request, stored)
            try:
                await self.delete_object(single, kind, stored.namespace, stored.name, options)
            except ApiStatusError as error:
                if error.code != 404:
                    raise
        return selected

    def _decide(self, old: StoredObject, delete_options: Mapping[str, Any]) -> WriteDecision:
        finalizers = _compute_finalizers(old.metadata.finalizers, delete_options)
        graceful = get_strategy(old.kind).deletes_gracefully
        if not graceful and not finalizers:
            return DeleteObject()
        grace, has_spec_finalizers = _read_holds(old, delete_options) if graceful else (0, False)
        if not finalizers and not has_spec_finalizers and not grace:
            return DeleteObject()
        stored = PendingObject.from_stored(old)
        metadata = stored.metadata
        marked = metadata.get("deletionTimestamp") is not None
        shorter = marked and grace < int(metadata.get("deletionGracePeriodSeconds") or 0)
        if marked and not shorter and finalizers == (metadata.get("finalizers") or []):
            return LeaveUnchanged()
        when = self._clock.now() + timedelta(seconds=grace)
        changed = {**metadata, "finalizers": finalizers}
        if not marked or shorter:
            changed |= {"deletionTimestamp": format_timestamp(when), "deletionGracePeriodSeconds": grace}
            if not marked and metadata.get("generation"):
                changed["generation"] = int(metadata["generation"]) + 1
        # Unlike other empty values, a grace period of 0 is stored: it says that nobody waits any longer.
        return SaveObject(_mark_deleted(stored, changed))


def _mark_deleted(pending: PendingObject, metadata: Mapping[str, Any]) -> PendingObject:
    marked = pending.replace_metadata(metadata)
    if pending.kind.name != "Namespace" or pending.kind.group:
        return marked
    status = {**(pending.document.get("status") or {}), "phase": "Terminating"}
    return marked.replace_field("status", status)


def apply_dry_run(request: ApiRequest, delete_options: Mapping[str, Any]) -> ApiRequest:
    """The request as a dry run, when the options in its body say so."""
    dry_run = delete_options.get("dryRun")
    if not dry_run:
        return request
    if not isinstance(dry_run, list) or not all(isinstance(item, str) for item in dry_run):
        raise new_bad_request("dryRun must be a list of texts, such as `[All]`")
    if dry_run != ["All"]:
        raise new_invalid_options(
            _OPTIONS,
            "dryRun",
            f'Unsupported value: {write_json(dry_run).decode()}: supported values: "All"',
            "FieldValueNotSupported",
        )
    call = replace(request.call, query={**request.call.query, "dryRun": "All"})
    return replace(request, call=call)


def _read_delete_options(request: ApiRequest) -> dict[str, Any]:
    """The options of a delete, from its body and its query."""
    options = decode_message(request, "v1", _OPTIONS)
    query = request.call.query
    for name in ("propagationPolicy", "orphanDependents", "gracePeriodSeconds"):
        if name in query:
            options.setdefault(name, query[name])
    return validate_delete_options(options)


def validate_delete_options(delete_options: Mapping[str, Any]) -> dict[str, Any]:
    """Validated options of a delete; raises an `ApiStatusError` that names the invalid one."""
    seconds, policy = delete_options.get("gracePeriodSeconds"), delete_options.get("propagationPolicy")
    validated = {**delete_options}
    if seconds is not None:
        try:
            validated["gracePeriodSeconds"] = max(int(seconds), 0)
        except (TypeError, ValueError, OverflowError):
            raise new_bad_request(f"gracePeriodSeconds must be a whole number, not `{seconds}`") from None
    _check_propagation(policy, delete_options.get("orphanDependents"))
    if not isinstance(delete_options.get("preconditions") or {}, dict):
        raise new_bad_request("preconditions must be an object with `uid` and `resourceVersion`")
    return validated


def _check_propagation(policy: Any, orphans: Any) -> None:
    if policy not in (None, "", ORPHAN, BACKGROUND, FOREGROUND):
        known = ", ".join(f'"{each}"' for each in (BACKGROUND, FOREGROUND, ORPHAN))
        what = f"Unsupported value: {write_json(policy).decode()}: supported values: {known}"
        raise new_invalid_options(_OPTIONS, "propagationPolicy", what, "FieldValueNotSupported")
    if orphans not in (None, True, False, "", "true", "false"):
        raise new_bad_request(f"orphanDependents must be true or false, not `{orphans}`")
    if policy and orphans not in (None, ""):
        what = "Invalid value: orphanDependents and propagationPolicy cannot be both set"
        raise new_invalid_options(_OPTIONS, "propagationPolicy", what, "FieldValueInvalid")


class _HoldingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a spec that may keep an object that is deleted."""

    node_name: Any = None
    termination_grace_period_seconds: Any = 30
    finalizers: Any = None


class _PhaseStatus(msgspec.Struct, frozen=True):
    phase: Any = None


class _HoldingFields(msgspec.Struct, frozen=True):
    """The fields of an object that may keep it when it is deleted; the rest is not decoded."""

    spec: _HoldingSpec | None = None
    status: _PhaseStatus | None = None


_HOLDS_DECODER: Final = msgspec.json.Decoder(_HoldingFields)


def _read_holds(stored: StoredObject, delete_options: Mapping[str, Any]) -> tuple[int, bool]:
    """The grace period of an object in seconds, which only pods on a node have, and whether its spec has
    finalizers, as only a namespace has.
    """
    held = _HOLDS_DECODER.decode(stored.value)
    spec, status = held.spec or _HoldingSpec(), held.status or _PhaseStatus()
    if stored.kind is _NAMESPACE:
        return 0, bool(spec.finalizers)
    if stored.kind is not _POD or not spec.node_name or status.phase in _TERMINAL_PHASES:
        return 0, False
    requested = delete_options.get("gracePeriodSeconds")
    seconds = spec.termination_grace_period_seconds if requested is None else requested
    return min(max(int(seconds or 0), 0), _MAX_GRACE_SECONDS), False


def _compute_finalizers(present: Sequence[str], delete_options: Mapping[str, Any]) -> list[str]:
    policy = delete_options.get("propagationPolicy")
    if policy is None and delete_options.get("orphanDependents") in (True, "true"):
        policy = ORPHAN
    if not policy:
        return list(present)
    kept = [name for name in present if name not in PROPAGATION_FINALIZERS.values()]
    return [*kept, PROPAGATION_FINALIZERS[policy]] if policy in PROPAGATION_FINALIZERS else kept


def _build_single_request(request: ApiRequest, stored: StoredObject) -> ApiRequest:
    """The request for one object of a collection, so that admission and audit name that object."""
    single = replace(
        request.call, verb="delete", namespace=stored.namespace, name=stored.name, subresource=""
    )
    return replace(request, call=single, body=b"")
