"""Create, update and patch: from a request to what should be stored.

Theory of operation: all three end in the same two questions. What is the new object, and may it follow the
old one? A create has no old one; an update brings the new one whole; a patch makes it from the old. Then the
server adds what is its own (identity, generation, owners of fields), takes out what no gate lets in, carries
over the part the request may not write (the status, or everything but), and asks the rules of the kind.

Rules for this file: `decide` functions are called again when somebody else was faster; they only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dray.api.kinds import Kind
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.api.validation import collect_warnings, validate_create, validate_status_update, validate_update
from dray.clock import Clock, format_timestamp
from dray.errors import DecodeError
from dray.server.admission.pod_priority import resolve_pod_priority
from dray.server.http.errors import new_already_exists, new_invalid, new_not_found
from dray.server.http.request_body import DecodedBody, convert_error_paths, decode_object, new_undecodable
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject, get_storage_kind
from dray.server.patch.managed_fields import field_ownership
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import (
    DeleteObject,
    LeaveUnchanged,
    ObjectRegistry,
    ProposedWrite,
    SaveObject,
    WriteDecision,
    WriteResult,
)
from dray.server.registry.strategies import (
    ALLOW_CREATE_ON_UPDATE,
    get_group_kind,
    has_status,
    prepare_for_create,
    prepare_for_update,
    validate_immutable_fields,
)

MAX_NAME_ATTEMPTS: Final = 8


@dataclass(frozen=True)
class WriteEnvironment:
    """What writing needs from the world: time, chance, identities, gates."""

    clock: Clock
    new_uid: Callable[[], str]
    random_int: Callable[[int], int]
    gates: FeatureGateFilter

    @property
    def now(self) -> str:
        return format_timestamp(self.clock.now())


class ObjectWriter:
    """Carries out creates and updates; patches decide here too (see `patching`)."""

    def __init__(self, registry: ObjectRegistry, environment: WriteEnvironment) -> None:
        self.registry = registry
        self.environment = environment

    async def create(self, request: ApiRequest, kind: Kind, version: str) -> WriteResult:
        """Store a new object."""
        body = decode_object(request, kind, version)
        generated = not body.pending.metadata.get("name") and bool(body.pending.metadata.get("generateName"))
        for attempt in range(MAX_NAME_ATTEMPTS):
            name = object_metadata.choose_name(body.pending.metadata, self.environment.random_int)
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

        written = await self.registry.write(request, kind, namespace, name, decide)
        return _add_warnings(written, warnings)

    def propose_create(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        object_name: tuple[str, str],
        warnings: list[str],
        managed_fields: list[dict[str, Any]] | None = None,
    ) -> ProposedWrite:
        """A draft proposed as a new object; `managed_fields` are its owners, when known."""

        def complete(draft: PendingObject) -> PendingObject:
            metadata = {**draft.metadata, "namespace": object_name[0], "name": object_name[1]}
            # How important a pod is counts before the usual is filled in, as when it is settled.
            named = resolve_pod_priority(draft.replace_metadata(metadata), self.registry.cache)
            return self._ensure_decodable(
                version, draft.kind, lambda: prepare_for_create(named)
            ).apply_defaults(self.environment.now)

        def settle(draft: PendingObject) -> WriteDecision:
            made = self.build_created_object(request, version, draft, object_name, warnings)
            return SaveObject(made if managed_fields is None else made.replace_managed_fields(managed_fields))

        return ProposedWrite(pending, complete, settle)

    def propose_update(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        old: StoredObject,
        warnings: list[str],
        managed_fields: list[dict[str, Any]] | None = None,
    ) -> ProposedWrite:
        """A draft proposed to follow a stored object; `managed_fields` are its owners, when known."""

        def complete(draft: PendingObject) -> PendingObject:
            before, subresource = PendingObject.from_stored(old), request.call.subresource
            written = self._ensure_decodable(
                version, draft.kind, lambda: _apply_writable_fields(draft, before, subresource)
            )
            metadata = object_metadata.build_update_metadata(
                draft.kind, written.metadata, before.metadata, changed=False
            )
            return written.replace_metadata(metadata).apply_defaults(self.environment.now, before)

        def settle(draft: PendingObject) -> WriteDecision:
            return self.decide_update(request, version, draft, old, warnings, managed_fields)

        return ProposedWrite(pending, complete, settle)

    def build_created_object(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        object_name: tuple[str, str],
        warnings: list[str],
    ) -> PendingObject:
        """A draft as a new object of its kind; raises a `Failure` when it may not be one."""
        kind, now, (namespace, name) = pending.kind, self.environment.now, object_name
        metadata = object_metadata.build_create_metadata(
            kind, pending.metadata, name=name, namespace=namespace, uid=self.environment.new_uid(), now=now
        )
        pending = resolve_pod_priority(pending.replace_metadata(metadata), self.registry.cache)
        pending = self._ensure_decodable(version, kind, lambda: prepare_for_create(pending)).apply_defaults(
            now
        )
        pending, dropped = pending.drop_gated_fields(self.environment.gates, None)
        warnings += map(str, dropped)
        errors = validate_create(pending.view)
        if errors:
            raise new_invalid(kind, name, convert_error_paths(kind, version, errors))
        warnings += (f"{caution.path}: {caution.text}" for caution in collect_warnings(pending.view))
        fields = field_ownership.update_managed_fields(
            kind, None, pending.document, manager=request.field_manager, now=now
        )
        return pending.replace_managed_fields(fields)

    async def update(self, request: ApiRequest, kind: Kind, version: str) -> WriteResult:
        """Put an object in the place of the stored one, or its status in the place of the stored status."""
        body, call = decode_object(request, kind, version), request.call
        object_metadata.check_name(body.pending.metadata, call.name)
        namespace = object_metadata.resolve_namespace(kind, body.pending.metadata, call.namespace)
        warnings: list[str] = []

        def decide(old: StoredObject | None) -> ProposedWrite:
            warnings[:] = body.warnings
            if old is None:
                if get_group_kind(
                    get_storage_kind(kind)
                ) not in ALLOW_CREATE_ON_UPDATE or body.pending.metadata.get("uid"):
                    raise new_not_found(kind, call.name)
                return self.propose_create(request, version, body.pending, (namespace, call.name), warnings)
            object_metadata.check_preconditions(kind, old, body.pending.metadata)
            return self.propose_update(request, version, body.pending, old, warnings)

        written = await self.registry.write(request, kind, namespace, call.name, decide)
        return _add_warnings(written, warnings)

    def decide_update(
        self,
        request: ApiRequest,
        version: str,
        pending: PendingObject,
        old: StoredObject,
        warnings: list[str],
        managed_fields: list[dict[str, Any]] | None = None,
    ) -> WriteDecision:
        """What becomes of a stored object when a draft follows it; `managed_fields` are its owners, when
        known.
        """
        kind, now, subresource = pending.kind, self.environment.now, request.call.subresource
        before = PendingObject.from_stored(old)
        pending = self._ensure_decodable(
            version, kind, lambda: _apply_writable_fields(pending, before, subresource)
        )
        pending, dropped = pending.apply_defaults(now, before).drop_gated_fields(
            self.environment.gates, before
        )
        warnings += map(str, dropped)
        changed = pending.differs_from(before)
        # Who writes the status of a closed kind writes nothing else.
        if changed or pending.metadata is not before.metadata:
            metadata = object_metadata.build_update_metadata(
                kind, pending.metadata, before.metadata, changed=changed
            )
            pending = pending.replace_metadata(metadata)
        judge = validate_status_update if subresource == "status" else validate_update
        errors = [
            *judge(pending.view, before.view),
            *(() if subresource else validate_immutable_fields(pending, before)),
        ]
        if errors:
            raise new_invalid(kind, old.name, convert_error_paths(kind, version, errors))
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
        return LeaveUnchanged() if pending.equals_ignoring_times(before) else SaveObject(pending)

    @staticmethod
    def _ensure_decodable(version: str, kind: Kind, make: Callable[[], PendingObject]) -> PendingObject:
        """A draft of an open kind that is changed is read again, and may turn out not to be readable."""
        try:
            draft = make()
            assert draft.view is not None
            return draft
        except DecodeError as broken:
            raise new_undecodable(kind, version, broken) from None


class _NameTakenError(Exception):
    """There is an object of that name."""


def _add_warnings(result: WriteResult, warnings: list[str]) -> WriteResult:
    if not warnings:
        return result
    return WriteResult(result.stored, result.created, result.deleted, (*warnings, *result.warnings))


def _apply_writable_fields(pending: PendingObject, before: PendingObject, subresource: str) -> PendingObject:
    """The stored object with just those parts of the draft that the request may write."""
    kind = pending.kind
    if subresource == "status":
        return before.copy_status_from(pending)
    if subresource == "finalize":
        spec = {**(before.document.get("spec") or {})}
        spec["finalizers"] = (pending.document.get("spec") or {}).get("finalizers") or []
        return before.replace_field("spec", spec)
    return prepare_for_update(pending.copy_status_from(before) if has_status(kind) else pending, before)


def _is_deletion_complete(pending: PendingObject) -> bool:
    """Whether nothing holds a deleted object back any more."""
    metadata = pending.view.metadata
    if not metadata.deletion_timestamp or metadata.finalizers:
        return False
    if pending.kind.name == "Namespace" and (pending.document.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.deletion_grace_period_seconds
