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
from dray.api.strategies.gated_fields import Gatekeeper
from dray.api.validation import validate_create, validate_status_update, validate_update, warnings_of
from dray.clock import Clock, timestamp
from dray.errors import DecodeError
from dray.server.admission.pod_priority import ranked
from dray.server.http.errors import already_exists, invalid, not_found
from dray.server.http.request_body import Taken, placed, taken, unreadable
from dray.server.http.requests import Request
from dray.server.objects.pending_object import Draft
from dray.server.objects.stored_object import Held, keeper
from dray.server.patch.managed_fields import field_ownership
from dray.server.registry import object_metadata
from dray.server.registry.object_registry import Keep, Proposal, Registry, Remove, Same, Wanted, Written
from dray.server.registry.strategies import MADE_BY_UPDATE, grown, has_status, named, newborn, unsettled

NAME_ATTEMPTS: Final = 8


@dataclass(frozen=True)
class Surroundings:
    """What writing needs from the world: time, chance, identities, gates."""

    clock: Clock
    new_uid: Callable[[], str]
    chance: Callable[[int], int]
    gates: Gatekeeper

    @property
    def now(self) -> str:
        return timestamp(self.clock.now())


class Writing:
    """Carries out creates and updates; patches decide here too (see `patching`)."""

    def __init__(self, registry: Registry, world: Surroundings) -> None:
        self.registry = registry
        self.world = world

    async def create(self, request: Request, kind: Kind, version: str) -> Written:
        """Store a new object."""
        body = taken(request, kind, version)
        generated = not body.draft.metadata.get("name") and bool(body.draft.metadata.get("generateName"))
        for attempt in range(NAME_ATTEMPTS):
            name = object_metadata.chosen_name(body.draft.metadata, self.world.chance)
            try:
                return await self._create(request, kind, version, body, name)
            except _NameTaken:
                if not generated or attempt + 1 == NAME_ATTEMPTS:
                    raise already_exists(kind, name) from None
        raise AssertionError("unreachable")

    async def _create(self, request: Request, kind: Kind, version: str, body: Taken, name: str) -> Written:
        namespace = object_metadata.placed(kind, body.draft.metadata, request.call.namespace)
        warnings: list[str] = []

        def decide(old: Held | None) -> Proposal:
            if old is not None:
                raise _NameTaken
            warnings[:] = body.warnings
            return self.birth(request, version, body.draft, (namespace, name), warnings)

        written = await self.registry.write(request, kind, namespace, name, decide)
        return _with_warnings(written, warnings)

    def birth(
        self,
        request: Request,
        version: str,
        draft: Draft,
        place: tuple[str, str],
        warnings: list[str],
        fields: list[dict[str, Any]] | None = None,
    ) -> Proposal:
        """A draft proposed as a new object; `fields` are its owners, when known."""

        def complete(draft: Draft) -> Draft:
            metadata = {**draft.metadata, "namespace": place[0], "name": place[1]}
            # How important a pod is counts before the usual is filled in, as when it is settled.
            named = ranked(draft.with_metadata(metadata), self.registry.cache)
            return self._readable(version, draft.kind, lambda: newborn(named)).filled(self.world.now)

        def settle(draft: Draft) -> Wanted:
            made = self.born(request, version, draft, place, warnings)
            return Keep(made if fields is None else made.with_owners(fields))

        return Proposal(draft, complete, settle)

    def growth(
        self,
        request: Request,
        version: str,
        draft: Draft,
        old: Held,
        warnings: list[str],
        fields: list[dict[str, Any]] | None = None,
    ) -> Proposal:
        """A draft proposed to follow a stored object; `fields` are its owners, when known."""

        def complete(draft: Draft) -> Draft:
            before, subresource = Draft.of_held(old), request.call.subresource
            written = self._readable(version, draft.kind, lambda: _writable(draft, before, subresource))
            metadata = object_metadata.over_time(draft.kind, written.metadata, before.metadata, changed=False)
            return written.with_metadata(metadata).filled(self.world.now, before)

        def settle(draft: Draft) -> Wanted:
            return self.followed(request, version, draft, old, warnings, fields)

        return Proposal(draft, complete, settle)

    def born(
        self, request: Request, version: str, draft: Draft, place: tuple[str, str], warnings: list[str]
    ) -> Draft:
        """A draft as a new object of its kind; raises a `Failure` when it may not be one."""
        kind, now, (namespace, name) = draft.kind, self.world.now, place
        metadata = object_metadata.at_birth(
            kind, draft.metadata, name=name, namespace=namespace, uid=self.world.new_uid(), now=now
        )
        draft = ranked(draft.with_metadata(metadata), self.registry.cache)
        draft = self._readable(version, kind, lambda: newborn(draft)).filled(now)
        draft, dropped = draft.gated(self.world.gates, None)
        warnings += map(str, dropped)
        errors = validate_create(draft.view)
        if errors:
            raise invalid(kind, name, placed(kind, version, errors))
        warnings += (f"{caution.path}: {caution.text}" for caution in warnings_of(draft.view))
        fields = field_ownership.updated(kind, None, draft.document, manager=request.manager, now=now)
        return draft.with_owners(fields)

    async def update(self, request: Request, kind: Kind, version: str) -> Written:
        """Put an object in the place of the stored one, or its status in the place of the stored status."""
        body, call = taken(request, kind, version), request.call
        object_metadata.check_name(body.draft.metadata, call.name)
        namespace = object_metadata.placed(kind, body.draft.metadata, call.namespace)
        warnings: list[str] = []

        def decide(old: Held | None) -> Proposal:
            warnings[:] = body.warnings
            if old is None:
                if named(keeper(kind)) not in MADE_BY_UPDATE or body.draft.metadata.get("uid"):
                    raise not_found(kind, call.name)
                return self.birth(request, version, body.draft, (namespace, call.name), warnings)
            object_metadata.check_preconditions(kind, old, body.draft.metadata)
            return self.growth(request, version, body.draft, old, warnings)

        written = await self.registry.write(request, kind, namespace, call.name, decide)
        return _with_warnings(written, warnings)

    def followed(
        self,
        request: Request,
        version: str,
        draft: Draft,
        old: Held,
        warnings: list[str],
        fields: list[dict[str, Any]] | None = None,
    ) -> Wanted:
        """What becomes of a stored object when a draft follows it; `fields` are its owners, when known."""
        kind, now, subresource = draft.kind, self.world.now, request.call.subresource
        before = Draft.of_held(old)
        draft = self._readable(version, kind, lambda: _writable(draft, before, subresource))
        draft, dropped = draft.filled(now, before).gated(self.world.gates, before)
        warnings += map(str, dropped)
        changed = draft.differs_from(before)
        # Who writes the status of a closed kind writes nothing else.
        if changed or draft.metadata is not before.metadata:
            metadata = object_metadata.over_time(kind, draft.metadata, before.metadata, changed=changed)
            draft = draft.with_metadata(metadata)
        judge = validate_status_update if subresource == "status" else validate_update
        errors = [*judge(draft.view, before.view), *(() if subresource else unsettled(draft, before))]
        if errors:
            raise invalid(kind, old.name, placed(kind, version, errors))
        if _gone(draft):
            return Remove(draft)
        if fields is None:
            fields = field_ownership.updated(
                kind,
                *before.beside(draft),
                manager=request.manager,
                now=now,
                subresource=subresource,
            )
        draft = draft.with_owners(fields)
        return Same() if draft.is_like(before) else Keep(draft)

    @staticmethod
    def _readable(version: str, kind: Kind, make: Callable[[], Draft]) -> Draft:
        """A draft of an open kind that is changed is read again, and may turn out not to be readable."""
        try:
            draft = make()
            assert draft.view is not None
            return draft
        except DecodeError as broken:
            raise unreadable(kind, version, broken) from None


class _NameTaken(Exception):  # noqa: N818 - what is the case
    """There is an object of that name."""


def _with_warnings(written: Written, warnings: list[str]) -> Written:
    if not warnings:
        return written
    return Written(written.held, written.created, written.gone, (*warnings, *written.warnings))


def _writable(draft: Draft, before: Draft, subresource: str) -> Draft:
    """The stored object with just those parts of the draft that the request may write."""
    kind = draft.kind
    if subresource == "status":
        return before.with_status_of(draft)
    if subresource == "finalize":
        spec = {**(before.document.get("spec") or {})}
        spec["finalizers"] = (draft.document.get("spec") or {}).get("finalizers") or []
        return before.with_field("spec", spec)
    return grown(draft.with_status_of(before) if has_status(kind) else draft, before)


def _gone(draft: Draft) -> bool:
    """Whether nothing holds a deleted object back any more."""
    metadata = draft.view.metadata
    if not metadata.deletion_timestamp or metadata.finalizers:
        return False
    if draft.kind.name == "Namespace" and (draft.document.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.deletion_grace_period_seconds
