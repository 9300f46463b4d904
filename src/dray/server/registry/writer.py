"""The object writer: creates and updates objects, and proposes the writes of patches.

Theory of operation: creates, updates and patches end in the same two questions: what is the new object, and
may it replace the stored one? A create has no stored object; an update brings the new one; a patch derives it
from the stored one. The writer then fills in what the server owns (identity, generation, managed fields),
drops fields of disabled gates, keeps the part that the request may not write (the status, or everything
else), and validates the result.

Rules for this file: `decide` functions are called again after a conflict, so they only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dray.api.fields import ROOT, FieldError, invalid
from dray.api.kinds import Kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.api.validation import (
    collect_pod_warnings,
    collect_warnings,
    has_document_rules,
    validate_changed_document,
    validate_create,
    validate_new_document,
    validate_status_update,
    validate_update,
)
from dray.clock import Clock, format_timestamp
from dray.errors import DecodeError
from dray.server.admission.certificate_requests import set_requester
from dray.server.admission.limit_ranges import apply_limit_ranges
from dray.server.admission.pod_priority import resolve_pod_priority
from dray.server.http.errors import new_already_exists, new_invalid, new_not_found
from dray.server.http.request_body import DecodedBody, convert_error_paths, decode_object, new_undecodable
from dray.server.http.requests import ApiCall, ApiRequest
from dray.server.http.responses import attach_warnings
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.server.patch.managed_fields import field_ownership
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import (
    DeleteObject,
    LeaveUnchanged,
    ProposedWrite,
    SaveObject,
    WriteDecision,
    WriteRegistry,
    WriteResult,
)
from dray.server.registry.strategies import (
    VERSIONED_KINDS,
    complete_create,
    get_strategy,
    has_status,
    prepare_for_create,
    prepare_for_update,
    prepare_status,
    prepare_subresource,
)

MAX_NAME_ATTEMPTS: Final = 8


class ObjectWriter:
    """Carries out creates and updates; a patch proposes its write here (see `patcher`)."""

    def __init__(
        self,
        registry: WriteRegistry,
        gates: FeatureGateFilter,
        clock: Clock,
        new_uid: Callable[[], str],
        random_int: Callable[[int], int],
    ) -> None:
        self._registry = registry
        self._gates = gates
        self._clock = clock
        self._new_uid = new_uid
        self._random_int = random_int

    async def create(self, request: ApiRequest, kind: Kind, version: str) -> WriteResult:
        """Store a new object."""
        body = decode_object(request, kind, version)
        with attach_warnings(body.warnings):
            return await self._create_with_free_name(request, kind, version, body)

    async def _create_with_free_name(
        self, request: ApiRequest, kind: Kind, version: str, body: DecodedBody
    ) -> WriteResult:
        generated = not body.pending.metadata.get("name") and bool(body.pending.metadata.get("generateName"))
        for attempt in range(MAX_NAME_ATTEMPTS):
            name = object_metadata.choose_name(body.pending.metadata, self._random_int)
            try:
                return await self._create(request, kind, version, body, name)
            except _NameTakenError:
                if not generated or attempt + 1 == MAX_NAME_ATTEMPTS:
                    raise new_already_exists(kind, name) from None
        raise AssertionError("unreachable")

    async def _create(
        self, request: ApiRequest, kind: Kind, version: str, body: DecodedBody, name: str
    ) -> WriteResult:
        namespace = object_metadata.resolve_namespace(kind, body.pending.metadata, request.call.namespace)
        warnings: list[str] = []

        def decide(old: StoredObject | None) -> ProposedWrite:
            if old is not None:
                raise _NameTakenError
            warnings[:] = body.warnings
            return self.propose_create(request, version, body.pending, (namespace, name), warnings)

        result = await self._registry.write(request, kind, namespace, name, decide)
        return _add_warnings(result, warnings)

    def propose_create(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        object_name: tuple[str, str],
        warnings: list[str],
        managed_fields: list[dict[str, Any]] | None = None,
    ) -> ProposedWrite:
        """Propose a new object; `managed_fields` are those that an apply has computed."""

        def complete(proposed: PendingObject) -> PendingObject:
            metadata = {**proposed.metadata, "namespace": object_name[0], "name": object_name[1]}
            named = proposed.replace_metadata(metadata)
            return self._ensure_decodable(
                version, proposed.kind, lambda: self._prepare_new(request, named)
            ).apply_defaults(self._format_now())

        def validate(proposed: PendingObject) -> WriteDecision:
            created = self._build_created_object(request, version, proposed, object_name, warnings)
            return SaveObject(
                created if managed_fields is None else created.replace_managed_fields(managed_fields)
            )

        return ProposedWrite(pending, complete, validate)

    def propose_update(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        stored: PendingObject,
        warnings: list[str],
        managed_fields: list[dict[str, Any]] | None = None,
    ) -> ProposedWrite:
        """Propose a new state of a stored object; `managed_fields` are those that an apply has computed."""

        def complete(proposed: PendingObject) -> PendingObject:
            subresource = request.call.subresource
            before = _complete_stored(stored, subresource)
            writable = self._ensure_decodable(
                version, proposed.kind, lambda: _apply_writable_fields(proposed, before, subresource)
            )
            metadata = object_metadata.build_update_metadata(
                proposed.kind, writable.metadata, before.metadata, changed=False
            )
            return writable.replace_metadata(metadata).apply_defaults(self._format_now(), before)

        def validate(proposed: PendingObject) -> WriteDecision:
            return self._decide_update(request, version, proposed, stored, warnings, managed_fields)

        return ProposedWrite(pending, complete, validate)

    def _build_created_object(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        object_name: tuple[str, str],
        warnings: list[str],
    ) -> PendingObject:
        """Build a new object; raises an `ApiStatusError` when it is not valid."""
        kind, now, (namespace, name) = pending.kind, self._format_now(), object_name
        metadata = object_metadata.build_create_metadata(
            kind, pending.metadata, name=name, namespace=namespace, uid=self._new_uid(), now=now
        )
        named = pending.replace_metadata(metadata)
        pending = self._ensure_decodable(
            version, kind, lambda: complete_create(self._prepare_new(request, named))
        ).apply_defaults(now)
        pending, dropped = pending.drop_gated_fields(self._gates, None)
        warnings += map(str, dropped)
        errors = validate_create(pending.view)
        ruled = request.call.kind or kind
        if has_document_rules(ruled):
            errors += validate_new_document(ruled, pending.document)
        if errors:
            raise new_invalid(kind, name, convert_error_paths(kind, version, errors))
        warnings += map(str, collect_warnings(pending.view))
        if kind.open:
            warnings += map(str, collect_pod_warnings(kind, pending.document))
        fields = field_ownership.update_managed_fields(
            kind, None, pending.document, manager=request.field_manager, now=now
        )
        return pending.replace_managed_fields(fields)

    def _prepare_new(self, request: ApiRequest, pending: PendingObject) -> PendingObject:
        """A new object with its defaults, and with what follows from other objects and from its creator."""
        cache = self._registry.cache
        admitted = set_requester(resolve_pod_priority(pending, cache), request.user)
        return apply_limit_ranges(prepare_for_create(admitted), cache)

    async def update(self, request: ApiRequest, kind: Kind, version: str) -> WriteResult:
        """Replace a stored object, or only its status."""
        body, call = decode_object(request, kind, version), request.call
        object_metadata.check_name(body.pending.metadata, call.name, required=True)
        namespace = object_metadata.resolve_namespace(kind, body.pending.metadata, call.namespace)
        warnings: list[str] = []

        def decide(old: StoredObject | None) -> ProposedWrite:
            warnings[:] = body.warnings
            if old is None:
                if not get_strategy(kind).allows_create_on_update:
                    raise new_not_found(kind, call.name)
                object_metadata.check_absent_uid(kind, call.name, body.pending.metadata)
                pending = body.pending.replace_metadata(
                    object_metadata.drop_resource_version(body.pending.metadata)
                )
                return self.propose_create(request, version, pending, (namespace, call.name), warnings)
            object_metadata.check_preconditions(kind, old, body.pending.metadata)
            _require_version(kind, version, call.name, body.pending.metadata)
            stored = PendingObject.from_stored(old)
            return self.propose_update(request, version, body.pending, stored, warnings)

        with attach_warnings(body.warnings):
            result = await self._registry.write(request, kind, namespace, call.name, decide)
        return _add_warnings(result, warnings)

    def _decide_update(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        stored: PendingObject,
        warnings: list[str],
        managed_fields: list[dict[str, Any]] | None = None,
    ) -> WriteDecision:
        """Decide how a proposed state changes a stored object; raises an `ApiStatusError` when it may not."""
        kind, now, subresource = pending.kind, self._format_now(), request.call.subresource
        before = _complete_stored(stored, subresource)
        pending = self._ensure_decodable(
            version, kind, lambda: _apply_writable_fields(pending, before, subresource)
        )
        pending, dropped = pending.apply_defaults(now, before).drop_gated_fields(self._gates, before)
        warnings += map(str, dropped)
        changed = pending.differs_from(before)
        pending = _update_metadata(pending, before, changed)
        errors = _validate_update(pending, before, request.call)
        if errors:
            raise new_invalid(kind, stored.metadata["name"], convert_error_paths(kind, version, errors))
        warnings += _collect_template_warnings(pending, subresource) if changed else ()
        if _is_deletion_complete(pending):
            return DeleteObject(pending)
        if managed_fields is None:
            managed_fields = field_ownership.update_managed_fields(
                kind,
                *before.build_diff_documents(pending),
                manager=request.field_manager,
                now=now,
                subresource=subresource,
            )
        pending = pending.replace_managed_fields(managed_fields)
        return LeaveUnchanged() if pending.equals_ignoring_times(stored) else SaveObject(pending)

    def _format_now(self) -> str:
        return format_timestamp(self._clock.now())

    @staticmethod
    def _ensure_decodable(version: str, kind: Kind, build: Callable[[], PendingObject]) -> PendingObject:
        """Build an object and decode its view: a changed document of an open kind may not be decodable."""
        try:
            pending = build()
            assert pending.view is not None
            return pending
        except DecodeError as error:
            raise new_undecodable(kind, version, error) from None


def _require_version(kind: Kind, api_version: str, name: str, metadata: Mapping[str, Any]) -> None:
    """Refuse an update without a resource version, where its kind asks for one."""
    given = metadata.get("resourceVersion") or "0"
    if given == "0" and (kind.group, kind.name) in VERSIONED_KINDS and api_version == kind.version:
        path = ROOT.child("metadata").child("resourceVersion")
        raise new_invalid(kind, name, [invalid(path, given, "must be specified for an update")])


class _NameTakenError(Exception):
    """An object of that name exists."""


def _add_warnings(result: WriteResult, warnings: list[str]) -> WriteResult:
    if not warnings:
        return result
    return WriteResult(result.stored, result.created, result.deleted, (*warnings, *result.warnings))


def _complete_stored(stored: PendingObject, subresource: str) -> PendingObject:
    """What an update changes: the stored object with its defaults, which an older release did not store.

    They are no change of the client, so they change no generation and no immutable field.
    """
    return stored if subresource in ("status", "finalize") else stored.apply_open_defaults()


def _collect_template_warnings(pending: PendingObject, subresource: str) -> Iterable[str]:
    """Warnings about the pod template of an updated object; pods themselves are rarely updated by people."""
    kind = pending.kind
    if subresource or not kind.open or kind.name == "Pod":
        return ()
    return map(str, collect_pod_warnings(kind, pending.document))


def _update_metadata(pending: PendingObject, before: PendingObject, changed: bool) -> PendingObject:
    """The object with what the server keeps of its metadata, and with a new generation when it changes."""
    # A status update of a closed kind shares the metadata of the stored object.
    if not changed and pending.metadata is before.metadata:
        return pending
    metadata = object_metadata.build_update_metadata(
        pending.kind, pending.metadata, before.metadata, changed=changed
    )
    return pending.replace_metadata(metadata)


def _apply_writable_fields(pending: PendingObject, before: PendingObject, subresource: str) -> PendingObject:
    """The stored object with those parts of the pending one that the request may write."""
    if subresource == "status":
        return prepare_status(pending, before)
    if subresource == "finalize":
        spec = {**(before.document.get("spec") or {})}
        spec["finalizers"] = (pending.document.get("spec") or {}).get("finalizers") or []
        return before.replace_field("spec", spec)
    if subresource:
        return prepare_subresource(pending, before, subresource)
    if has_status(pending.kind):
        pending = pending.copy_status_from(before)
    return prepare_for_update(pending, before)


def _validate_update(pending: PendingObject, before: PendingObject, call: ApiCall) -> list[FieldError]:
    # Rules may depend on the group that the client uses: those of events do.
    kind, subresource = call.kind or pending.kind, call.subresource
    validate = validate_status_update if subresource == "status" else validate_update
    errors = validate(pending.view, before.view)
    if has_document_rules(kind):
        errors += validate_changed_document(kind, pending.document, before.document, subresource)
    return errors


def _is_deletion_complete(pending: PendingObject) -> bool:
    """Whether a deleted object has no finalizers left and no grace period."""
    metadata = pending.view.metadata
    if not metadata.deletion_timestamp or metadata.finalizers:
        return False
    if pending.kind.name == "Namespace" and (pending.document.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.deletion_grace_period_seconds
