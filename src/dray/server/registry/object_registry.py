"""The one way into the store: read, decide, judge, and commit all of it or nothing.

Theory of operation: a write is a function from what is stored to what should be. It is called on the object
as it stands, its answer goes past every rule, and what comes out is one transaction: the object, what the
rules keep in step with it, and a compare for everything that was relied on. When a compare fails, somebody
was faster: the cache catches up and everything is decided again, until it holds or somebody says no.

Where webhooks are in force, a decision that is theirs to judge comes as a `ProposedWrite`. Those that may
change it see it first; what comes out is settled as always, and the others see the result. What was admitted
holds for the object as it was read: when another one was faster there, they are asked anew, and when it was
elsewhere (a quota, a row of the ledger), the same result is tried again. Nobody else waits meanwhile: who
asks webhooks takes no turn.

Rules for this file: it knows no kind and no verb; nothing is stored past it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import msgspec

from dray.api.kinds import Kind
from dray.server.admission.change import CREATE, DELETE, UPDATE, AdmissionRule, ObjectChange
from dray.server.admission.webhooks.review_objects import ProposedObject, ReviewObject, StoredReviewObject
from dray.server.http.errors import new_conflict, new_service_unavailable, new_too_large
from dray.server.http.limits import ServerLimits
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject, build_deleted, build_key, get_storage_kind
from dray.server.watch.cache import WatchCache
from dray.store import Committed, Compare, Delete, KeyAbsent, KeyUnchanged, Put, Store, TxnConflict, Write
from dray.store.errors import OutcomeUnknownError, StoreError, TxnTooLargeError

MAX_ATTEMPTS: Final = 200
"""So many times somebody else may be faster before we give up; each time, somebody made progress."""

LOCK_AFTER_ATTEMPTS: Final = 3
"""After so many attempts, writers of one key wait for each other."""


class SaveObject(msgspec.Struct, frozen=True):
    """Store this."""

    pending: PendingObject


class LeaveUnchanged(msgspec.Struct, frozen=True):
    """Leave it as it is."""


class DeleteObject(msgspec.Struct, frozen=True):
    """Delete it; `pending` is how it would be if it stayed, when an update is what lets it go."""

    pending: PendingObject | None = None


WriteDecision = SaveObject | LeaveUnchanged | DeleteObject


class ProposedWrite(msgspec.Struct, frozen=True):
    """What a client wants stored, before anybody has judged it."""

    pending: PendingObject
    complete: Callable[[PendingObject], PendingObject]
    """Fills in what webhooks may rely on."""
    validate: Callable[[PendingObject], WriteDecision]
    """Judges it, as it was proposed or as webhooks changed it."""


DecideWrite = Callable[[StoredObject | None], WriteDecision | ProposedWrite]


class AdmissionDispatcher(Protocol):
    """Webhooks that are asked about one write."""

    warnings: list[str]
    deadline: float

    async def run_mutating(
        self, subject: ReviewObject | None, old: StoredReviewObject | None
    ) -> ReviewObject | None: ...

    async def run_validating(self, subject: ReviewObject | None, old: StoredReviewObject | None) -> None: ...


class ExternalAdmission(Protocol):
    """The webhooks in force."""

    @property
    def webhooks(self) -> Sequence[object]: ...

    def build_dispatcher(
        self,
        request: ApiRequest,
        kind: Kind,
        object_name: tuple[str, str],
        old: StoredObject | None,
        deadline: float = 0.0,
    ) -> AdmissionDispatcher | None: ...

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: tuple[str, str, str], body: dict[str, Any]
    ) -> dict[str, Any]: ...


class _NoWebhooks:
    """No webhooks."""

    webhooks: Sequence[object] = ()

    def build_dispatcher(
        self,
        request: ApiRequest,
        kind: Kind,
        object_name: tuple[str, str],
        old: StoredObject | None,
        deadline: float = 0.0,
    ) -> AdmissionDispatcher | None:
        return None

    async def admit_subresource(
        self, request: ApiRequest, kind: Kind, reviewed_kind: tuple[str, str, str], body: dict[str, Any]
    ) -> dict[str, Any]:
        return body


CommitCallback = Callable[[bool, float], None]
"""Told of every transaction: whether it was committed, and how many seconds that took."""


class WriteResult(msgspec.Struct, frozen=True):
    """How an object stands after a write: `deleted` when it was deleted, `stored` is its last state then."""

    stored: StoredObject
    created: bool = False
    deleted: bool = False
    warnings: tuple[str, ...] = ()


class _AdmittedWrite(msgspec.Struct, frozen=True):
    """What webhooks admitted, of the object at a revision."""

    webhooks: Sequence[object]
    revision: int
    decision: WriteDecision


class _WriteAttempt(msgspec.Struct):
    """One write, however often it is tried."""

    request: ApiRequest
    kind: Kind
    storage_kind: Kind
    object_name: tuple[str, str]
    key: bytes
    decide: DecideWrite
    dispatcher: AdmissionDispatcher | None = None
    admitted: _AdmittedWrite | None = None
    holds_lock: bool = False
    """Whether others wait for it to end."""


class _KeyLock:
    """Where those who write one key wait for each other, while there are any."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class ObjectRegistry:
    """Reads from the cache, writes through the rules into the store."""

    def __init__(
        self,
        store: Store,
        cache: WatchCache,
        rules: Sequence[AdmissionRule],
        on_commit: CommitCallback = lambda _committed, _seconds: None,
        max_object_bytes: int = ServerLimits().max_object_bytes,
        on_internal_change: Callable[[ObjectChange], None] = lambda _change: None,
    ) -> None:
        """`on_internal_change` is told of every change that no client asked for, before it is made."""
        self._store = store
        self.cache = cache
        self._rules = tuple(rules)
        self._on_commit = on_commit
        self._max_object_bytes = max_object_bytes
        self._on_internal_change = on_internal_change
        self._key_locks: dict[bytes, _KeyLock] = {}
        self.admission: ExternalAdmission = _NoWebhooks()
        """Who is asked besides the rules; set once, when the server is put together."""

    async def write(
        self, request: ApiRequest, kind: Kind, namespace: str, name: str, decide: DecideWrite
    ) -> WriteResult:
        """Bring one object to what `decide` wants; raises the `Failure` of whoever objects."""
        place = build_key(kind, namespace, name)
        work = _WriteAttempt(request, kind, get_storage_kind(kind), (namespace, name), place, decide)
        contended = place
        for attempt in range(MAX_ATTEMPTS):
            work.holds_lock = attempt >= LOCK_AFTER_ATTEMPTS and work.dispatcher is None
            if not work.holds_lock:
                outcome = await self._attempt(work)
            else:
                async with self._lock_key(contended):
                    outcome = await self._attempt(work)
            if isinstance(outcome, WriteResult):
                return outcome
            if outcome is not None:
                contended = outcome.failed[0].compare.key if outcome.failed else place
                await self._wait_for_cache(self.cache.wait_for_revision(outcome.revision))
        raise new_conflict(kind, name, "too many others write at the same time; try again")

    async def _attempt(self, work: _WriteAttempt) -> WriteResult | TxnConflict | None:
        """Decide and commit; None when webhooks are to be asked first, while nobody waits."""
        await self._wait_for_cache(self.cache.wait_until_fresh())
        old = self.cache.get_by_key(work.key)
        wanted: WriteDecision | ProposedWrite | None
        if self.admission.webhooks and work.request.audit_id:
            wanted = await self._admit(work, old)
            if wanted is None:
                return None
        else:
            wanted = work.decide(old)
            if isinstance(wanted, ProposedWrite):
                wanted = wanted.validate(wanted.pending)
        if isinstance(wanted, LeaveUnchanged):
            assert old is not None
            outcome: WriteResult | TxnConflict = WriteResult(old)
        else:
            change = _build_change(work.request, work.storage_kind, work.object_name, old, wanted)
            outcome = await self._commit(change, work.key)
        if work.dispatcher is not None and work.dispatcher.warnings and isinstance(outcome, WriteResult):
            told = (*outcome.warnings, *work.dispatcher.warnings)
            return msgspec.structs.replace(outcome, warnings=told)
        return outcome

    async def _admit(self, work: _WriteAttempt, old: StoredObject | None) -> WriteDecision | None:
        """What is wanted, when webhooks have had their say; None when they cannot be asked now."""
        hooks, revision = self.admission.webhooks, 0 if old is None else old.revision
        known = work.admitted
        if known is not None and known.webhooks is hooks and known.revision == revision:
            return known.decision
        wanted = work.decide(old)
        proposed = isinstance(wanted, ProposedWrite)
        visit = None
        if proposed or work.request.call.verb == "delete":
            deadline = 0.0 if work.dispatcher is None else work.dispatcher.deadline
            visit = self.admission.build_dispatcher(work.request, work.kind, work.object_name, old, deadline)
        if visit is None:
            return wanted.validate(wanted.pending) if isinstance(wanted, ProposedWrite) else wanted
        work.dispatcher = visit
        if work.holds_lock:
            return None
        stored = None if old is None else StoredReviewObject(work.kind, old)
        if isinstance(wanted, ProposedWrite):
            subject = ProposedObject(work.kind, wanted.complete(wanted.pending), wanted.complete)
            changed = await visit.run_mutating(subject, stored)
            # Who changed nothing leaves what was proposed as it came.
            unchanged = changed is subject or not isinstance(changed, ProposedObject)
            wanted = wanted.validate(wanted.pending if unchanged else changed.draft)  # type: ignore[union-attr]
        else:
            await visit.run_mutating(None, stored)
        await visit.run_validating(_build_review_object(work.kind, wanted, old) if proposed else None, stored)
        work.admitted = _AdmittedWrite(hooks, revision, wanted)
        return wanted

    async def _commit(self, change: ObjectChange, key: bytes) -> WriteResult | TxnConflict:
        old = change.old
        compares: list[Compare] = [KeyAbsent(key) if old is None else KeyUnchanged(key, old.revision)]
        writes: list[Write] = []
        warnings: list[str] = []
        for rule in self._rules:
            extra = rule.admit(change)
            compares += extra.compares
            writes += extra.writes
            warnings += extra.warnings
        draft = change.pending
        value = b"" if draft is None else draft.encoded
        if len(value) > self._max_object_bytes:
            raise new_too_large(
                f"the object has {len(value)} bytes; at most {self._max_object_bytes} are stored"
            )
        if old is not None and old.value == value and not writes:
            return WriteResult(old, warnings=tuple(warnings))
        writes.append(Delete(key) if draft is None else Put(key, value))
        if change.request.call.dry_run:
            return _build_result(change, key, value, old.revision if old else 0, warnings)
        if not change.request.audit_id:
            self._on_internal_change(change)
        outcome = await self._run_transaction(compares, writes)
        if isinstance(outcome, TxnConflict):
            return outcome
        return _build_result(change, key, value, outcome.revision, warnings)

    async def _run_transaction(
        self, compares: Sequence[Compare], writes: Sequence[Write]
    ) -> Committed | TxnConflict:
        begun = time.perf_counter()
        try:
            outcome = await self._store.txn(_drop_duplicates(compares), writes)
        except TxnTooLargeError as too_much:
            raise new_too_large(f"the store cannot take this in one transaction: {too_much}") from None
        except OutcomeUnknownError as unknown:
            why = f"whether this was stored is not known: {unknown}; read before you try again"
            raise new_service_unavailable(why) from None
        except StoreError as broken:
            raise new_service_unavailable(f"the store cannot write now: {broken}") from None
        self._on_commit(isinstance(outcome, Committed), time.perf_counter() - begun)
        return outcome

    @staticmethod
    async def _wait_for_cache(waiting: Awaitable[object]) -> None:
        """Wait for the cache; one that does not follow is a failure like others."""
        try:
            await waiting
        except StoreError as broken:
            raise new_service_unavailable(f"the store does not answer: {broken}") from None

    @asynccontextmanager
    async def _lock_key(self, key: bytes) -> AsyncIterator[None]:
        """After a few lost races, one after the other: that is faster than to lose again.

        Those wait for each other who lost over the same key, be it an object, a row of the ledger or a quota.
        """
        turn = self._key_locks.setdefault(key, _KeyLock())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._key_locks[key]


def _build_review_object(kind: Kind, decision: WriteDecision, old: StoredObject | None) -> ProposedObject:
    """The object as it would be stored."""
    draft = None if isinstance(decision, LeaveUnchanged) else decision.pending
    if draft is None:
        assert old is not None
        draft = PendingObject.from_stored(old)
    return ProposedObject(kind, draft)


def _build_change(
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


def _build_result(
    change: ObjectChange, key: bytes, value: bytes, revision: int, warnings: Sequence[str]
) -> WriteResult:
    if change.pending is None:
        assert change.old is not None
        last = build_deleted(change.old, revision)
        return WriteResult(last, deleted=True, warnings=tuple(warnings))
    held = StoredObject(change.kind, key, value, revision)
    if revision:
        change.pending.cache_view(held)
    return WriteResult(held, created=change.old is None, warnings=tuple(warnings))


def _drop_duplicates(compares: Sequence[Compare]) -> list[Compare]:
    """Rules may rely on the same thing; the store needs to be asked once."""
    return list(dict.fromkeys(compares))
