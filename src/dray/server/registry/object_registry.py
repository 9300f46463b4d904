"""The object registry: the only write path to the store. It decides, admits and commits a write atomically.

Theory of operation: a write is a function from the stored object to a decision. The registry calls it with
the object in the cache, asks every admission rule about the result, and commits one transaction: the object,
the writes that the rules add, and a compare for everything the decision relied on. When a compare fails,
another writer was faster: the cache catches up, and the write is decided again, until it is committed or
refused.

With admission webhooks, a decision that they review is a `ProposedWrite`. Mutating webhooks see it first, it
is validated as usual, and validating webhooks see the result. What they admitted holds for one revision of
the object: after a conflict on the object itself they are called again, and after a conflict elsewhere (on a
quota or a row of the ledger) the same result is tried again. A write that calls webhooks holds no lock.

Rules for this file: it knows no kind by name and no verb, and no other module writes objects to the store.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec

from dray.api.kinds import Kind
from dray.server.admission.change import CREATE, DELETE, UPDATE, AdmissionRule, ObjectChange
from dray.server.admission.rule_table import RuleTable
from dray.server.admission.webhooks.external_admission import (
    AdmissionDispatcher,
    ExternalAdmission,
    NoWebhooks,
    SubresourceKind,
)
from dray.server.admission.webhooks.review_objects import ProposedObject, StoredReviewObject
from dray.server.http.errors import new_conflict, new_service_unavailable, new_too_large
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject, build_deleted, build_key, get_storage_kind
from dray.server.registry.key_locks import KeyLocks
from dray.server.watch.cache import WatchCache
from dray.store import (
    Committed,
    Compare,
    Delete,
    KeyAbsent,
    KeyUnchanged,
    Put,
    SequenceCommitted,
    SequenceConflict,
    Store,
    TxnConflict,
    TxnStep,
    Write,
)
from dray.store.errors import OutcomeUnknownError, StoreError, TxnTooLargeError
from dray.store.records import CommitRecord, commit_recorded, commit_sequence_recorded

MAX_ATTEMPTS: Final = 200
"""How often a write may lose a race before it fails; each lost race is the progress of another write."""

LOCK_AFTER_ATTEMPTS: Final = 3
"""After this many attempts, writers of one key wait for each other."""


_TxnOutcome = TypeVar("_TxnOutcome", Committed | TxnConflict, SequenceCommitted | SequenceConflict)


class SaveObject(msgspec.Struct, frozen=True):
    """Store this object."""

    pending: PendingObject


class LeaveUnchanged(msgspec.Struct, frozen=True):
    """Leave the stored object as it is."""


class DeleteObject(msgspec.Struct, frozen=True):
    """Delete the object; `pending` is its last state, when an update removes its last finalizer."""

    pending: PendingObject | None = None


WriteDecision = SaveObject | LeaveUnchanged | DeleteObject


class ProposedWrite(msgspec.Struct, frozen=True):
    """What a client wants to store, before admission and validation."""

    pending: PendingObject
    complete: Callable[[PendingObject], PendingObject]
    """Fills in the defaults that webhooks may rely on."""
    validate: Callable[[PendingObject], WriteDecision]
    """Validates the object, as proposed or as changed by webhooks."""


DecideWrite = Callable[[StoredObject | None], WriteDecision | ProposedWrite]


@dataclass(frozen=True)
class WriteObserver:
    """Callbacks of the registry for metrics and audit."""

    on_commit: Callable[[bool, float], None] = lambda _committed, _seconds: None
    """Called after every transaction: whether it was committed, and how many seconds that took."""
    on_internal_change: Callable[[ObjectChange], None] = lambda _change: None
    """Called before every change that is not the request of a client."""


class WriteResult(msgspec.Struct, frozen=True):
    """The object after a write; its last state when it was deleted."""

    stored: StoredObject
    created: bool = False
    deleted: bool = False
    warnings: tuple[str, ...] = ()


class PlannedWrite(msgspec.Struct, frozen=True):
    """A change that every rule has admitted, as a transaction; without writes when it changes nothing."""

    change: ObjectChange
    key: bytes
    value: bytes
    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]
    warnings: tuple[str, ...]

    def build_result(self, revision: int) -> WriteResult:
        """The result once the transaction is committed at a revision; 0 when it is not."""
        change = self.change
        if change.pending is None:
            assert change.old is not None
            last = build_deleted(change.old, revision)
            return WriteResult(last, deleted=True, warnings=self.warnings)
        stored = StoredObject(change.kind, self.key, self.value, revision)
        if revision:
            change.pending.cache_view(stored)
        return WriteResult(stored, created=change.old is None, warnings=self.warnings)


class WriteRegistry(Protocol):
    """Where the verbs write."""

    @property
    def cache(self) -> WatchCache: ...

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> dict[str, Any]:
        """The body of a subresource as webhooks change it; raises an `ApiStatusError` when one refuses."""
        ...

    async def write(
        self, request: ApiRequest, kind: Kind, namespace: str, name: str, decide: DecideWrite
    ) -> WriteResult:
        """Write one object as `decide` says; raises the `ApiStatusError` of the rule that refuses."""
        ...


class _AdmittedWrite(msgspec.Struct, frozen=True):
    """The decision that webhooks admitted for the object at a revision."""

    webhooks: Sequence[object]
    revision: int
    decision: WriteDecision


class _WriteAttempt(msgspec.Struct):
    """One write with its state between attempts."""

    request: ApiRequest
    kind: Kind
    storage_kind: Kind
    object_name: tuple[str, str]
    key: bytes
    decide: DecideWrite
    dispatcher: AdmissionDispatcher | None = None
    admitted: _AdmittedWrite | None = None
    holds_lock: bool = False


class ObjectRegistry:
    """Reads from the cache, writes through admission into the store."""

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        rules: Sequence[AdmissionRule],
        admission: ExternalAdmission | None = None,
        observer: WriteObserver | None = None,
        max_object_bytes: int = ServerLimits().max_object_bytes,
    ) -> None:
        """`admission` calls the webhooks, which review a write before the rules do."""
        self._store = store
        self.cache = cache
        self._rules = RuleTable(rules)
        self.admission: ExternalAdmission = admission or NoWebhooks()
        self._observer = observer or WriteObserver()
        self._max_object_bytes = max_object_bytes
        self.key_locks = KeyLocks()

    async def write(
        self, request: ApiRequest, kind: Kind, namespace: str, name: str, decide: DecideWrite
    ) -> WriteResult:
        """Write one object as `decide` says; raises the `ApiStatusError` of the rule that refuses."""
        key = build_key(kind, namespace, name)
        work = _WriteAttempt(request, kind, get_storage_kind(kind), (namespace, name), key, decide)
        contended = key
        for attempt in range(MAX_ATTEMPTS):
            work.holds_lock = attempt >= LOCK_AFTER_ATTEMPTS and work.dispatcher is None
            if not work.holds_lock:
                outcome = await self._attempt(work)
            else:
                async with self.key_locks.hold([contended]):
                    outcome = await self._attempt(work)
            if isinstance(outcome, WriteResult):
                return outcome
            if outcome is not None:
                contended = outcome.failed[0].compare.key if outcome.failed else key
                await self.wait_for_cache(self.cache.wait_for_revision(outcome.revision))
        raise new_conflict(kind, name, "too many clients write at the same time; try again")

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: SubresourceKind, body: dict[str, Any]
    ) -> dict[str, Any]:
        return await self.admission.admit_subresource(request, kind, reviewed_kind, body)

    async def _attempt(self, work: _WriteAttempt) -> WriteResult | TxnConflict | None:
        """Decide and commit; None when webhooks must be called first, without the lock."""
        await self.wait_for_cache(self.cache.wait_until_fresh())
        old = self.cache.get_by_key(work.key)
        decision: WriteDecision | ProposedWrite | None
        if self.admission.webhooks and work.request.audit_id:
            decision = await self._admit(work, old)
            if decision is None:
                return None
        else:
            decision = work.decide(old)
            if isinstance(decision, ProposedWrite):
                decision = decision.validate(decision.pending)
        if isinstance(decision, LeaveUnchanged):
            assert old is not None
            outcome: WriteResult | TxnConflict = WriteResult(old)
        else:
            change = build_change(work.request, work.storage_kind, work.object_name, old, decision)
            outcome = await self._commit(change, work.key)
        if work.dispatcher is not None and work.dispatcher.warnings and isinstance(outcome, WriteResult):
            warnings = (*outcome.warnings, *work.dispatcher.warnings)
            return msgspec.structs.replace(outcome, warnings=warnings)
        return outcome

    async def _admit(self, work: _WriteAttempt, old: StoredObject | None) -> WriteDecision | None:
        """The decision after webhooks; None when they cannot be called while this write holds the lock."""
        webhooks, revision = self.admission.webhooks, 0 if old is None else old.revision
        admitted = work.admitted
        if admitted is not None and admitted.webhooks is webhooks and admitted.revision == revision:
            return admitted.decision
        decision = work.decide(old)
        proposed = isinstance(decision, ProposedWrite)
        dispatcher = None
        if proposed or work.request.call.verb == "delete":
            deadline = 0.0 if work.dispatcher is None else work.dispatcher.deadline
            dispatcher = self.admission.build_dispatcher(
                work.request, work.kind, work.object_name, old, deadline
            )
        if dispatcher is None:
            return decision.validate(decision.pending) if isinstance(decision, ProposedWrite) else decision
        work.dispatcher = dispatcher
        if work.holds_lock:
            return None
        stored = None if old is None else StoredReviewObject(work.kind, old)
        if isinstance(decision, ProposedWrite):
            subject = ProposedObject(work.kind, decision.complete(decision.pending), decision.complete)
            changed = await dispatcher.run_mutating(subject, stored)
            # When no webhook changes anything, the object is validated as the client sent it.
            unchanged = changed is subject or not isinstance(changed, ProposedObject)
            decision = decision.validate(decision.pending if unchanged else changed.draft)  # type: ignore[union-attr]
        else:
            await dispatcher.run_mutating(None, stored)
        reviewed = _build_review_object(work.kind, decision, old) if proposed else None
        await dispatcher.run_validating(reviewed, stored)
        work.admitted = _AdmittedWrite(webhooks, revision, decision)
        return decision

    async def _commit(self, change: ObjectChange, key: bytes) -> WriteResult | TxnConflict:
        planned = self.plan_write(change, key)
        if not planned.writes:
            assert change.old is not None
            return WriteResult(change.old, warnings=planned.warnings)
        if change.request.call.dry_run:
            return planned.build_result(change.old.revision if change.old else 0)
        if not change.request.audit_id:
            self._observer.on_internal_change(change)
        record = change.request.record
        outcome = await self._run(commit_recorded(self._store, planned.compares, planned.writes, record))
        return outcome if isinstance(outcome, TxnConflict) else planned.build_result(outcome.revision)

    def plan_write(self, change: ObjectChange, key: bytes) -> PlannedWrite:
        """Ask every rule about a change; raises the `ApiStatusError` of the one that refuses."""
        old = change.old
        compares: list[Compare] = [KeyAbsent(key) if old is None else KeyUnchanged(key, old.revision)]
        writes: list[Write] = []
        warnings: list[str] = []
        for rule in self._rules.find(change):
            effects = rule.admit(change)
            compares += effects.compares
            writes += effects.writes
            warnings += effects.warnings
        pending = change.pending
        value = b"" if pending is None else pending.encoded
        if len(value) > self._max_object_bytes:
            raise new_too_large(
                f"the object has {len(value)} bytes; at most {self._max_object_bytes} are stored"
            )
        if old is None or old.value != value or writes:
            writes.append(Delete(key) if pending is None else Put(key, value))
            if pending is not None:
                pending.cache_metadata(value)
        # Several rules may rely on the same key.
        unique = tuple(dict.fromkeys(compares))
        return PlannedWrite(change, key, value, unique, tuple(writes), tuple(warnings))

    async def commit_sequence(
        self, steps: Sequence[TxnStep], record: CommitRecord | None
    ) -> SequenceCommitted | SequenceConflict:
        """Commit the writes of several requests together."""
        return await self._run(commit_sequence_recorded(self._store, steps, record))

    async def _run(self, transaction: Awaitable[_TxnOutcome]) -> _TxnOutcome:
        started = time.perf_counter()
        try:
            outcome = await transaction
        except TxnTooLargeError as error:
            raise new_too_large(f"the store cannot take this in one transaction: {error}") from None
        except OutcomeUnknownError as error:
            why = f"whether this was stored is not known: {error}; read before you try again"
            raise new_service_unavailable(why) from None
        except StoreError as error:
            raise new_service_unavailable(f"the store cannot write now: {error}") from None
        committed = isinstance(outcome, Committed | SequenceCommitted)
        self._observer.on_commit(committed, time.perf_counter() - started)
        return outcome

    @staticmethod
    async def wait_for_cache(waiting: Awaitable[object]) -> None:
        """Wait for the cache; a cache that does not catch up is an API error."""
        try:
            await waiting
        except StoreError as error:
            raise new_service_unavailable(f"the store does not answer: {error}") from None


def _build_review_object(kind: Kind, decision: WriteDecision, old: StoredObject | None) -> ProposedObject:
    """The object as it would be stored."""
    pending = None if isinstance(decision, LeaveUnchanged) else decision.pending
    if pending is None:
        assert old is not None
        pending = PendingObject.from_stored(old)
    return ProposedObject(kind, pending)


def build_change(
    request: ApiRequest,
    kind: Kind,
    object_name: tuple[str, str],
    old: StoredObject | None,
    decision: SaveObject | DeleteObject,
) -> ObjectChange:
    namespace, name = object_name
    if isinstance(decision, DeleteObject):
        return ObjectChange(request, DELETE, kind, namespace, name, old, None)
    operation = CREATE if old is None else UPDATE
    return ObjectChange(request, operation, kind, namespace, name, old, decision.pending)
